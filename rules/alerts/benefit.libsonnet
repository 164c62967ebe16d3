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

  local facts = alert.facts { value: alert.value(alert.two) };
  local mean = alert.ifThereIs(
    signals.latency_baseline.record,
    'The mean is %(mean)s, and %(mean_baseline)s at baseline (%(baseline_source)s). ' % facts,
    '',
    'sli',
  );

  [
    {
      alert: 'SpecDecodeHarmful',
      severity: 'critical',
      level: config.level_labels + ['sli'],
      for_seconds: minutes(15),
      keep_seconds: config.long_window_seconds,  // as the latency alerts that it silences
      // Measured at the load that there is, at any acceptance. Otherwise low acceptance is the reason why a slow service is
      // slow because of its drafts, unless a measurement contradicts.
      expr: |||
        (
          1 / max without (speedup_source) (%(harms)s)
          or %(on)s
          (
            %(ratio)s{sli="tpot"} or %(ratio)s{sli="e2e"} unless %(on)s %(mean)s{sli="tpot"}
          )
          > %(limit)s
          and %(on_sli)s
          %(requests)s >= %(min_requests)d
          and %(on)s
          %(acceptance)s < %(minimum)s
          unless %(on)s
          (%(like_load)s or %(on)s %(pays)s)
        )
        and %(on)s
        %(settled)s
      ||| % {
        harms: signals.speedup_harms.record,
        on: on,
        on_sli: 'on (%s, sli)' % promql.list(config.level_labels),
        // Against a baseline of any source. Decoding speed: time per output token, or end-to-end latency of releases that do not
        // have it (before 0.11.0).
        ratio: signals.latency_ratio.record,
        mean: signals.latency_mean.record,
        limit: number(config.policy.latency.harmful_ratio),
        requests: signals.requests.record,
        min_requests: config.min_requests,
        acceptance: signals.acceptance.record,
        minimum: signals.acceptance_min.record,
        like_load: signals.speedup_at_like_load.expr,
        pays: signals.speedup_pays.record,
        settled: settled,
      },
      summary: 'Speculative decoding makes the service slower.',
      description: 'Decoding on %(where)s takes %(value)s times as long as ' % facts
                   + alert.ifThereIs(signals.speedup.record, 'its baseline without speculation', 'its baseline') + '. '
                   + facts.speedup + ' ' + mean + facts.judged,
      impact: 'Every user waits longer, and the accelerator does wasted work.',
      action: 'Roll back to the last good --speculative-config, now. If the speed-up is measured, you may as well remove it. '
              + 'Investigate afterwards.',
    },
    {
      alert: 'SpecDecodeNotPayingOff',
      severity: 'warning',
      level: config.level_labels + ['sli'],
      for_seconds: minutes(60),
      keep_seconds: minutes(15),
      expr: 'max without (speedup_source) (%s)' % signals.speedup_pays_not.record + '\nand ' + on + '\n' + settled,
      summary: 'Speculative decoding gives no speed-up over the baseline without it.',
      description: 'Speculation does not pay on %(where)s. ' % facts + facts.speedup
                   + ' At least %s is wanted. ' % number(config.policy.latency.speedup_min) + mean + facts.judged,
      impact: 'The draft model costs memory, start-up time and risk for nothing.',
      action: 'If tokens per step are near 1, drafts are rare or rejected: lower num_speculative_tokens, or switch '
              + "speculation off for this traffic. If they are well above 1, each step costs too much: compare at today's "
              + 'batch size (specdec-exporter compare), and look at the cost of the draft model.',
    },
  ]
