// Is there a service to watch, and can its metrics be read?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local minutes(n) = n * config.minute_seconds;
  local service = source.service;
  local whereService = alert.whereOf(service);
  local replicas = signals.replica_up.record;
  local ofService = 'on (%s)' % promql.list(service);
  local readable = '(%s == 1)' % replicas;

  // A replica whose metrics could never be read, but whose log is: the log tells that it works.
  local butLogged =
    if config.source == 'vllm' then ''
    else '\nunless %(of)s\n%(logged)s' % { of: ofService, logged: source.logged };
  // Services whose targets are there.
  local present(matchers) = promql.by('max', service, replicas + matchers) + butLogged;
  // The same, for so long that the alert's `for` completes the time of a cold start: a service that could never
  // be read.
  local longPresent(matchers) = '%(present)s\nand %(of)s\n%(before)s' % {
    present: present(matchers),
    of: ofService,
    before: '(%(replicas)s offset %(time)s)' % {
      replicas: replicas,
      time: promql.duration(std.max(minutes(1), config.cold_start_seconds - minutes(5))),
    },
  };
  // Services of which a replica could be read within a day.
  // A look at every tenth minute of the day is enough, and much cheaper. The last minutes are for a service that is younger.
  local known(matchers) = std.join('\nor\n', [
    promql.by('max', service, 'max_over_time(%(of)s[%(window)s])' % { of: replicas + matchers, window: window }) + ' > 0'
    for window in ['1d:10m', '10m']
  ]);

  // Why fetches failed. An exporter that is gone cannot tell.
  local reason =
    if config.source == 'vllm' then ''
    else
      '{{ with printf "topk(1, sum by (reason) (increase(specdec_fetch_failures_total%%s[%s])) > 0)" $service | query }}'
      % promql.duration(minutes(15)) + ' The most frequent reason: {{ . | first | label "reason" }}.{{ end }}';

  local down(seconds, services) = {
    alert: 'SpecDecodeTargetDown',
    severity: 'critical',
    level: service,
    for_seconds: seconds,
    keep_seconds: minutes(5),
    expr: '%(services)s\nunless %(of)s\n%(readable)s' % {
      services: promql.group(services),
      of: ofService,
      readable: readable,
    },
    summary: "No replica's metrics can be read.",
    description: 'For %(time)d minutes, the metrics of no replica of %(where)s could be read.%(reason)s'
                 % { where: whereService, time: seconds / config.minute_seconds, reason: reason },
    impact: 'Users may get errors. Nothing is known about speculation, and no other alert about the service can fire.',
    action: 'Look at the pods: are they gone, starting, crashed or out of memory? A cold start takes minutes. If users get '
            + 'answers, only the scrape is broken. If somebody removed the service, silence this alert: it ends within a day.',
  };
  local zero = config.scale_to_zero_service_regex;
  local named(operator) = promql.braces(['inference_service%(operator)s"%(zero)s"' % { operator: operator, zero: zero }]);
  local everywhere = if zero == '' then '' else named('!~');


  [
    down(minutes(5), known(everywhere) + '\nor\n' + longPresent(everywhere)),
  ] + (
    if zero == '' then []
    // Without a target, such a service is at zero.
    else [down(config.cold_start_seconds, present(named('=~')))]
  ) + [
    {
      alert: 'SpecDecodeTargetDown',
      severity: 'warning',
      level: service,
      for_seconds: config.cold_start_seconds,
      keep_seconds: minutes(5),
      expr: promql.by('min', service, if config.source == 'vllm' then replicas else source.family('up')) + ' == 0' + (
        // No service whose log alone is read.
        if config.source == 'vllm' then ''
        else '\nunless %(of)s\n(%(logged)s unless %(of)s %(readable)s)' % {
          of: ofService,
          logged: source.logged,
          readable: readable,
        }
      ),
      summary: "A replica's metrics cannot be read.",
      description: 'For %(time)d minutes, the metrics of at least one replica of %(where)s could not be read.%(reason)s'
                   % { where: whereService, time: config.cold_start_seconds / config.minute_seconds, reason: reason },
      impact: 'If it is down, the other replicas carry its load. The figures of the service leave it out.',
      action: 'Find the pod whose specdec_up (or up) is 0, and read its log.',
    },
    {
      alert: 'SpecDecodeEngineStalled',
      severity: 'critical',
      for_seconds: minutes(5),
      keep_seconds: minutes(5),
      expr: signals.stalled.expr,
      summary: 'Requests wait in an engine that generates nothing.',
      description: 'Engines of %(where)s with waiting requests that have not generated a token for 10 minutes: %(engines)s.'
                   % alert.facts { engines: alert.value(alert.whole) },
      impact: 'Users of this engine wait without an end. Health checks may pass, so nothing else restarts it.',
      action: 'Find the replica that generates no tokens, save its log, and restart it.',
    },
  ]
