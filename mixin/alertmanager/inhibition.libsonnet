// Which alert silences which others (inhibition), and which labels both must share.
//
// `equal` may hold only labels that both alerts carry. A label that both lack counts as equal, so the alert of one service
// would silence that of another. A silenced alert still silences others. So if A silences B, A must also silence everything
// that B silences, or nobody hears of it.
local matchers = import 'matchers.libsonnet';

function(config)
  local service = (import '../rules/sources.libsonnet')(config).service;
  local model = config.level_labels;
  local ours = matchers.equal('component', config.component);

  local alert(name) = [ours, matchers.equal('alertname', name)];
  local page(name) = alert(name) + [matchers.equal('severity', 'critical')];
  local alerts(names) = [ours, matchers.oneOf('alertname', names)];

  // A page makes the ticket of the same name unnecessary.
  local pageOverTicket(name, equal) = {
    source: page(name),
    target: alert(name) + [matchers.equal('severity', 'warning')],
    equal: equal,
  };

  // One cause, one page: it names the services. What a service that is down silences stays silent.
  local manyOver(reason, name) = {
    source: alert('SpecDecodeManyServices') + [matchers.equal('reason', reason)],
    target: page(name),
    equal: [label for label in service if label == 'cluster'],
  };

  [
    manyOver('down', 'SpecDecodeTargetDown'),
    manyOver('slower', 'SpecDecodeP99Regression'),
    // When nothing of a service can be read, nothing else matters. Its other alerts are left over from before. Several
    // processes are told in any case: what looks like restarts may be one of two replicas behind one URL, which fails.
    {
      source: page('SpecDecodeTargetDown'),
      target: [ours] + [
        matchers.not('alertname', 'SpecDecode' + name)
        for name in ['ManyServices', 'TargetDown', 'RestartLoop', 'RulesLagging']
      ] + [matchers.not('reason', 'several_processes')],
      equal: service,
    },
    // The same for a service that is down again and again: its restarts are one incident, not one each.
    {
      source: page('SpecDecodeRestartLoop'),
      target: [ours] + [
        matchers.not('alertname', 'SpecDecode' + name)
        for name in ['ManyServices', 'RestartLoop', 'RulesLagging']
      ] + [matchers.not('reason', 'several_processes')],
      equal: service,
    },
    // Harm is a measured loss, or low acceptance and high latency together. It needs the same action as what it silences: roll
    // back.
    {
      source: alert('SpecDecodeHarmful'),
      target: alerts([
        'SpecDecodeAcceptanceLow',
        'SpecDecodeLoadTooHigh',
        'SpecDecodeNotPayingOff',
        'SpecDecodeP99Regression',
      ]),
      equal: model,
    },
    pageOverTicket('SpecDecodeTargetDown', service),
    pageOverTicket('SpecDecodeRestartLoop', service),
    pageOverTicket('SpecDecodeAcceptanceLow', model),
    pageOverTicket('SpecDecodeP99Regression', model),
  ]
