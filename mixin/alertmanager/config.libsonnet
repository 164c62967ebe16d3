// The settings of the Alertmanager part. Override a key where the mixin is used:
//   (import 'specdec-exporter/mixin.libsonnet') + { _config+:: { alertmanager+: { repeat_interval_seconds: 86400 } } }
{
  _config+:: {
    alertmanager: {
      local alertmanager = self,

      // One message per service lists all its alerts: the pack's rules share their windows, so the alerts come together.
      group_wait_seconds: 30,
      group_interval_seconds: 5 * 60,

      // Reminders: a ticket twice a day, a page every four hours, context twice a week.
      repeat_interval_seconds: 12 * 3600,
      page_repeat_interval_seconds: 4 * 3600,
      info_repeat_interval_seconds: 3 * 24 * 3600,

      // `info` messages are sent only in these hours. The operator's object has no time zone: there the times are UTC.
      business_hours: {
        times: [{ start_time: '09:00', end_time: '17:00' }],
        weekdays: ['monday:friday'],
        location: 'UTC',
      },

      // Path of the templates, relative to the directory of Alertmanager's configuration file.
      templates: ['../templates/*.tmpl'],

      // Alertmanager reads secrets from files in this directory. The operator reads them from keys of the same names in this
      // Secret.
      secrets_directory: '/etc/alertmanager/secrets',
      secret_name: 'specdec-alertmanager',

      // Your addresses.
      slack_channel: '#specdec-alerts',
      email_to: 'inference-team@example.com',
      email_from: 'alertmanager@example.com',
      email_smarthost: 'mail.example.com:587',
      email_username: 'alertmanager',
      webhook_url: 'https://alerts.example.com/specdec',

      // The integrations for chat and pages. Any of slack, email, pagerduty and webhook.
      chat: ['slack'],
      pager: ['pagerduty'],

      // The AlertmanagerConfig needs the namespace of the predictors and the labels that the operator selects.
      object: {
        name: 'specdec',
        labels: { 'app.kubernetes.io/name': 'specdec-exporter', 'app.kubernetes.io/component': 'alertmanager' },
      },

      assert std.all([
        std.member(['slack', 'email', 'pagerduty', 'webhook'], name)
        for name in alertmanager.chat + alertmanager.pager
      ]) : 'alertmanager.chat and alertmanager.pager may hold slack, email, pagerduty and webhook, not %s'
           % [alertmanager.chat + alertmanager.pager],
    },
  },
}
