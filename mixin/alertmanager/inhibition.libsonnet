// Which alert silences which others (inhibition), and which labels both must share.
//
// - A label that one alert has and the other lacks differs; one that both lack is equal. So `equal` holds what both have, or else
//   the alert of one service would silence that of another.
// - A silenced alert still silences others. So if A silences B, A must also silence everything that B silences, or nobody hears of
//   it.
// - The end of a silenced alert is never told. So a page silences another page only in the group of its own (routing.libsonnet),
//   which ends with the last of both. Or else an incident would stay open, and swallow the next one.
local promql = import '../promql.libsonnet';
local matchers = import 'matchers.libsonnet';

function(config)
  local service = promql.names(config.service);
  local level = promql.names(config.level);
  local ours = matchers.equal('component', config.component);
  local page = [ours, matchers.equal('severity', 'critical')];
  local ticket = [ours, matchers.not('severity', 'critical')];
  local named(names) = matchers.oneOf('alertname', ['SpecDecode' + name for name in names]);

  [
    // A page makes the ticket of the same name unnecessary.
    { source: page, target: ticket, equal: ['alertname'] + level },
    // What fell below break-even has fallen.
    {
      source: ticket + [named(['AcceptanceLow']), matchers.equal('reason', 'low')],
      target: ticket + [named(['AcceptanceLow']), matchers.equal('reason', 'fell')],
      equal: level,
    },
    // While nothing of a service can be read, its tickets are left over from before. Restarts may be the cause; so may several
    // processes at one URL, one of which fails.
    {
      source: page + [named(['RestartLoop', 'TargetDown'])],
      target: ticket + [matchers.not('alertname', 'SpecDecodeRestartLoop'), matchers.not('reason', 'several_processes')],
      equal: service,
    },
    // A service that is down again and again is one incident, and so is one that hangs before it is down.
    { source: page + [named(['RestartLoop'])], target: [ours, named(['EngineStalled', 'TargetDown'])], equal: service },
    { source: page + [named(['TargetDown'])], target: [ours, named(['EngineStalled'])], equal: service },
    // Harm needs the same action as what it silences: roll back.
    {
      source: [ours, named(['Harmful'])],
      target: [ours, named(['AcceptanceLow', 'LoadTooHigh', 'NotPayingOff', 'P99Regression'])],
      equal: level,
    },
  ]
