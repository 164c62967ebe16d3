// Does speculation help, is the service slower than at baseline, and does its load fit?
local promql = import '../promql.libsonnet';
local text = import '../text.libsonnet';

function(config, s, series)
  local number = promql.number;
  local level = config.level;
  local w(n) = config.minutes(n);
  local vllm = config.source == 'vllm';
  local drafting = '%s >= %d' % [s.drafts.record, config.min_drafts];
  local requests = '%s >= %d' % [s.requests.record, config.min_requests];
  local of(signal, format, what='') = text.number(signal.record + '{%s' + what + '}', format);

  // The measured speed-up is below a limit by more than chance explains.
  local below(limit) = |||
    %(speedup)s < %(limit)s
    and %(drafting)s
    and %(requests)s%(chance)s
  ||| % {
    speedup: s.speedup.record,
    limit: number(limit),
    drafting: drafting,
    requests: requests,
    chance: if vllm then '' else '\nunless %s >= %s' % [s.measured('specdec_speedup_bound_ratio', ['bound="high"']), number(limit)],
  };
  local accepted = 'Over %s, %s of the draft tokens were accepted: %s tokens a step.' % [
    w(30),
    of(s.acceptance, text.percent),
    of(s.length, text.two),
  ];

  // "time per token 31ms (was 20ms), ", where there is a baseline.
  local against(title, sli, stat) =
    local labels = ', sli="%s", stat="%s"' % [sli, stat];
    text.where(s.baseline.record + '{%s' + labels + '}', '%s %s (was %s), ' % [
      title,
      of(s.latency, text.seconds, labels),
      of(s.baseline, text.seconds, labels),
    ]);
  local slower = {
    alert: 'SpecDecodeP99Regression',
    description: 'Over %s: ' % w(30)
                 + against('time per token', 'tpot', 'mean') + against('P99', 'tpot', 'p99') + against('first token', 'ttft', 'mean')
                 + '%s requests. Baseline: %s.' % [of(s.requests, text.whole), text.label(s.ratio.record + '{%s, stat="mean"}', 'source')],
    impact: 'Users wait longer than before.',
  };
  local more_are_slow(before) = text.where(
    s.tail.record + '{%s} > ' + number(config.tail.ticket), before + '%s more requests are slow' % of(s.tail, text.percent)
  );
  local load = { alert: 'SpecDecodeLoadTooHigh', severity: 'warning', wait: 15, keep: 10 };

  [
    {
      alert: 'SpecDecodeHarmful',
      severity: 'critical',
      wait: 10,
      keep: 30,
      expr: below(config.speedup.harmful),
      summary: 'Speculation makes %s slower: measured speed-up %s.' % [text.model, text.value(text.two)],
      description: accepted,
      impact: 'Every user waits longer, and the accelerator does wasted work.',
      action: 'Switch speculation off now, or roll back to the last good --speculative-config. Find the cause afterwards.',
    },
    {
      alert: 'SpecDecodeNotPayingOff',
      severity: 'warning',
      wait: 60,
      keep: 15,
      expr: below(config.speedup.wanted),
      summary: 'Speculation does not pay on %s: measured speed-up %s, wanted %s.' % [text.model, text.value(text.two), number(config.speedup.wanted)],
      description: accepted,
      impact: 'The draft model costs memory, start-up time and risk for nothing.',
      action: 'Nothing tonight. By day, measure other k and no speculation at this load: specdec-exporter compare.',
    },
    slower {
      severity: 'critical',
      wait: 10,
      keep: 30,  // longer than the ticket lasts
      // A tail of minutes that are over is long in the window.
      expr: |||
        max by (%(level)s) (
          %(ratio)s{sli="tpot", stat="mean"} > %(slower)s and %(now)s > %(now_slower)s
          or on (%(level)s) %(tail)s > %(tail_page)s and on (%(level)s) %(now)s > %(lasting)s * %(ratio)s{sli="tpot"}
        )
        and %(requests)s
        and %(settled)s >= %(least_settled)s
        and %(drafts)s > 0
      ||| % {
        level: level,
        ratio: s.ratio.record,
        slower: number(config.slower.ratio),
        now_slower: number(config.slower.now),
        now: s.ratio_now.record,
        lasting: number(config.slower.lasting),
        tail: s.tail.record,
        tail_page: number(config.tail.page),
        requests: requests,
        settled: s.settled.record,
        least_settled: number(config.slower.settled),
        drafts: s.drafts.record,
      },
      summary: '%s is much slower: a token takes %s times as long as at baseline%s.' % [
        text.model,
        of(s.ratio, text.two, ', sli="tpot", stat="mean"'),
        more_are_slow(', and '),
      ],
      action: 'Roll back what was deployed when the slowdown began. If nothing was deployed, add replicas.',
    },
    slower {
      severity: 'warning',
      wait: 15,
      // By chance, few requests are slow. Beyond a boundary, a few of them say nothing.
      expr: |||
        max by (%(level)s) (
          %(ratio)s{stat="mean"} > on (%(level)s) group_left () clamp_min(1 + %(chance)d / sqrt(%(requests)s >= %(least)d), %(ticket)s)
          or on (%(level)s) %(tail)s > clamp_min(%(few)d / %(requests)s, %(tail_ticket)s)
        )
        and %(drafts)s > 0
      ||| % {
        level: level,
        ratio: s.ratio.record,
        requests: s.requests.record,
        least: config.slower.requests,
        ticket: number(config.slower.ratio),
        tail: s.tail.record,
        tail_ticket: number(config.tail.ticket),
        chance: config.slower.chance,
        few: config.slower.tail_requests,
        drafts: s.drafts.record,
      },
      summary: '%s is slower than at baseline: %s.' % [
        text.model,
        local most = 'topk(1, %s{%%s, stat="mean"})' % s.ratio.record;
        text.where(
          '%s > %s' % [most, number(config.slower.ratio)],
          '%s takes %s times as long' % [
            '{{ with printf "%s" $s | query }}{{ if eq (. | first | label "sli") "ttft" }}the first token{{ else }}a token{{ end }}{{ end }}'
            % std.strReplace(most, '"', '\\"'),
            text.number(most, text.two),
          ],
          more_are_slow('')
        ),
      ],
      action: 'After a deployment, roll back. If acceptance fell, find what changed. If neither, look at load and prompts.',
    },
    load {
      reason: 'kv_cache',
      expr: |||
        %(cache)s > %(most)s
        and %(preempted)s > 0
        and %(drafting)s
      ||| % {
        cache: series.by('max', level, promql.range('avg_over_time', series.of('kv_cache'), w(30))),
        most: number(config.load.kv_cache),
        preempted: series.sum('increase', 'preemptions', 30),
        drafting: drafting,
      },
      summary: '%s runs out of KV cache: %s in use, and requests are preempted.' % [text.model, text.value(text.percent)],
      description: accepted,
      impact: 'Preempted requests begin again, so users wait longer.',
      action: 'Add replicas, or admit fewer requests (--max-num-seqs).',
    },
    load {
      reason: 'queue',
      expr: |||
        %(waiting)s > %(most_waiting)s
        and %(running)s > %(most_running)s
        and %(drafting)s%(unless_it_pays)s
      ||| % {
        waiting: series.by('avg', level, promql.range('avg_over_time', series.of('waiting'), w(30))),
        running: series.by('avg', level, promql.range('avg_over_time', series.of('running'), w(30))),
        most_waiting: number(config.load.waiting),
        most_running: number(config.load.running),
        drafting: drafting,
        unless_it_pays: if vllm then '' else '\nunless avg by (%s) (%s) > 1' % [level, series.family('specdec_speedup_bound_ratio', ['bound="low"'])],
      },
      summary: '%s is overloaded: %s requests wait at each engine, and more than %d run.' % [text.model, text.value(text.whole), config.load.running],
      description: accepted,
      impact: 'Requests wait. In a large batch, drafts may slow all of them down.',
      action: 'Add replicas, or admit fewer requests (--max-num-seqs). By day, measure whether drafts pay at this load.',
    },
  ]
