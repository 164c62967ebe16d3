// Is the service there, does it stay, does it answer?
local promql = import '../promql.libsonnet';
local text = import '../text.libsonnet';

function(config, s, series)
  local service = config.service;
  local w(n) = config.minutes(n);
  local vllm = config.source == 'vllm';
  local up = s.up.record;
  local rate = s.tokens.record;
  local tokens = series.of('generation_tokens');
  local restarts(minutes) = promql.range('resets', tokens, w(minutes));
  local falls(minutes) = promql.range('resets', series.own_up, w(minutes));

  // Why the metrics could not be read, where the exporter tells.
  local half(operation, family) = promql.range(operation, 'specdec_%s{%%s}' % family, w(30));
  local failures = half('increase', 'fetch_failures_total');
  local failed(otherwise='') = if vllm then '' else text.where('sum(%s) > 0' % failures, ' In %s, %s of %s fetches failed, most by %s.' % [
    w(30),
    text.number('sum(%s)' % failures, text.whole, 'p'),
    text.number('sum(%s)' % half('count_over_time', 'up'), text.whole, 'p'),
    text.label('topk(1, sum by (reason) (%s))' % failures, 'reason', 'p'),
  ], otherwise, 'p');

  // "chat-0 restarted 3 times", of the pod where that is most.
  local worst(family, does, otherwise) =
    local most = 'topk(1, max by (pod) (resets(specdec_%s{%%s}[%s])) > 0)' % [family, w(180)];
    text.where(most, does % [text.label(most, 'pod', 'p'), text.number(most, text.whole, 'p')], otherwise, 'p');
  local loop = {
    alert: 'SpecDecodeRestartLoop',
    keep: 5,
    by_model: false,
    description:
      if vllm then 'A replica of ' + text.service + ' restarted or stopped answering {{ $value }} times.'
      else 'In %s, ' % w(180) + worst('generation_tokens_total', '%s restarted %s times', 'nothing restarted')
           + worst('up', ', and %s could not be read %s times', '') + '.' + failed(),
    impact: 'Each restart drops the running requests; the first ones after a restart are slow.',
    action: 'Read why the last container ended: kubectl describe pod; logs --previous. After a deployment, roll back. If nothing restarted, raise the timeout.',
  };
  local down = { alert: 'SpecDecodeTargetDown', by_model: false };
  local role = '{{ with $labels.llm_isvc_role }} ({{ . }}){{ end }}';
  local engine(spec) = {
    alert: 'SpecDecodeEngineStalled',
    severity: 'critical',
    wait: 2,
    keep: 5,
    impact: 'Users of this engine get no answer. Nothing restarts an engine whose health check passes.',
    action: 'Send one request to this pod. If it is not answered, save its log and restart it.',
    summary: 'Engine {{ $labels.engine }} of pod %s of %s hangs: %s requests %s.' % [text.pod, text.model, text.value(text.whole), spec.requests],
  } + spec + { expr: series.without_engines(spec.expr, '=~"%s"' % config.counting_at_end) };
  local held(what) = promql.range('min_over_time', series.of(what), w(10)) + ' > 0';
  local idle = promql.range('increase', tokens, w(10)) + ' == 0';
  local engines(expression) = series.by('max', config.level + ', pod, instance, engine', expression);

  [
    loop {
      severity: 'critical',
      // A target that falls while its counters go on is a scrape that fails.
      expr: |||
        %(falls)s
        and on (%(service)s) avg_over_time(%(up)s[%(half)s]) < %(there)s
      ||| % {
        falls: series.by('max', service, '%s >= 2\nunless on (%s) (%s == 0 and %s > 0)' % [
          falls(60),
          config.target,
          restarts(60),
          promql.range('increase', tokens, w(60)),
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
        or %(falls)s >= %(times)d and %(readable)s < %(least)s%(vllm)s
      ||| % {
        restarts: restarts(180),
        lately: restarts(60),
        times: config.restarts.times,
        falls: falls(180),
        least: promql.number(1 - config.restarts.unread),
        readable: promql.range('avg_over_time', series.own_up, w(60)),
        vllm: if vllm then ' and on (%s) last_over_time(%s[%s])' % [config.target, tokens, w(60)] else '',
      }),
      summary: 'A replica of %s restarts, or cannot be read: %s times in %s.' % [text.service, text.value(text.whole), w(180)],
    },
    down {
      severity: 'critical',
      keep: 5,
      // There for 20 minutes without a gap: a start may take that long, also one from zero. A log alone may tell that the predictor
      // works.
      expr: |||
        %(up)s == 0
        unless max_over_time(%(up)s[%(six)s]) == 1
        and %(there)s%(logged)s
      ||| % {
        up: up,
        six: w(6),
        there: std.join(' and ', ['%s offset %s' % [up, w(n)] for n in [5, 10, 15, 20]]),
        logged: if vllm then '' else '\nunless on (%s) %s > 0' % [
          config.role,
          series.by('sum', config.role, promql.range('increase', series.of('draft_tokens'), w(5))),
        ],
      },
      summary: text.service + role + ' is down: no replica answers.',
      description: 'For %s, no metrics could be read.' % w(5) + failed(' The exporters do not answer either.'),
      impact: 'Users may get errors.',
      action: 'Send a request: if an answer comes, only the scrape is broken. If not, read why the last container ended.',
    },
    down {
      severity: 'warning',
      reason: 'gone',
      wait: 10,
      // That something else in the cluster has samples tells it from samples that do not arrive.
      expr: |||
        max_over_time(%(up)s[%(hours)s]) == 1
        unless on (%(service)s) %(up)s
        and on (%(service)s) sum by (%(service)s) (last_over_time(%(rate)s[%(hours)s])) > 0
        and on (cluster) up
      ||| % { up: up, hours: w(120), service: service, rate: rate },
      summary: text.service + role + ' is gone: all its targets vanished while requests ran.',
      description: 'It generated up to %s tokens a second. For %s, all its targets have been missing.' % [
        text.number('sum(max_over_time(%s{%%s}[%s]))' % [rate, w(120)], text.whole, 'p'),
        w(10),
      ],
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
        and on (%(role)s) %(up)s == 1
      ||| % {
        away: series.by(
          'min',
          config.role + ', pod, instance',
          if vllm then series.up else '%s or on (%s) %s == 0' % [series.own_up, config.target, series.up]
        ),
        role: config.role,
        up: up,
      },
      summary: 'Pod %s of %s does not answer.' % [text.pod, text.service],
      description: 'For %s, its metrics could not be read; other replicas answer.' % w(20) + failed(),
      impact: 'If the pod is down, the others carry its load.',
      action: 'Read the log of this pod%s.' % if vllm then '' else ', of vLLM and of the container specdec-exporter',
    },
    engine({
      reason: 'waiting',
      requests: 'wait',
      // It generated before: an engine for embeddings never does.
      expr: engines('%s and %s and %s > 0' % [held('waiting'), idle, tokens]),
      description: 'No token was generated for %s.' % w(10),
    }),
    // The number of running requests may stay after all were aborted (vLLM #22545). But an idle engine would get requests before
    // another has two all the time, and a service that was busy for an hour does not lose all requests at once.
    engine({
      reason: 'running',
      requests: 'run',
      expr: '%s\nand on (%s) %s >= 2' % [engines('%s and %s' % [held('running'), idle]), config.level, s.busy.record],
      description: 'No token was generated for %s, while other engines of the service work.' % w(10),
    }),
    engine({
      reason: 'service',
      requests: 'run',
      wait: 5,
      expr: |||
        %(held)s
        and on (%(level)s) (
          %(rate)s == 0
          and sum_over_time((%(rate)s >= bool %(least)s)[%(hours)s:%(five)s]) >= 12
          and changes((%(rate)s >= bool %(least)s)[%(hours)s:%(five)s]) == 1
        )
      ||| % { held: engines(held('running')), level: config.level, rate: rate, least: promql.number(config.min_tokens), hours: w(180), five: w(5) },
      description: 'The whole service was busy for an hour, stopped at once, and generated no token for %s.' % w(10),
    }),
  ]
