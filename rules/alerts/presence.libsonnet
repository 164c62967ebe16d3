// Is there a service to watch, and does it answer?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local minutes(n) = n * config.minute_seconds;
  local service = source.service;
  local whereService = alert.whereOf(service);
  local replicas = signals.replica_up.record;
  local ofService = 'on (%s)' % promql.list(service);
  local answering = '(%s == 1)' % replicas;

  // A replica whose metrics cannot be read, but whose log is: it never answers, and its log tells that it works.
  local butLogged =
    if config.source == 'vllm' then ''
    else '\nunless %(of)s\n%(logged)s' % { of: ofService, logged: source.logged };
  // Services whose targets are there.
  local present(matchers) = promql.by('max', service, replicas + matchers) + butLogged;
  // The same, for so long that the alert's `for` completes the time of a cold start: a service that never answered.
  local longPresent(matchers) = '%(present)s\nand %(of)s\n%(before)s' % {
    present: present(matchers),
    of: ofService,
    before: '(%(replicas)s offset %(time)s)' % {
      replicas: replicas,
      time: promql.duration(std.max(minutes(1), config.cold_start_seconds - minutes(5))),
    },
  };
  // Services of which a replica answered within a day.
  // A look at every tenth minute of the day is enough, and much cheaper. The last minutes are for a service that is younger.
  local answered(matchers) = std.join('\nor\n', [
    promql.by('max', service, 'max_over_time(%(of)s[%(window)s])' % { of: replicas + matchers, window: window }) + ' > 0'
    for window in ['1d:10m', '10m']
  ]);

  local down(seconds, services) = {
    alert: 'SpecDecodeTargetDown',
    severity: 'critical',
    level: service,
    for_seconds: seconds,
    keep_seconds: minutes(5),
    expr: '%(services)s\nunless %(of)s\n%(answering)s' % {
      services: promql.group(services),
      of: ofService,
      answering: answering,
    },
    summary: 'No replica of the predictor answers.',
    description: 'No replica of %(where)s has answered a scrape for %(time)d minutes.'
                 % { where: whereService, time: seconds / config.minute_seconds },
    impact: 'Users probably get errors. Nothing is known about speculation, and no other alert about the service can fire.',
    action: 'Look at the pods: are they gone, starting, crashed or out of memory? A cold start takes minutes. If users get '
            + 'answers, only the scrape is broken. If somebody removed the service, silence this alert: it ends within a day.',
  };
  local zero = config.scale_to_zero_service_regex;
  local named(operator) = promql.braces(['inference_service%(operator)s"%(zero)s"' % { operator: operator, zero: zero }]);
  local everywhere = if zero == '' then '' else named('!~');


  [
    down(minutes(5), answered(everywhere) + '\nor\n' + longPresent(everywhere)),
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
        // No service whose log alone is read: of that, no replica answers.
        if config.source == 'vllm' then ''
        else '\nunless %(of)s\n(%(logged)s unless %(of)s %(answering)s)' % {
          of: ofService,
          logged: source.logged,
          answering: answering,
        }
      ),
      summary: 'A replica of the predictor does not answer.',
      description: 'At least one replica of %(where)s has not answered a scrape for %(time)d minutes.'
                   % { where: whereService, time: config.cold_start_seconds / config.minute_seconds },
      impact: 'The other replicas carry its load. The figures of the service leave it out.',
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
