// Does speculation help? These alerts compare with a service without speculation where there is one.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local drafting = '%(drafts)s >= %(min_drafts)d' % {
    drafts: signals.sample.record,
    min_drafts: config.alert_min_drafts,
  };

  // The service drafts, and its window holds no slow first requests after a start.
  local settled = promql.strip(|||
    (%(drafting)s)
    unless %(on)s
    %(unsettled)s
  ||| % { drafting: drafting, on: on, unsettled: signals.unsettled.record });

  // The exporter leaves the first minute of a process out of what it measures at like load, so that need not wait as long.
  local harm_settled = promql.strip(|||
    (%(drafting)s)
    unless %(on)s
    (%(unsettled)s unless %(on)s %(at_like_load)s or %(warming)s >= 0.5)
  ||| % {
    drafting: drafting,
    on: on,
    unsettled: signals.unsettled.record,
    at_like_load: signals.speedup.record + '{speedup_source="like_load"}',
    warming: signals.warming.record,
  });

  // A slowdown that is over. Where the exporter compares at like load, less load makes nothing look better.
  local over = promql.strip(|||
    (
      (
        %(tpot)s
        or
        %(e2e)s
        unless %(on)s
        %(mean)s{sli="tpot"}
      )
      unless %(on)s
      %(at_like_load)s
    )
  ||| % {
    tpot: promql.indent(signals.faster_lately.by_sli.tpot, 4),
    e2e: promql.indent(signals.faster_lately.by_sli.e2e, 4),
    on: on,
    mean: signals.latency_mean.record,
    at_like_load: signals.speedup_at_like_load.expr,
  });

  local facts = alert.facts { value: alert.value(alert.two) };
  local mean = alert.ifThereIs(
    signals.latency_baseline.record,
    'The mean time per output token is %(mean)s, and %(mean_baseline)s in %(baseline_source)s. ' % facts,
    '',
    'tpot',
  );

  [
    {
      alert: 'SpecDecodeHarmful',
      severity: 'critical',
      for_seconds: minutes(5),  // no longer than P99Regression, which it silences
      keep_seconds: config.long_window_seconds + minutes(5),  // longer than what it silences: no ticket follows the page
      expr: signals.speedup_harms.record + '\nand\n' + harm_settled + '\nunless ' + on + '\n' + over,
      summary: 'Speculative decoding makes the service slower.',
      // A whole request, where nothing tells the time of a token: answers may be longer.
      description: alert.ifThereIs(
                     signals.latency_mean.record,
                     'Decoding',
                     alert.ifThereIs(signals.speedup.record, 'Decoding', 'A request', 'tpot'),
                     'tpot'
                   )
                   + ' on %(where)s takes %(value)s times as long as ' % facts
                   + alert.ifThereIs(signals.speedup.record, 'its baseline without speculation', 'its baseline') + '. '
                   + facts.speedup + ' ' + mean + facts.judged,
      impact: 'Every user waits longer, and the accelerator does wasted work.',
      action: 'Roll back to the last good --speculative-config, now. If the speed-up is measured, you may as well remove it. '
              + 'Investigate afterwards.',
    },
    {
      alert: 'SpecDecodeNotPayingOff',
      severity: 'warning',
      for_seconds: minutes(60),
      keep_seconds: minutes(15),
      expr: signals.speedup_pays_not.record + '\nand\n' + settled,
      summary: 'Speculative decoding gives no speed-up over the baseline without it.',
      description: 'Speculation does not pay on %(where)s. ' % facts + facts.speedup
                   + ' At least %s is wanted. ' % number(config.policy.latency.speedup_min) + mean + facts.judged,
      impact: 'The draft model costs memory, start-up time and risk for nothing.',
      action: 'If tokens per step are near 1, drafts are rare or rejected: lower num_speculative_tokens, or switch '
              + "speculation off for this traffic. If they are well above 1, each step costs too much: compare at today's "
              + 'batch size (specdec-exporter compare), and look at the cost of the draft model.',
    },
  ]
