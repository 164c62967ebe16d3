// Does the service draft, are the drafts accepted, and are the replicas alike?
local promql = import '../promql.libsonnet';
local text = import '../text.libsonnet';

function(config, s, series)
  local number = promql.number;
  local level = config.level;
  local w(n) = config.minutes(n);
  local vllm = config.source == 'vllm';
  local enough = '%s >= %d' % [s.drafts.record, config.min_drafts];
  // Nobody hears of acceptance while speculation is measured to pay: for a page surely, and now; for a ticket over half an hour.
  local unless_it_pays_now = if vllm then '' else '\nunless avg by (%s) (%s) > 1' % [level, series.family('specdec_speedup_bound_ratio', ['bound="low"'])];
  local unless_it_pays = '\nunless %s >= %s' % [s.speedup.record, number(config.speedup.wanted)];
  local of(signal, format, what='') = text.number(signal.record + '{%s' + what + '}', format);
  local facts = 'Over %s, a step gives %s tokens.' % [w(30), of(s.length, text.two)];
  local assumed = if vllm then 'assumed' else text.where(
    'specdec_break_even_acceptance_ratio{%s, basis="measured"}', 'measured', 'assumed'
  );

  local low = {
    alert: 'SpecDecodeAcceptanceLow',
    impact: 'Answers may be slower than without speculation.',
  };
  local usual(what) = '%s{what="%s"}' % [s.acceptance_usual.record, what];
  local usually = of(s.acceptance_usual, text.percent, ', what="ratio"');
  local usually_if_known = text.where(s.acceptance_usual.record + '{%s, what="ratio"}', ' Usually, %s of draft tokens are accepted.' % usually);

  local replica = config.replica;
  local outlier(spec) = {
    alert: 'SpecDecodeReplicaOutlier',
    severity: 'warning',
    wait: 20,
    keep: 10,
    impact: 'Requests to this replica are slower than to the others.',
    action: 'Compare arguments, image and model files with another replica. Then roll its revision back, or restart the pod.',
  } + spec + { expr: promql.strip(spec.expr) + '\nand on (instance) ' + series.own_up };  // it is still there
  local who = 'Pod %s (engine {{ $labels.engine }}{{ with $labels.revision }}, revision {{ . }}{{ end }}) of %s' % [text.pod, text.model];
  // Prefill pods draft nothing, and their time per output token is 0: their role need not be asked.
  local ofReplica(what, over, least, minutes, suffixes=['', '']) = series.by('avg', replica, '%s / (%s > %d)' % [
    promql.range('increase', series.of(what, suffixes[0], role=''), w(minutes)),
    promql.range('increase', series.of(over, suffixes[1], role=''), w(minutes)),
    least,
  ]);

  [
    {
      alert: 'SpecDecodeNotDrafting',
      severity: 'warning',
      wait: 2,
      keep: 5,
      expr: '%s == 0\nand %s >= %s' % [s.drafts.record, s.tokens.record, number(config.min_tokens)],
      summary: '%s is set up to draft, and has not drafted for %s.' % [text.model, w(30)],
      description: 'The service generates %s tokens a second without a draft.' % of(s.tokens, text.whole),
      impact: 'Users get no speed-up, and the draft model takes memory for nothing.',
      action: 'Look for sampling parameters or a batch limit that switch drafts off. With n-gram, look whether prompts hold text to copy.',
    },
    low {
      severity: 'critical',
      wait: 5,
      keep: 30,  // longer than the ticket lasts
      // Half an hour of drafts lies behind it: a new service is no news. Of a long draft, a small share is enough.
      expr: |||
        (
          max_over_time(%(now)s[%(quarter)s]) < %(broken)s
          unless max_over_time(%(now)s[%(quarter)s]) * (%(length)s - 1) / %(rate)s >= %(few)s
          or %(length)s < %(least)s unless %(rate)s
        )
        and %(enough)s
        and %(drafts)s offset %(before)s > 0%(unless_it_pays_now)s
      ||| % {
        now: s.acceptance_now.record,
        quarter: w(15),
        broken: number(config.acceptance.broken),
        length: s.length.record,
        rate: s.acceptance.record,
        few: number(config.acceptance.broken_tokens),
        least: number(1 + config.acceptance.broken),
        enough: enough,
        drafts: s.drafts.record,
        before: w(25),
        unless_it_pays_now: unless_it_pays_now,
      },
      local most = 'max_over_time(%s{%%s}[%s])' % [s.acceptance_now.record, w(15)],
      summary: '%s accepts almost no draft token: %s.' % [text.model, text.where(
        most,
        'at most %s in %s' % [text.number(most, text.percent), w(15)],
        '%s tokens a step' % of(s.length, text.two),
      )],
      description: 'Draft and target do not fit.' + usually_if_known,
      action: 'Roll back the last change of draft model, target or quantisation.',
    },
    low {
      severity: 'warning',
      reason: 'low',
      wait: 8,
      keep: 10,
      // An exporter of before knows one break-even for all loads and lengths: there, a step of 2.5 tokens is no ticket.
      expr: |||
        %(rate)s < %(margin)s * %(min)s
        and quantile_over_time(0.5, %(now)s[%(half)s]) < %(min)s
        and %(enough)s%(unless_it_pays)s%(by_load)s
      ||| % {
        by_load: if vllm then '' else '\nand on (%s) (%s < %s or %s)' % [
          level,
          s.length.record,
          number(config.low.length),
          series.family('specdec_policy_acceptance_ratio_watch'),
        ],
        rate: s.acceptance.record,
        margin: number(config.low.break_even),
        min: s.acceptance_min.record,
        now: s.acceptance_now.record,
        half: w(30),
        enough: enough,
        unless_it_pays: unless_it_pays,
      },
      summary: '%s accepts %s of its draft tokens; break-even is %s (%s).' % [text.model, text.value(text.percent), of(s.acceptance_min, text.percent), assumed],
      description: facts + usually_if_known,
      action: 'If acceptance fell, find what changed. If not, measure whether drafts pay: specdec-exporter compare.',
    },
    low {
      severity: 'warning',
      reason: 'fell',
      wait: 15,
      keep: 15,
      // Of longer drafts a smaller share is accepted, and no token less. Drafts of one request are alike: those of few tell little.
      expr: |||
        %(rate)s < ignoring (what) %(fell)s * %(usual)s
        and %(now)s < ignoring (what) %(nearly)s * %(usual)s
        unless %(length)s > ignoring (what) %(shorter)s * %(usual_length)s
        and %(enough)s
        unless %(requests)s < %(few)d%(other)s
      ||| % {
        rate: s.acceptance.record,
        now: s.acceptance_now.record,
        fell: number(config.low.usual),
        nearly: number(config.low.usual + 0.05),
        usual: usual('ratio'),
        length: s.length.record,
        usual_length: usual('length'),
        shorter: number(config.low.usual_length),
        enough: enough,
        requests: s.requests.record,
        few: config.low.requests,
        other: if vllm then '' else '\nunless on (%s) %s' % [config.service, series.family('specdec_data_problem', ['reason="baseline_other_method"'])],
      },
      summary: '%s accepts %s of its draft tokens; usually %s.' % [text.model, text.value(text.percent), usually],
      description: facts,
      impact: 'Answers are slower than before.',
      action: 'Find what changed when acceptance fell: prompts, temperature, adapter, release, quantisation.',
    },
    // Whatever pays here: for boards. The Alertmanager fragment sends it to nobody.
    low {
      severity: 'info',
      wait: 5,
      keep: 10,
      expr: '%s < %s\nand %s' % [s.acceptance.record, number(config.low.break_even * config.acceptance.flag), enough],
      summary: '%s accepts %s of its draft tokens, which may still pay off.' % [text.model, text.value(text.percent)],
      description: facts,
      impact: 'None is known. At light load, published services gain at lower rates.',
      action: 'Nothing. To know whether drafts pay, measure: specdec-exporter compare.',
    },
    // With n alike, the service itself is 1/n of what it is held against.
    outlier({
      reason: 'poor_drafts',
      expr: |||
        %(own)s
        < on (%(level)s) group_left () (%(rate)s - %(gap)s * (1 - 1 / (%(engines)s > 1)))
      ||| % {
        own: ofReplica('accepted_tokens', 'draft_tokens', 2 * config.min_drafts, 30),
        level: level,
        rate: s.acceptance.record,
        gap: number(config.acceptance.outlier),
        engines: s.engines.record,
      },
      summary: who + ' accepts %s of its draft tokens.' % text.value(text.percent),
      description: 'Over %s, the whole service accepts %s.' % [w(30), of(s.acceptance, text.percent)],
    }),
    outlier({
      reason: 'no_drafts',
      wait: 30,
      expr: '%s\nand on (%s) %s' % [
        series.by('max', replica, '%s > %s unless %s > 0' % [
          promql.range('rate', series.of('generation_tokens'), w(30)),
          number(config.min_tokens),
          promql.range('increase', series.of('drafts'), w(30)),
        ]),
        level,
        enough,
      ],
      summary: who + ' does not draft; others do.',
      description: 'Over %s, the pod generated %s tokens a second. Its --speculative-config may be missing.' % [w(30), text.value(text.whole)],
    }),
    // The first minutes after a start are slow: they leave the window before the wait is over.
    outlier({
      reason: 'slow',
      wait: 30,
      expr: |||
        %(own)s
        > on (%(level)s) group_left () (%(mean)s * ignoring (sli, stat) (%(times)s / (1 + %(part)s / (%(engines)s > 1))))
      ||| % {
        own: ofReplica('tpot', 'tpot', config.outlier.requests, 20, ['_sum', '_count']),
        level: level,
        times: number(config.outlier.latency),
        part: number(config.outlier.latency - 1),
        mean: s.latency.record + '{sli="tpot", stat="mean"}',
        engines: s.engines.record,
      },
      summary: who + ' is slow: %s a token.' % text.value(text.seconds),
      description: 'Over %s, the whole service takes %s.' % [w(30), of(s.latency, text.seconds, ', sli="tpot", stat="mean"')],
      action: 'Look at its GPU: clocks, temperature, ECC, neighbours. If the pod stays slow, drain it.',
    }),
  ]
