// Slower than the baseline. The mean shows the typical request. The share of requests beyond limits that the baseline kept
// shows the tail. Both are exact. P99 is interpolated: with vLLM's buckets, 1.3 times slower reads as anything from 1.0 to 1.9.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local slis = std.objectFields(config.slis);
  local keep_seconds = config.long_window_seconds;  // latency that goes up and down is one alert
  local level = config.level_labels + ['sli'];

  local ofSli(record, sli) = '%(record)s{sli="%(sli)s"}' % { record: record, sli: sli };
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

  local facts(sli, value) = alert.facts { title: config.slis[sli].title, value: value };
  local p99 = 'P99 is %(p99)s, and %(p99_baseline)s at baseline.' % alert.facts;
  local mean = 'The mean is %(mean)s, and %(mean_baseline)s at baseline.' % alert.facts;
  local sample = 'The sample is %(requests)s requests over %(long)s.' % alert.facts;
  local exact = 'P99 is interpolated, the share of requests is not.';
  local why = alert.ifAccepted('Acceptance is %(acceptance)s (minimum %(acceptance_min)s).' % alert.facts)
              + ' Mean acceptance length is %(acceptance_length)s.' % alert.facts;
  local beyond = '%(where)s: %(value)s of its requests exceed a limit of %(title)s that the baseline (%(baseline_source)s) kept';
  local told(sentences) = std.join(' ', sentences);

  local tail(sli, severity, shift) = {
    alert: 'SpecDecodeP99Regression',
    severity: severity,
    level: level,
    labels: { sli: sli },
    for_seconds: minutes(15),
    keep_seconds: keep_seconds,
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
    description: told([beyond % facts(sli, alert.value(alert.percent)) + '.', p99, mean, sample, exact, why]),
    impact: 'Some users wait noticeably longer than before. The typical request may be as fast as ever.',
    action: 'If acceptance fell too, treat that first. If not, look at waiting requests, KV cache and prompt lengths: load '
            + 'or traffic changed, not speculation. If the mean hardly moved, one kind of request suffers: split the traffic. If it '
            + 'began with a deployment, roll back.',
  };

  [tail(sli, 'critical', config.tail_shift_critical) for sli in config.tail_page_slis]
  + [tail(sli, 'warning', config.tail_shift_warning) for sli in slis]
  + [
    {
      alert: 'SpecDecodeLatencyMeanRegression',
      severity: 'warning',
      level: level,
      labels: { sli: sli },
      for_seconds: minutes(15),
      keep_seconds: keep_seconds,
      expr: |||
        %(ratio)s
        > %(limit)s
        and
        %(guards)s
      ||| % {
        ratio: signals.latency_ratio.by_sli[sli],
        limit: signals.mean_limit.by_sli[sli],
        guards: guards(sli),
      },
      summary: 'The typical request became slower than at baseline.',
      description: told([
        'The mean %(title)s of %(where)s is %(value)s times its baseline (%(baseline_source)s).'
        % facts(sli, alert.value(alert.two)),
        mean,
        p99,
        sample,
        why,
      ]),
      impact: 'Every user waits longer than before.',
      action: 'For time per output token, look at acceptance and batch size. For time to first token, look at waiting '
              + 'requests and prompt lengths: speculation does not affect it. If it began with a deployment, roll back.',
    }
    for sli in slis
  ]
