// Who is told, when, and how often: one sub-route for the pack, and the hours in which context may speak.
local promql = import '../rules/promql.libsonnet';
local matchers = import 'matchers.libsonnet';

function(config)
  local own = config.alertmanager;
  local severity(name) = matchers.equal('severity', name);
  {
    chat:: 'specdec-chat',
    pager:: 'specdec-pager',
    nobody:: 'specdec-nobody',
    business_hours:: 'specdec-business-hours',

    // A message, and an incident of the pager, is a service: what begins as low acceptance and turns into harm stays one
    // incident, which ends when all of it has ended. Inhibition alone would leave the first one open.
    root: {
      matchers: [matchers.equal('component', config.component)],
      receiver: $.chat,
      group_by: (import '../rules/sources.libsonnet')(config).up.labels,
      group_wait: promql.duration(own.group_wait_seconds),
      group_interval: promql.duration(own.group_interval_seconds),
      repeat_interval: promql.duration(own.repeat_interval_seconds),
      routes: [
        // It is there to inhibit.
        { matchers: [matchers.equal('alertname', 'SpecDecodeWarmingUp')], receiver: $.nobody },
        // `continue` goes on to the next sibling, never back to the parent: hence the last route.
        {
          matchers: [severity('critical')],
          receiver: $.pager,
          repeat_interval: promql.duration(own.page_repeat_interval_seconds),
          continue: true,
        },
        {
          matchers: [severity('info')],
          receiver: $.chat,
          repeat_interval: promql.duration(own.info_repeat_interval_seconds),
          active_time_intervals: [$.business_hours],
        },
        { receiver: $.chat },
      ],
    },
  }
