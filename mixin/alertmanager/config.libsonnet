// The settings of the Alertmanager part. Override a key where the mixin is used:
//   (import 'specdec-exporter/mixin/mixin.libsonnet') + { _config+:: { alertmanager+: { chat: ['email'] } } }
{
  _config+:: {
    alertmanager: {
      local alertmanager = self,

      // Pages with the same values of these labels are one incident. By namespace too, where each has its own on-call.
      page_group_by: ['cluster'],

      // How long a message waits for others of its group, and a ticket for the page that silences it. A fault reaches all its
      // services within about two minutes, since scrapes and rules each add up to one; the first page names them all. Pages of
      // what is slower wait for group_interval_seconds.
      group_wait_seconds: 150,
      group_interval_seconds: 5 * 60,

      // Reminders: a page every four hours, a ticket twice a day, context twice a week.
      repeat_hours: { critical: 4, warning: 12, info: 72 },

      // `info` messages are sent only in these hours. The operator's object has no time zone: there the times are UTC.
      business_hours: {
        times: [{ start_time: '09:00', end_time: '17:00' }],
        weekdays: ['monday:friday'],
        location: 'UTC',
      },

      // The integrations for chat and pages. Any of slack, email, pagerduty and webhook.
      chat: ['slack'],
      pager: ['pagerduty'],

      // Your addresses. `email`: as in Alertmanager's email_config.
      slack_channel: '#specdec-alerts',
      email: {
        to: 'inference-team@example.com',
        from: 'alertmanager@example.com',
        smarthost: 'mail.example.com:587',
        auth_username: 'alertmanager',
      },
      webhook_url: 'https://alerts.example.com/specdec',

      // Alertmanager reads secrets from files in this directory, and templates from this path. A relative one begins at its
      // configuration file.
      secrets_directory: '/etc/alertmanager/secrets',
      templates: ['../templates/*.tmpl'],

      // Metadata of the AlertmanagerConfig: it needs the labels that the operator selects. Its Secret is <name>-alertmanager,
      // with a key for each file of secrets.
      object: {
        name: 'specdec',
        labels: { 'app.kubernetes.io/name': 'specdec-exporter', 'app.kubernetes.io/component': 'alertmanager' },
      },

      assert std.length([
        name
        for name in alertmanager.chat + alertmanager.pager
        if !std.member(['slack', 'email', 'pagerduty', 'webhook'], name)
      ]) == 0 : 'alertmanager.chat and alertmanager.pager may hold slack, email, pagerduty and webhook, not %s'
                % [alertmanager.chat + alertmanager.pager],
    },
  },
}
