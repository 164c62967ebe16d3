// Is there a service to watch, and can its metrics be read?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local minutes(n) = n * config.minute_seconds;
  local service = source.service;
  local whereService = alert.whereOf(service);
  local replicas = signals.replica_up.record;
  local presence = signals.presence.record;
  local ofService = 'on (%s)' % promql.list(service);
  local cold = config.cold_start_seconds;
  local pod = '{{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }}';

  // Why fetches failed. An exporter that is gone cannot tell.
  local reason =
    if config.source == 'vllm' then ''
    else
      '{{ with printf "topk(1, sum by (reason) (increase(specdec_fetch_failures_total%%s[%s])) > 0)" $service | query }}'
      % promql.duration(minutes(15)) + ' The most frequent reason: {{ . | first | label "reason" }}.{{ end }}';

  // A page tells the first three.
  local pods = '{{ with printf "topk(3, %s%%s == 0)" $service | query }} Pods:{{ range . }} {{ with .Labels.pod }}{{ . }}{{ else }}'
               % replicas + '{{ .Labels.instance }}{{ end }}{{ end }}.{{ end }}';

  local down(spec) = { alert: 'SpecDecodeTargetDown', level: service, keep_seconds: minutes(5) } + spec;
  local partly = { severity: 'warning', level: source.target };

  [
    down({
      severity: 'critical',
      // Of a shard, the global layer hears some seconds later, and its page for many services must come first.
      for_seconds: if config.layer == 'shard' then 2 * config.evaluation_interval_seconds else 0,
      // The second outage within half an hour is a loop, which has a page of its own.
      expr: |||
        %(presence)s == 1
        unless
        (
          %(loop)s
          and
          %(lossy)s
        )
      ||| % {
        presence: presence,
        loop: promql.indent(signals.restart_loop.fast),
        lossy: promql.indent(promql.group(signals.hardly_readable.expr)),
      },
      summary: "No replica's metrics can be read.",
      description: 'For 5 minutes, the metrics of no replica of %(where)s could be read.%(pods)s%(reason)s'
                   % { where: whereService, pods: pods, reason: reason },
      impact: 'Users may get errors. Nothing is known about speculation, and no other alert about the service can fire.',
      action: 'Look at the pods: are they crashed, out of memory, evicted or starting? If users get answers, only the scrape is '
              + 'broken.',
    }),
    down({
      severity: 'warning',
      for_seconds: minutes(5),
      // Where no sample arrives, nothing is known.
      expr: 'last_over_time(%(presence)s[1d]) == 2\nunless on (%(cluster)s)\n%(silent)s' % {
        presence: presence,
        cluster: promql.list(source.cluster),
        silent: promql.group(signals.silent.expr),
      },
      summary: 'All targets of a busy service vanished.',
      description: 'Requests ran in %(where)s until all its targets vanished, and none has answered since.' % { where: whereService },
      impact: 'If nobody removed it, its users get errors. Prometheus cannot tell a removal from a loss.',
      action: 'Ask whether somebody removed or renamed the service. If nobody did, look for its pods: a node or a quota may be lost.',
    }),
    down(partly {
      labels: { container: 'predictor' },
      level: source.target + ['engine'],
      for_seconds: cold,
      expr: '%(unread)s\nor\n%(engines)s' % {
        unread:
          if config.source == 'vllm' then '%s == 0' % replicas
          else
            // No service whose log alone is read.
            '%(replicas)s == 0\nand on (%(target)s)\n%(answers)s\nunless %(of)s\n(%(logged)s unless %(of)s (%(replicas)s == 1))' % {
              replicas: replicas,
              target: promql.list(source.target),
              answers: source.family('up'),
              of: ofService,
              logged: source.logged,
            },
        engines: promql.strip(signals.engines_gone.expr),
      },
      summary: "A replica's metrics cannot be read.",
      description: 'For %(time)d minutes, the metrics of {{ with $labels.engine }}engine {{ . }} of {{ end }}%(pod)s (%(where)s) could '
                   % { time: cold / minutes(1), pod: pod, where: whereService } + 'not be read.' + reason,
      impact: 'If it is down, the others carry its load. The figures of the service leave it out.',
      action: "Read the log of this pod's predictor. If an engine is missing, restart the pod.",
    }),
  ] + (if config.source == 'vllm' then [] else [
         down(partly {
           labels: { container: 'specdec-exporter' },
           for_seconds: minutes(15),
           expr: '%(replicas)s == 0\nunless on (%(target)s)\n%(answers)s' % {
             replicas: replicas,
             target: promql.list(source.target),
             answers: source.family('up'),
           },
           summary: 'An exporter beside a predictor cannot be scraped.',
           description: 'For 15 minutes, the exporter beside %(pod)s (%(where)s) could not be scraped.'
                        % { pod: pod, where: whereService },
           impact: 'The figures of the service leave this replica out. Its predictor may be healthy: users need not notice.',
           action: 'Look at the container specdec-exporter of this pod: its exit reason and its log. If the whole node is gone, replace it.',
         }),
       ]) + [
    {
      alert: 'SpecDecodeRulesLagging',
      severity: 'warning',
      dashboard: config.pack_dashboard_uid,
      level: source.cluster,
      labels: { reason: 'samples' },
      // The look-back of 5 minutes comes before.
      for_seconds: minutes(3),
      expr: signals.silent.expr,
      summary: 'No samples arrive.',
      description: 'Of {{ with $labels.cluster }}cluster {{ . }}{{ else }}all targets{{ end }}, no sample has arrived for 8 minutes.',
      impact: 'No alert about any of its services can fire.',
      action: 'Look at the Prometheus or agent that scrapes there, and at its remote write.',
    },
    {
      alert: 'SpecDecodeEngineStalled',
      severity: 'critical',
      level: config.level_labels + config.replica_labels,
      for_seconds: minutes(5),
      keep_seconds: minutes(5),
      expr: signals.stalled.expr,
      summary: 'An engine has requests and generates nothing.',
      description: 'Engine {{ $labels.engine }} of %(pod)s (%(where)s) has %(requests)s requests and has not generated a token for 10 minutes.'
                   % alert.facts { pod: pod, requests: alert.value(alert.whole) },
      impact: 'Users of this engine get no answer. Health checks may pass, so nothing else restarts it.',
      action: 'Send one request to this pod. If it is not answered, save the log and restart the pod.',
    },
  ]
