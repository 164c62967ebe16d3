// Is the service there, does it stay, does it answer?
local promql = import '../promql.libsonnet';
local text = import '../text.libsonnet';

function(config, s, series)
  local service = config.service;
  local w(n) = config.minutes(n);
  local vllm = config.source == 'vllm';
  local up = s.up.record;
  local tokens = series.of('generation_tokens');
  local restarts(minutes) = promql.range('resets', tokens, w(minutes));
  local target = 'cluster, namespace, job, instance, pod';

  // Why the metrics could not be read, where the exporter tells.
  local failures = 'sum by (reason) (increase(specdec_fetch_failures_total{%%s}[%s]))' % w(30);
  local failed = if vllm then '' else text.where(
    'topk(1, %s > 0)' % failures,
    ' In %s, %s fetches failed (mostly %s).' % [w(30), text.number('sum(%s)' % failures, text.whole, 'p'), text.label('topk(1, %s)' % failures, 'reason', 'p')],
    of='p'
  );

  // The worst replica, where one restarted.
  local worst = 'topk(1, resets(specdec_generation_tokens_total{%%s}[%s]) > 0)' % w(180);
  local restarted = text.where(
    worst,
    'Pod %s restarted %s times in %s.' % [text.label(worst, 'pod', 'p'), text.number(worst, text.whole, 'p'), w(180)],
    'No replica restarted in %s.' % w(180),
    'p'
  );

  local loop = {
    alert: 'SpecDecodeRestartLoop',
    keep: 10,
    by_model: false,
    description: (if vllm then 'A replica of ' + text.service + ' restarted or stopped answering {{ $value }} times.' else restarted) + failed,
    impact: 'Each restart drops the requests that ran, and the first requests after it are slow.',
    action: 'Read why the last container ended (kubectl describe pod; logs --previous). If it began with a deployment, roll back. If nothing '
            + 'restarted and fetches fail, users are probably fine: raise the timeout.',
  };
  local down = { alert: 'SpecDecodeTargetDown', by_model: false };
  local role = '{{ with $labels.llm_isvc_role }} ({{ . }}){{ end }}';
  local engine(spec) = {
    alert: 'SpecDecodeEngineStalled',
    wait: 5,
    keep: 5,
    description: 'It has generated no token for %s.' % w(10),
    impact: 'Users of this engine get no answer. Health checks may pass, so nothing else restarts it.',
    action: 'Send one request to this pod. If it is not answered, save its log and restart it.',
  } + spec;
  // Engines that hold requests and generate nothing, but did before: one for embeddings never does.
  local idle(what, before=' and %s > 0' % tokens) = series.by('max', config.level + ', pod, instance, engine', '%s > 0 and %s == 0%s' % [
    promql.range('min_over_time', series.of(what), w(10)),
    promql.range('increase', tokens, w(10)),
    before,
  ]);
  local hangs = 'Engine {{ $labels.engine }} of pod %s of %s hangs: ' % [text.pod, text.model];

  [
    loop {
      severity: 'critical',
      expr: |||
        %(falls)s
        and on (%(service)s) avg_over_time(%(up)s[%(half)s]) < %(there)s
      ||| % {
        // A target that falls while its counters go on is a scrape that fails.
        falls: series.by('max', service, 'resets(%s[%s]) >= 2\nand on (%s) (max_over_time(%s[%s]) == 0 or %s > 0)' % [
          series.own_up,
          w(60),
          target,
          tokens,
          w(60),
          restarts(60),
        ]),
        service: service,
        up: up,
        half: w(30),
        there: promql.number(1 - config.restarts.away),
      },
      summary: '%s restarts again and again: down for %s of the last %s.' % [
        text.service,
        text.number('1 - min(avg_over_time(%s{%%s}[%s]))' % [up, w(30)], text.percent, 'p'),
        w(30),
      ],
    },
    loop {
      severity: 'warning',
      expr: series.by('max', service, |||
        %(restarts)s >= %(times)d and %(lately)s > 0
        or resets(%(own)s[%(long)s]) >= %(times)d and avg_over_time(%(own)s[%(hour)s]) < 0.9%(vllm)s
      ||| % {
        restarts: restarts(180),
        lately: restarts(60),
        times: config.restarts.times,
        own: series.own_up,
        long: w(180),
        hour: w(60),
        vllm: if vllm then ' and on (job, instance) last_over_time(%s[%s])' % [tokens, w(60)] else '',
      }),
      summary: 'A replica of %s restarts, or cannot be read: %s times in %s.' % [text.service, text.value(text.whole), w(180)],
    },
    down {
      severity: 'critical',
      keep: 5,
      // Up lately; or for the 20 minutes that a start may take. A log alone may tell that it works.
      expr: |||
        max_over_time(%(up)s[%(five)s]) == 0
        and (max_over_time(%(up)s[%(lately)s]) == 1 or %(up)s offset %(start)s == 0)
        unless on (%(service)s) %(drafts)s > 0
      ||| % {
        up: up,
        five: w(5),
        lately: w(35),
        start: w(20),
        service: service,
        drafts: series.by('sum', service, promql.range('increase', series.of('draft_tokens'), w(5))),
      },
      summary: text.service + role + ' is down: no replica answers.',
      description: 'For %s, the metrics of no replica could be read.' % w(5) + failed,
      impact: 'Users may get errors, and nothing else is known about the service.',
      action: 'Look at its pods: crashed, out of memory, evicted, or still loading? If users get answers, only the scrape is broken.',
    },
    down {
      severity: 'warning',
      reason: 'gone',
      wait: 10,
      expr: |||
        last_over_time(%(up)s[%(hours)s]) == 1
        unless on (%(service)s) %(up)s
        and on (%(service)s) sum by (%(service)s) (last_over_time(%(rate)s[%(hours)s])) > 0
        unless on (cluster) (count by (cluster) (up offset %(hour)s) unless on (cluster) up)
      ||| % { up: up, hours: w(120), service: service, rate: s.tokens.record, hour: w(60) },
      summary: text.service + role + ' is gone: all its targets vanished while requests ran.',
      description: 'For %s none of its targets has been there. Metrics cannot tell a removal from a loss.' % w(10),
      impact: 'If nobody removed it, its users get errors.',
      action: 'Ask whether somebody removed or renamed it. If nobody did, look for its pods: a node or a quota may be lost.',
    },
    down {
      severity: 'warning',
      reason: 'replica',
      wait: 20,
      keep: 5,
      expr: |||
        %(away)s == 0
        and on (%(service)s) %(up)s == 1
      ||| % {
        away: series.by(
          'min',
          service + ', pod, instance',
          if vllm then series.up else '%s or on (%s) %s == 0' % [series.own_up, target, series.up]
        ),
        service: service,
        up: up,
      },
      summary: 'Pod %s of %s does not answer.' % [text.pod, text.service],
      description: 'For %s its metrics could not be read; other replicas answer.' % w(20) + failed,
      impact: 'The others carry its load if it is down, and the figures leave it out.',
      action: 'Read the log of this pod: of the predictor, and of the container specdec-exporter.',
    },
    engine({
      severity: 'critical',
      reason: 'waiting',
      expr: idle('waiting'),
      summary: hangs + '%s requests wait, and it generates nothing.' % text.value(text.whole),
    }),
    // What hangs may say nothing of what waits. A service that was never idle does not lose all requests at once.
    engine({
      severity: 'critical',
      reason: 'service',
      expr: |||
        %(idle)s
        and on (%(level)s) (%(rate)s == 0 and min_over_time(%(rate)s[%(hour)s] offset %(before)s) >= 1)
      ||| % { idle: idle('running', ''), level: config.level, rate: s.tokens.record, hour: w(60), before: w(15) },
      summary: hangs + '%s requests run, and the whole service generates nothing.' % text.value(text.whole),
    }),
    engine({
      severity: 'warning',
      reason: 'running',
      // After a mass abort, the gauge of running requests may stay (vLLM #22545).
      expr: '%s\nand on (%s) %s > 1' % [idle('running'), config.level, s.tokens.record],
      summary: 'Engine {{ $labels.engine }} of pod %s of %s has requests and generates nothing; other engines work.' % [text.pod, text.model],
      description: 'It has generated no token for %s. It may be idle: after many requests were aborted at once, vLLM still counts them as running.' % w(10),
    }),
  ]
