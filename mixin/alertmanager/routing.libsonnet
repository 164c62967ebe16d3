// Who gets a message, when, and how often: one sub-route for the pack, and the hours in which `info` messages are sent.
local promql = import '../promql.libsonnet';
local matchers = import 'matchers.libsonnet';

function(config)
  local own = config.alertmanager;
  local severity(name) = matchers.equal('severity', name);
  local repeat(name) = promql.duration(own.repeat_hours[name] * 3600);
  {
    chat:: 'specdec-chat',
    pager:: 'specdec-pager',
    business_hours:: 'specdec-business-hours',
    nobody:: 'specdec-nobody',

    // Pages of one kind: one incident for all services, so that a fault of many rings once. An alert that silences another
    // page has its kind (inhibition.libsonnet). What gets worse stays one incident, too.
    local pages(which) = {
      matchers: [severity('critical')] + which,
      receiver: $.chat,
      group_by: own.page_group_by,
      repeat_interval: repeat('critical'),
      // `continue` goes on to the next sibling and never back to the parent, so the last route sends pages to the chat.
      routes: [{ receiver: $.pager, continue: true }, { receiver: $.chat }],
    },

    root: {
      matchers: [matchers.equal('component', config.component)],
      receiver: $.chat,
      // One message for all tickets of a service.
      group_by: promql.names(config.service),
      group_wait: promql.duration(own.group_wait_seconds),
      group_interval: promql.duration(own.group_interval_seconds),
      repeat_interval: repeat('warning'),
      routes: [
        pages([matchers.oneOf('alertname', ['SpecDecodeEngineStalled', 'SpecDecodeRestartLoop', 'SpecDecodeTargetDown'])]),
        // What is slower is seen after twenty minutes, at one service some minutes before another.
        pages([]) { group_wait: promql.duration(std.max(own.group_wait_seconds, own.group_interval_seconds)) },
        // A flag for boards: whether so low a rate pays depends on method, k and load.
        { matchers: [severity('info'), matchers.equal('alertname', 'SpecDecodeAcceptanceLow')], receiver: $.nobody },
        {
          matchers: [severity('info')],
          receiver: $.chat,
          repeat_interval: repeat('info'),
          active_time_intervals: [$.business_hours],
        },
        { receiver: $.chat },
      ],
    },
  }
