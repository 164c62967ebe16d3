// Does it draft?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local generating = '%(tokens)s >= %(min_tokens)s' % {
    tokens: signals.generation_tokens_now.record,
    min_tokens: number(signals.generation_tokens_now.least),
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
  ]
