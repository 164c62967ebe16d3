// The pack's _config for the demo and the tests of the whole stack: a minute is a second.
{
  minute_seconds: 1,
  runbook_url_prefix: 'rules/runbooks/',  // of this checkout
  alertmanager+: {
    group_wait_seconds: 5,  // longer than the slowest interval, so that what silences comes with what it silences
    group_interval_seconds: 2,
    chat: ['webhook'],
    pager: ['webhook'],
    webhook_url: 'http://127.0.0.1:9/',
    secrets_directory: 'secrets',
    templates: ['templates/*.tmpl'],
  },
}
