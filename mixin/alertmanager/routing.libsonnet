// Who gets a message, when, and how often: one sub-route for the pack, and the hours in which `info` messages are sent.
local promql = import '../rules/promql.libsonnet';
local matchers = import 'matchers.libsonnet';

function(config)
  local own = config.alertmanager;
  local severity(name) = matchers.equal('severity', name);
  {
    chat:: 'specdec-chat',
    pager:: 'specdec-pager',
    business_hours:: 'specdec-business-hours',
    nobody:: 'specdec-nobody',

    // One message, and one incident of the pager, is about one service. Low acceptance that turns into harm stays one
    // incident, and it ends when all its alerts have ended. With inhibition alone, the first incident would stay open.
    root: {
      matchers: [matchers.equal('component', config.component)],
      receiver: $.chat,
      group_by: (import '../rules/sources.libsonnet')(config).service,
      group_wait: promql.duration(own.group_wait_seconds),
      group_interval: promql.duration(own.group_interval_seconds),
      repeat_interval: promql.duration(own.repeat_interval_seconds),
      routes: [
        // `continue` goes on to the next sibling and never back to the parent, so the last route sends pages to the chat.
        {
          matchers: [severity('critical')],
          receiver: $.pager,
          repeat_interval: promql.duration(own.page_repeat_interval_seconds),
          continue: true,
        },
        // A flag for boards: whether so low a rate pays depends on method, k and load.
        { matchers: [severity('info'), matchers.equal('alertname', 'SpecDecodeAcceptanceLow')], receiver: $.nobody },
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
