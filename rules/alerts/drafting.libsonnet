// Does it draft?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  // For three days: Alertmanager keeps context back over a weekend.
  local seconds = 3 * 86400;
  local partly = signals.partlyVerified(seconds);
  local counted = 'max without (epoch) (%s)' % promql.range('last_over_time', signals.acceptance_hour.record, seconds);
  local hasDrafted = if partly == null then counted else promql.group(counted + '\nor\n' + partly);
  local generating = '%(tokens)s >= %(min_tokens)s' % {
    tokens: signals.generation_tokens_now.record,
    min_tokens: number(config.min_generation_tokens_per_second),
  };
  local facts = alert.facts { tokens: alert.value(alert.whole) };

  [
    {
      alert: 'SpecDecodeNotDrafting',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(5),
      expr: |||
        %(generating)s
        and
        %(drafts)s == 0
        unless %(on)s
        (%(warming)s > 0.5)
        unless
        %(alternating)s
      ||| % {
        generating: generating,
        drafts: signals.drafts_now.record,
        on: on,
        warming: signals.warming.record,
        alternating: signals.alternating.expr,
      },
      summary: 'Speculation is configured, but nothing is drafted.',
      description: '%(where)s generates %(tokens)s tokens/s but drafts nothing now. Over %(long)s it made %(drafts)s drafts.'
                   % facts { drafts: alert.number(signals.drafts.record, alert.whole) },
      impact: 'The service is only as fast as without speculation, and the draft model takes memory for nothing.',
      action: 'Look for sampling parameters that switch speculation off, or for a batch size limit (dynamic k may be 0 under '
              + 'load). With n-gram lookup, check that the prompts contain text to copy.',
    },
    {
      alert: 'SpecDecodeMetricsMissing',
      severity: 'info',
      for_seconds: minutes(30),
      expr: |||
        %(generating)s
        and
        %(has_drafted)s
        unless
        %(draft_tokens)s
      ||| % {
        generating: generating,
        has_drafted: hasDrafted,
        draft_tokens: signals.draft_tokens.record,
      },
      summary: 'A service drafted within three days, but its draft counters are gone.',
      description: '%(where)s generates %(tokens)s tokens/s. It drafted within three days and has no draft counters now.'
                   % facts,
      impact: 'Speculation was switched off, or its metrics have new names. In the second case no alert about it can fire.',
      action: 'If somebody switched speculation off on purpose, silence this alert: it ends within three days. If not, '
              + 'compare arguments and release with those of before.',
    },
    {
      alert: 'SpecDecodeMetricsMissing',
      severity: 'warning',
      dashboard: config.pack_dashboard_uid,
      for_seconds: minutes(30),
      expr: signals.buckets_missing.expr,
      summary: 'A service generates tokens, but its latency histograms or their buckets are missing.',
      description: '%(where)s generates tokens. Its latency histograms, or their buckets, do not arrive.' % facts,
      impact: 'No alert about its latency can fire, and quantiles are missing.',
      action: 'Look at the scrape. With convert_classic_histograms_to_nhcb, also set always_scrape_classic_histograms (in a '
              + 'PodMonitor: scrapeClassicHistograms). No relabelling may drop _bucket.',
    },
  ]
