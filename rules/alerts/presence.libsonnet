// Is there a service to watch, does it answer, and does it draft?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local service = source.service;
  local whereService = alert.whereOf(service);
  local replicas = signals.replica_up.record;
  local ofService = 'on (%s)' % promql.list(service);
  local answering = '(%s == 1)' % replicas;

  // A replica whose metrics cannot be read, but whose log is: it never answers, and its log tells that it works.
  local butLogged =
    if config.source == 'vllm' then ''
    else '\nunless %(of)s\n%(logged)s' % { of: ofService, logged: source.logged };
  // Services whose targets are there, and services of which a replica answered within a day.
  local present(matchers) = promql.by('max', service, replicas + matchers) + butLogged;
  local answered(matchers) = promql.by('max', service, promql.range('max_over_time', replicas + matchers, 86400)) + ' > 0';

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

  local hasDrafted = 'last_over_time(%s[1d])' % signals.acceptance_hour.record;
  local generating = '%(tokens)s >= %(min_tokens)s' % {
    tokens: signals.generation_tokens_now.record,
    min_tokens: number(config.min_generation_tokens_per_second),
  };
  local facts = alert.facts { tokens: alert.value(alert.whole) };

  [
    down(minutes(5), answered(everywhere) + '\nor\n' + present(everywhere)),
  ] + (
    if zero == '' then []
    // Without a target, such a service is at zero.
    else [down(config.cold_start_seconds, present(named('=~')))]
  ) + [
    {
      alert: 'SpecDecodeTargetDown',
      severity: 'warning',
      level: service,
      for_seconds: minutes(15),
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
      description: 'At least one replica of %s has not answered a scrape for 15 minutes.' % whereService,
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
                   % facts { engines: alert.value(alert.whole) },
      impact: 'Users of this engine wait without an end. Health checks may pass, so nothing else restarts it.',
      action: 'Find the replica that generates no tokens, save its log, and restart it.',
    },
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
      summary: 'A service drafted within the last day, but its draft counters are gone.',
      description: '%(where)s generates %(tokens)s tokens/s. It drafted within the last day and has no draft counters now.'
                   % facts,
      impact: 'Speculation was switched off, or its metrics have new names. In the second case no alert about it can fire.',
      action: 'If somebody switched speculation off on purpose, this alert ends within a day. If not, compare arguments and '
              + 'release with yesterday.',
    },
  ]
