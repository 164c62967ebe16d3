// Slower than the baseline. The body is seen by the mean and the tail by the share of requests beyond limits that used to
// hold; both are exact. P99 itself is interpolated: with vLLM's buckets 1.3 times slower reads as anything from 1.0 to 1.9.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local long = promql.duration(config.long_window_seconds);
  local on = 'on (%s)' % promql.list(config.level_labels);
  local slis = std.objectFields(config.slis);
  local level = config.level_labels + ['sli'];

  local ofSli(record, sli) = '%s{sli="%s"}' % [record, sli];
  local guards(sli) = |||
    %(requests)s >= %(min_requests)d
    unless %(on)s
    (%(unsettled)s)
  ||| % {
    requests: ofSli(signals.requests.record, sli),
    min_requests: config.min_requests,
    on: on,
    unsettled: signals.unsettled.expr,
  };

  local source = alert.label(signals.latency_baseline.record, 'baseline_source', 'sli');
  local mean = 'mean %s, %s at baseline' % [
    alert.number(signals.latency_mean.record, alert.seconds, 'sli'),
    alert.number(signals.latency_baseline.record, alert.seconds, 'sli'),
  ];
  local p99 = 'P99 %s, %s at baseline' % [
    alert.number(signals.latency_quantile.record, alert.seconds, 'p99'),
    alert.number(signals.p99_baseline.record, alert.seconds, 'sli'),
  ];
  local requests = '%s requests' % alert.number(signals.requests.record, alert.whole, 'sli');
  local why = 'Acceptance is %s (minimum %s), mean acceptance length %s' % [
    alert.number(signals.acceptance.record, alert.percent),
    alert.number(signals.acceptance_min.record, alert.percent),
    alert.number(signals.acceptance_length.record, alert.two),
  ];

  local tail(sli, severity, shift) = {
    alert: 'SpecDecodeP99Regression',
    severity: severity,
    level: level,
    labels: { sli: sli },
    for_seconds: minutes(15),
    keep_seconds: minutes(15),
    expr: |||
      %(shift)s
      > clamp_min(
        %(margin)s,
        %(limit)s
      )
      and
      %(guards)s
    ||| % {
      shift: ofSli(signals.tail_shift.record, sli),
      margin: promql.indent(signals.tail_margin.by_sli[sli]),
      limit: number(shift),
      guards: guards(sli),
    },
    summary: 'The slowest requests became slower than at baseline.',
    description: '%s more of the requests of %s than usual are slower in %s than a limit that held at baseline (%s): %s; '
                 % [alert.value(alert.percent), alert.where, config.slis[sli].title, source, p99]
                 + '%s (%s over %s; P99 is interpolated, the share is not). %s.' % [mean, requests, long, why],
    impact: 'Some users wait noticeably longer than before; the typical request may be as fast as ever.',
    action: 'If acceptance fell with it, treat that first. If not, look at waiting requests, KV cache and prompt lengths: '
            + 'then load or mix changed, not speculation. If it began with a deployment, roll back.',
  };

  [tail(sli, 'critical', config.tail_shift_critical) for sli in slis]
  + [tail(sli, 'warning', config.tail_shift_warning) for sli in slis]
  + [
    {
      alert: 'SpecDecodeLatencyMeanRegression',
      severity: 'warning',
      level: level,
      labels: { sli: sli },
      for_seconds: minutes(15),
      keep_seconds: minutes(15),
      expr: |||
        %(ratio)s
        > clamp_min(
          1 + %(margin)s,
          %(limit)s
        )
        and
        %(guards)s
      ||| % {
        ratio: signals.latency_ratio.by_sli[sli],
        margin: promql.indent(signals.mean_margin.by_sli[sli]),
        limit: number(config.latency_mean_ratio),
        guards: guards(sli),
      },
      summary: 'The typical request became slower than at baseline.',
      description: 'Mean %s of %s is %s times its baseline (%s): %s; %s (%s over %s). %s.' % [
        config.slis[sli].title,
        alert.where,
        alert.value(alert.two),
        source,
        mean,
        p99,
        requests,
        long,
        why,
      ],
      impact: 'Every user waits longer than before.',
      action: 'Time per output token: look at acceptance and batch size. Time to first token: look at waiting requests and '
              + 'prompt lengths, which speculation does not touch. If it began with a deployment, roll back.',
    }
    for sli in slis
  ]
  + [
    {
      alert: 'SpecDecodeLatencySpreadWidened',
      severity: 'info',
      level: level,
      labels: { sli: sli },
      for_seconds: minutes(30),
      expr: |||
        %(shift)s
        > clamp_min(
          %(margin)s,
          %(limit)s
        )
        and
        %(ratio)s < %(mean_limit)s
        and
        %(guards)s
      ||| % {
        shift: ofSli(signals.tail_shift.record, sli),
        margin: promql.indent(signals.tail_margin.by_sli[sli]),
        limit: number(config.tail_shift_warning),
        ratio: signals.latency_ratio.by_sli[sli],
        mean_limit: number(config.spread_mean_ratio),
        guards: guards(sli),
      },
      summary: 'A few requests became much slower while the typical one did not.',
      description: '%s more of the requests of %s than usual are slower in %s than a limit that held at baseline (%s), '
                   % [alert.value(alert.percent), alert.where, config.slis[sli].title, source]
                   + 'while the mean hardly moved: %s; %s (%s over %s).' % [mean, p99, requests, long],
      impact: 'One kind of request suffers: long prompts, one language, one client.',
      action: 'Split the traffic: route what drafts badly to a service without speculation, or give it its own k.',
    }
    for sli in slis
  ]
