// Error budgets of latency objectives. Each burn rate has two windows: the long one shows that the loss matters, the short one
// that it still goes on.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  // Burn rates are multiples of the rate that spends the budget in 30 days. A rate of 14.4 for an hour spends 2 % of it.
  local burn_rates = [
    { severity: 'critical', factor: 14.4, long_seconds: 3600, short_seconds: 600 },
    { severity: 'critical', factor: 6, long_seconds: 6 * 3600, short_seconds: 1800 },
    { severity: 'warning', factor: 3, long_seconds: 24 * 3600, short_seconds: 2 * 3600 },
    { severity: 'warning', factor: 1, long_seconds: 72 * 3600, short_seconds: 6 * 3600 },
  ];
  [
    local slo = config.slos[name];
    local budget = 1 - slo.objective;
    local rows = [row for row in burn_rates if row.severity == severity];
    local share(seconds) = |||
      avg_over_time(%(slow)s{slo="%(slo)s"}[%(window)s])
      / (avg_over_time(%(all)s{slo="%(slo)s"}[%(window)s]) > 0)
    ||| % {
      slow: signals.slo_slow_requests.record,
      all: signals.slo_requests.record,
      slo: name,
      window: promql.duration(seconds),
    };
    local burns(row) = |||
      %(long)s
      > %(limit)s
      and
      %(short)s
      > %(limit)s
      and
      sum_over_time(%(all)s{slo="%(slo)s"}[%(window)s]) * %(seconds)d >= %(min_requests)d
    ||| % {
      long: promql.strip(share(row.long_seconds)),
      short: promql.strip(share(row.short_seconds)),
      limit: number(row.factor * budget),
      all: signals.slo_requests.record,
      slo: name,
      window: promql.duration(row.long_seconds),
      // Requests per second times the seconds between two samples: the requests seen, also of a young service.
      seconds: config.slow_interval_seconds,
      min_requests: config.min_requests,
    };
    {
      alert: 'SpecDecodeErrorBudgetBurn',
      severity: severity,
      level: config.level_labels + ['slo'],
      // One alert for all windows, or a loss that goes on is told once by each.
      expr: std.join('or\n', [burns(row) for row in rows]),
      for_seconds: 0,
      keep_seconds: config.long_window_seconds,
      summary: 'A latency objective uses up its error budget too fast.',
      description: ('Over %(windows)s, %(value)s of the requests of %(where)s had %(title)s above %(bound)s s; the objective '
                    + 'allows %(budget)s. At this rate, the budget of 30 days lasts at most %(days).2g days.') % alert.facts {
        windows: std.join(' or ', [promql.duration(row.long_seconds) for row in rows]),
        value: alert.value(alert.percent),
        title: config.slis[slo.sli].title,
        bound: slo.le,
        budget: alert.percentOf(budget),
        days: 30 / std.foldl(std.min, [row.factor for row in rows], rows[0].factor),
      },
      impact: 'The service will break its latency promise to users.',
      action: 'Find what is slow: acceptance (see the other alerts of the service), load, or the release. Then decide by the '
              + 'budget that is left.',
    }
    for name in std.objectFields(config.slos)
    for severity in std.set([row.severity for row in burn_rates])
  ]
