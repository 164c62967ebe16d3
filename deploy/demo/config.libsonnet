// The pack's _config for the demo and the tests of the whole stack. Every window and wait is at most a thirtieth of its
// default.
{
  scrape_interval_seconds: 1,
  evaluation_interval_seconds: 1,
  slow_interval_seconds: 4,
  short_window_seconds: 10,
  long_window_seconds: 30,
  warm_up_seconds: 10,
  settling_seconds: 10,
  minute_seconds: 1,
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
