// Which alert silences which others (inhibition), and which labels both must share.
//
// `equal` may hold only labels that both alerts carry. A label that both lack counts as equal, so the alert of one service
// would silence that of another. A silenced alert still silences others. So if A silences B, A must also silence everything
// that B silences, or nobody hears of it.
local matchers = import 'matchers.libsonnet';

function(config)
  local service = (import '../rules/sources.libsonnet')(config).up.labels;
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

  [
    // When a service does not answer at all, nothing else matters. Its other alerts are left over from before.
    {
      source: page('SpecDecodeTargetDown'),
      target: [ours, matchers.not('alertname', 'SpecDecodeTargetDown')],
      equal: service,
    },
    // After a start caches are cold. The rules are quiet meanwhile, but keep_firing_for outlives a restart. These are not
    // silenced: acceptance, which is right from the first draft; harm, which would silence acceptance; and error budgets,
    // which are promises to users.
    {
      source: alert('SpecDecodeWarmingUp'),
      target: alerts([
        'SpecDecodeAcceptanceDropped',
        'SpecDecodeBucketsMixed',
        'SpecDecodeLatencyMeanRegression',
        'SpecDecodeNotDrafting',
        'SpecDecodeNotPayingOff',
        'SpecDecodeP99Regression',
      ]),
      equal: model,
    },
    // Harm is a measured loss, or low acceptance and high latency together. It needs the same action as what it silences: roll
    // back. Speculation does not affect the time to first token, so alerts about it are not silenced.
    {
      source: alert('SpecDecodeHarmful'),
      target: alerts([
        'SpecDecodeAcceptanceDropped',
        'SpecDecodeAcceptanceLow',
        'SpecDecodeLatencyMeanRegression',
        'SpecDecodeNotPayingOff',
        'SpecDecodeP99Regression',
        'SpecDecodeSaturated',
      ]) + [matchers.not('sli', 'ttft')],
      equal: model,
    },
    // Acceptance below the minimum says more than acceptance below the baseline.
    {
      source: alert('SpecDecodeAcceptanceLow'),
      target: alert('SpecDecodeAcceptanceDropped'),
      equal: model,
    },
    pageOverTicket('SpecDecodeTargetDown', service),
    pageOverTicket('SpecDecodeAcceptanceLow', model),
    pageOverTicket('SpecDecodeP99Regression', model + ['sli']),
    pageOverTicket('SpecDecodeErrorBudgetBurn', model + ['slo']),
  ]
