// Slower than the baseline: one alert for a service, whichever latencies it has. The mean tells that requests take longer on
// the whole. The share of requests beyond limits that the baseline kept tells that some do. Both are exact. P99 is
// interpolated: with vLLM's buckets, 1.3 times slower reads as anything from 1.0 to 1.9.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local on_sli = 'on (%s, sli)' % promql.list(config.level_labels);
  local ratio = signals.latency_ratio.record;
  local shift = signals.tail_shift.record;
  local requests = signals.requests.record;

  // One series per service. Where everybody is slower, the tail is longer, too. What fires goes on as it is: one slowdown is
  // one alert.
  local one(severity, mean, tail) =
    local told(what) = 'ALERTS{alertname="SpecDecodeP99Regression", alertstate="firing", severity="%s", what="%s"}' % [severity, what];
    local branch(what, expr, other) =
      promql.withLabel('max without (sli) (\n  %s\n)' % promql.indent(expr), 'what', what) + '\nunless %s\n%s' % [on, told(other)];
    branch('mean', mean, 'tail') + '\nor ' + on + '\n' + branch('tail', tail, 'mean');
  local tail(share, limit, matchers='') = '%s > clamp_min(%s, %s)' % [
    share,
    signals.tail_margin.expr + matchers,
    number(limit),
  ];
  local enough(matchers='') = '%s%s >= %d' % [requests, matchers, config.min_requests];

  // Prefill makes the first token, and speculation does not touch it: it is a ticket only. So is a whole request that takes
  // longer where each of its tokens does not: answers may be longer.
  local paged = '{sli=~"e2e|tpot"}';
  local lately(quantile, record, matchers) = 'quantile_over_time(%s, %s%s[%s])' % [
    number(quantile),
    record,
    matchers,
    promql.duration(minutes(15)),
  ];
  local much_slower = |||
    (
      %(now)s > %(limit)s
      unless %(on)s
      %(ratio)s{sli="tpot"} < %(limit)s
    )
    and %(on_sli)s
    (%(slower)s)
    and %(on_sli)s
    %(enough)s
    and %(on_sli)s
    %(requests)s%(ago)s
  ||| % {
    requests: requests,
    ago: promql.offset(minutes(25)),  // of a new service, nobody knows the load yet
    // Nearly all of the last quarter of an hour. A new pod is slow for less than that, and meanwhile the alert waits.
    now: lately(0.1, signals.latency_ratio_now.record, paged),
    limit: number(config.policy.latency.harmful_ratio),
    ratio: signals.latency_ratio_now.record,
    on: on,
    on_sli: on_sli,
    slower: promql.indent(signals.slower.expr),
    enough: enough(),
  };

  local when(what, text, otherwise) = '{{ if eq $labels.what "%s" }}%s{{ else }}%s{{ end }}' % [what, text, otherwise];
  local about(sli) =
    local title = config.slis[sli].title;
    local of(record, format, over='') = alert.number(record, format, sli);
    alert.ifThereIs(ratio, 'The mean %s is %s, %s times that of its baseline (%s), and %s times over the last %s. ' % [
      title,
      of(signals.latency_mean.record, alert.seconds),
      of(ratio, alert.two),
      of(signals.latency_baseline.record, alert.seconds),
      of(signals.latency_ratio_now.record, alert.two),
      promql.duration(config.short_window_seconds),
    ], '', sli, ' > 1.1')
    + alert.ifThereIs(shift, '%s more of the requests than usual exceed a limit of %s that the baseline kept. ' % [
      of(shift, alert.percent),
      title,
    ], '', sli, ' > 0.005');
  local facts = alert.facts;
  local description =
    when(
      'mean',
      'On average, requests to %(where)s take longer than at baseline. ' % facts,
      'Some requests to %(where)s take much longer than at baseline. ' % facts
    )
    + std.join('', [about(sli) for sli in std.objectFields(config.slis)])
    + 'The baseline is %s. ' % alert.label(signals.latency_baseline.record, 'baseline_source', 'service')
    + 'Over %(long)s there were %(most)s requests. ' % facts { most: alert.aggregated('max', requests, alert.whole) }
    + alert.ifAccepted('Acceptance is %(acceptance)s (minimum %(acceptance_min)s).' % facts)
    + ' Mean acceptance length is %(acceptance_length)s.' % facts;

  local regression(severity, for_seconds, expr) = {
    alert: 'SpecDecodeP99Regression',
    severity: severity,
    level: config.level_labels + ['what'],
    for_seconds: for_seconds,
    keep_seconds: config.long_window_seconds,  // latency that goes up and down is one alert
    expr: expr,
    summary: 'Requests became slower than at baseline.',
    description: description,
    impact: when(
      'mean', 'Most users wait longer than before, or some by very much.', 'The slowest requests take noticeably longer.'
    ),
    action: 'If it began with a deployment, roll back. If acceptance fell too, treat that first. If not, look at waiting '
            + 'requests, KV cache and prompt lengths: load or traffic changed, not speculation. '
            + when('mean', '', 'One kind of request may suffer: split the traffic.'),
  };

  local unsettled = '\nunless %s\n%s' % [on, promql.group(signals.unsettled.expr)];
  local long_tail = tail(shift, config.policy.latency.tail_shift_min) + '\nand %s\n%s' % [on_sli, enough()];
  local longest_tail =
    tail('min_over_time(%s%s[%s])' % [shift, paged, promql.duration(minutes(10))], config.policy.latency.tail_shift_critical)
    + '\nand %s\n%s' % [on_sli, enough()];
  local slower = '%(slower)s\nand %(on_sli)s\n(%(enough)s or %(requests)s >= 30 and %(on_sli)s %(ratio)s > 2)' % {
    slower: signals.slower.expr,
    on_sli: on_sli,
    enough: enough(),
    requests: requests,  // a big effect needs few of them
    ratio: ratio,
  };

  [
    regression('critical', minutes(5), one(
      'critical',
      promql.strip(much_slower) + '\nunless %s\n(%s >= 0.5)' % [on, signals.warming.record],
      longest_tail + unsettled
    )),
    regression('warning', minutes(15), one(
      'warning',
      promql.group(slower + '\nor\n' + signals.slower_lately.expr + '\nand ' + on_sli + '\n' + promql.group(long_tail)) + unsettled,
      long_tail + unsettled,
    )),
  ]
