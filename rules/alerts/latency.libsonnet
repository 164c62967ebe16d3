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
    local branch(what, expr, other) = |||
      %(labelled)s
      unless %(on)s
      ALERTS{alertname="SpecDecodeP99Regression", alertstate="firing", severity="%(severity)s", what="%(other)s"}
    ||| % {
      labelled: promql.withLabel('max without (sli) (\n  %s\n)' % promql.indent(expr), 'what', what),
      on: on,
      severity: severity,
      other: other,
    };
    branch('mean', mean, 'tail') + 'or ' + on + '\n' + branch('tail', tail, 'mean');
  // Prefill makes the first token, and speculation does not touch it: it is a ticket only. So is a whole request that takes
  // longer where each of its tokens does not: answers may be longer.
  local paged = '{sli=~"e2e|tpot"}';
  // Nearly all of the last quarter of an hour. A new pod is slow for less than that, and meanwhile the alert waits. Of a new
  // service, nobody knows the load yet.
  local much_slower = |||
    (
      %(now)s > %(limit)s
      unless %(on)s
      %(ratio)s{sli="tpot"} < %(limit)s
    )
    and %(on_sli)s
    %(slower)s
    and %(on_sli)s
    %(requests)s%(ago)s >= %(min_requests)d
    unless %(on)s
    (%(warming)s >= 0.5)
  ||| % {
    now: promql.range('quantile_over_time', '0.1, ' + signals.latency_ratio_now.record + paged, minutes(15)),
    limit: number(config.policy.latency.harmful_ratio),
    ratio: signals.latency_ratio_now.record,
    on: on,
    on_sli: on_sli,
    slower: signals.slower.record,
    requests: requests,
    ago: promql.offset(minutes(25)),
    min_requests: config.min_requests,
    warming: signals.warming.record,
  };

  // For people: it is interpolated. The alert goes by the share.
  local p99(sli) = ('P99 is {{ with printf "histogram_quantile(0.99, sum by (le) (rate(specdec_%(family)s_seconds_bucket%%s[%(long)s])))" '
                    + '$service | query }}{{ . | first | value | %(seconds)s }}{{ else }}unknown{{ end }}. ') % {
    family: config.slis[sli].family,
    long: alert.facts.long,
    seconds: alert.seconds,
  };
  local about(sli) =
    local of(record, format, over='') = alert.number(record, format, sli);
    local said = {
      title: config.slis[sli].title,
      mean: of(signals.latency_mean.record, alert.seconds),
      ratio: of(ratio, alert.two),
      now: of(signals.latency_ratio_now.record, alert.two),
      short: alert.facts.short,
      share: of(shift, alert.percent),
      p99: if config.source == 'vllm' then '' else p99(sli),
    };
    alert.ifThereIs(
      ratio,
      'The mean %(title)s is %(mean)s: %(ratio)s times its baseline, and %(now)s times in the last %(short)s. '
      % said,
      '',
      sli,
      ' > 1.1'
    )
    + alert.ifThereIs(
      signals.tail_longer.record,
      'On top of the usual few, %(share)s of the requests exceed a limit of %(title)s that the baseline kept. %(p99)s' % said,
      '',
      sli
    );
  local facts = alert.facts;
  local description =
    ('{{ if eq $labels.what "mean" }}On average, requests{{ else }}Some requests{{ end }} to %(where)s take '
     + '{{ if eq $labels.what "tail" }}much {{ end }}longer than at baseline. ') % facts
    + std.join('', [about(sli) for sli in std.objectFields(config.slis)])
    + 'It is compared with %s. ' % alert.against(signals.latency_baseline.record, 'baseline_source', 'service')
    + 'Over %(long)s there were %(most)s requests. ' % facts { most: alert.aggregated('max', requests, alert.whole) }
    + facts.paying + ' ' + alert.ifAccepted('Acceptance is %(acceptance)s.' % facts);

  local regression(severity, for_seconds, keep_seconds, expr) = {
    alert: 'SpecDecodeP99Regression',
    severity: severity,
    level: config.level_labels + ['what'],
    for_seconds: for_seconds,
    keep_seconds: keep_seconds,
    expr: expr,
    summary: 'Requests became slower than at baseline.',
    description: description,
    impact: 'Users wait longer than before. The description says whether all do or only some.',
    action: 'If it began with a deployment, roll back. If acceptance fell too, treat that first. If not, look at waiting '
            + 'requests, KV cache and prompt lengths: load or traffic changed, not speculation. If the mean hardly moved, one '
            + 'kind of request suffers: split the traffic.',
  };

  local unless_unsettled = '\nunless ' + on + '\n' + signals.unsettled.record;
  local longer = signals.tail_longer.record;
  local longest_tail = '%(least)s > %(critical)s\nand %(on_sli)s\n%(longer)s' % {
    least: promql.range('min_over_time', shift + paged, minutes(10)),
    critical: number(config.policy.latency.tail_shift_critical),
    on_sli: on_sli,
    longer: signals.tail_lasting.record,
  };
  local slower = '(\n  %(slower)s\n  or\n  %(lately)s\n  and %(on_sli)s\n  %(longer)s\n)' % {
    slower: signals.slower.record,
    lately: promql.indent(signals.slower_lately.expr),
    on_sli: on_sli,
    longer: longer,
  };

  [
    // Latency that goes up and down is one alert. The ticket goes by half an hour as it is, and must not follow the page.
    regression('critical', minutes(5), config.long_window_seconds, one('critical', much_slower, longest_tail + unless_unsettled)),
    regression('warning', minutes(15), minutes(5), promql.group(one('warning', slower, longer)) + unless_unsettled),
  ]
