// Which alert makes which others needless, and for alerts with which labels in common.
//
// `equal` may hold only labels that both sides carry: one that both lack counts as equal, and would let the alert of one
// service silence another's. And a silenced alert silences on: what silences it must also silence all that it silences, or
// nobody hears of those.
local matchers = import 'matchers.libsonnet';

function(config)
  local service = (import '../rules/sources.libsonnet')(config).up.labels;
  local model = config.level_labels;
  local ours = matchers.equal('component', config.component);

  local alert(name) = [ours, matchers.equal('alertname', name)];
  local page(name) = alert(name) + [matchers.equal('severity', 'critical')];
  local alerts(names) = [ours, matchers.oneOf('alertname', names)];

  // An alert that pages needs no ticket of the same name beside it.
  local pageOverTicket(name, equal) = {
    source: page(name),
    target: alert(name) + [matchers.equal('severity', 'warning')],
    equal: equal,
  };

  [
    // Nothing else matters of a service that does not answer at all; what still fires is left over from before.
    {
      source: page('SpecDecodeTargetDown'),
      target: [ours, matchers.not('alertname', 'SpecDecodeTargetDown')],
      equal: service,
    },
    // After a start caches are cold. Rules are quiet by themselves while it lasts, but keep_firing_for outlives a restart.
    // Not muted: acceptance, which is true from the first draft; harm, which would take acceptance with it; error budgets,
    // which are promises to users.
    {
      source: alert('SpecDecodeWarmingUp'),
      target: alerts([
        'SpecDecodeAcceptanceDropped',
        'SpecDecodeBucketsMixed',
        'SpecDecodeLatencyMeanRegression',
        'SpecDecodeLatencySpreadWidened',
        'SpecDecodeNotDrafting',
        'SpecDecodeNotPayingOff',
        'SpecDecodeP99Regression',
        'SpecDecodeSlowerThanControl',
      ]),
      equal: model,
    },
    // Harm is acceptance and latency together, and its action is the same: roll back. Time to first token is not part of
    // it, for speculation does not touch it, so alerts about that still speak.
    {
      source: alert('SpecDecodeHarmful'),
      target: alerts([
        'SpecDecodeAcceptanceCollapsed',
        'SpecDecodeAcceptanceDropped',
        'SpecDecodeAcceptanceLow',
        'SpecDecodeHeadRejected',
        'SpecDecodeLatencyMeanRegression',
        'SpecDecodeLatencySpreadWidened',
        'SpecDecodeNotPayingOff',
        'SpecDecodeP99Regression',
        'SpecDecodeSaturated',
        'SpecDecodeSlowerThanControl',
        'SpecDecodeTailCollapsed',
      ]) + [matchers.not('sli', 'ttft')],
      equal: model,
    },
    // All of the curve is gone: no part of it is news.
    {
      source: alert('SpecDecodeAcceptanceCollapsed'),
      target: alerts([
        'SpecDecodeAcceptanceDropped',
        'SpecDecodeAcceptanceLow',
        'SpecDecodeHeadRejected',
        'SpecDecodeTailCollapsed',
      ]),
      equal: model,
    },
    // Below the minimum says more than below the baseline.
    {
      source: alert('SpecDecodeAcceptanceLow'),
      target: alert('SpecDecodeAcceptanceDropped'),
      equal: model,
    },
    // The same tail, told with its mean.
    {
      source: alert('SpecDecodeP99Regression'),
      target: alert('SpecDecodeLatencySpreadWidened'),
      equal: model + ['sli'],
    },
    pageOverTicket('SpecDecodeTargetDown', service),
    pageOverTicket('SpecDecodeAcceptanceLow', model),
    pageOverTicket('SpecDecodeP99Regression', model + ['sli']),
    pageOverTicket('SpecDecodeErrorBudgetBurn', model + ['slo']),
  ]
