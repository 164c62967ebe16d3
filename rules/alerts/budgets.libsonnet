// Error budgets of latency objectives, by several windows each: the long one says that it matters, the short one that it
// goes on.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  [
    local slo = config.slos[name];
    local budget = 1 - slo.objective;
    local share(seconds) = |||
      avg_over_time(%(slow)s{slo="%(slo)s"}[%(window)s])
      / (avg_over_time(%(all)s{slo="%(slo)s"}[%(window)s]) > 0)
    ||| % {
      slow: signals.slo_slow_requests.record,
      all: signals.slo_requests.record,
      slo: name,
      window: promql.duration(seconds),
    };
    {
      alert: 'SpecDecodeErrorBudgetBurn',
      severity: row.severity,
      labels: { long_window: promql.duration(row.long_seconds) },
      level: config.level_labels + ['slo'],
      expr: |||
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
        // A rate, recorded so often: requests that were seen, however young the service is.
        seconds: config.slow_interval_seconds,
        min_requests: config.min_requests,
      },
      for_seconds: 0,
      keep_seconds: row.short_seconds / 2,
      summary: 'A latency objective loses its error budget too fast.',
      description: '%s of the requests of %s had more than %s s of %s over %s; the objective allows %s, so 30 days of budget '
                   % [
                     alert.value(alert.percent),
                     alert.where,
                     slo.le,
                     config.slis[slo.sli].title,
                     promql.duration(row.long_seconds),
                     alert.percentOf(budget),
                   ]
                   + 'last %.2g days at most.' % (30 / row.factor),
      impact: 'The promise made to users about latency will be broken.',
      action: 'Find what is slow: acceptance (the other alerts of the service), load, or the release. Then decide by how much '
              + 'budget is left.',
    }
    for name in std.objectFields(config.slos)
    for row in config.slo_burn_rates
  ]
