// Which replicas are known, which of them can be read and work, and which have just started.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local short = config.short_window_seconds;
  local level = config.level_labels;
  local number = promql.number;
  local service = source.service;
  local ofService = 'on (%s)' % promql.list(service);
  local up = source.replica_up;
  local presence = name('presence', 'enum');
  local resets = name('replica', 'resets', 1800);
  local start = promql.duration(config.cold_start_seconds);
  local minutes(n) = promql.duration(n * config.minute_seconds);

  {
    replica_up: {
      record: source.replica_up,
      unit: 'short',
      help: "Whether a replica's metrics can be read. It stays, at 0, as long as its target is there.",
      expr: source.up.recorded,
    },

    // Absent nearly always, so it costs no series.
    never_up: {
      record: name('replica', 'never_up'),
      unit: 'short',
      help: 'Replicas there for %s, the time of a start, while none of the service could be read.' % start,
      expr: '%(up)s offset %(start)s\nunless %(of)s\nmax_over_time(%(up)s[%(start)s]) == 1%(logged)s' % {
        up: up,
        start: start,
        of: ofService,
        // A replica whose metrics could never be read, but whose log is: the log tells that it works.
        logged: if config.source == 'vllm' then '' else '\nunless %(of)s\n%(logged)s' % { of: ofService, logged: source.logged },
      },
    },
    // It reads its own past, so it tells a fall from a start, and a service at zero from one that is down. The same target under
    // another name is a service that was renamed, or that has a new label.
    presence: {
      record: presence,
      unit: 'short',
      help: ('0: the service can be read. 1: not for %s, or not within the time of a start; until it can, or 2h after its last '
             + 'target. Once, when its targets vanish: 2 if requests ran, else 3.') % minutes(5),
      expr: |||
        0 * max by (%(service)s) (%(up)s == 1)
        or
        %(was)s == 1
        and %(of)s
        last_over_time(%(up)s[2h])
        or
        1 + (max by (%(service)s) (max_over_time(%(up)s[%(fall)s])) == 0)
        and %(of)s
        %(up)s
        and %(of)s
        (%(was)s == 0 or %(never)s)
        or
        (
          2 + (%(was)s == 0)
          and %(of)s
          %(running)s > 0
          and %(of)s
          last_over_time(%(tokens)s[10m]) > 0
          unless %(of)s
          (%(up)s offset 10m and on (job, instance) %(up)s)
          or
          3 + (%(was)s == 0)
        )
        unless %(of)s
        %(up)s
      ||| % {
        service: promql.list(service),
        of: ofService,
        up: up,
        was: 'last_over_time(%s[2h])' % presence,
        // A window that begins with the last evaluation at which it could be read.
        fall: promql.duration(5 * config.minute_seconds + config.evaluation_interval_seconds),
        never: signals.never_up.record,
        running: source.runningAtLast(600),
        // Another replica may have had requests, but the last one idled.
        tokens: signals.generation_tokens_now.record,
      },
    },
    silent: {
      unit: 'short',
      help: 'Clusters of which no sample arrives any more, of no service and of no other target: the way to the ruler is broken. '
            + 'A single target may be away by itself.',
      expr: |||
        (
          count by (%(cluster)s) (last_over_time(%(presence)s[2h])) >= 2
          or
          count by (%(cluster)s) (count by (%(kinds)s) (up offset 1h)) >= 2
        )
        unless on (%(cluster)s)
        %(up)s
        unless on (%(cluster)s)
        up
      ||| % {
        cluster: promql.list(source.cluster),
        kinds: promql.list(source.cluster + ['job', 'inference_service']),
        presence: presence,
        up: up,
      },
    },

    // Absent nearly always, so it costs no series. Of a replica that dies before its first token no counter begins again, so falls
    // count as well; but not single scrapes that fail.
    replica_resets: {
      record: resets,
      unit: 'short',
      help: 'How often a replica restarted or could no longer be read within 30m. 3 also if it fell twice and was away for a third.',
      expr: |||
        3 + 0 * (resets(%(up)s[30m]) == 2 and avg_over_time(%(up)s[30m]) < 0.67)
        or
        resets(%(up)s[30m]) > 0 and avg_over_time(%(up)s[30m]) < 0.9
        or
        %(restarts)s > 0
      ||| % { up: up, restarts: source.restarts(1800) },
    },
    // Not recorded, as all below.
    restart_loop: {
      unit: 'short',
      help: 'Services with a replica that restarts again and again: until 30m after the last time, or an hour if it was seldom.',
      local facts = {
        service: promql.list(service),
        up: up,
        resets: resets,
        window: promql.duration(config.restart_window_seconds),
        times: config.restarts_min,
        restarts: source.restarts(config.restart_window_seconds),
      },
      local fast = 'max_over_time(%(resets)s[%(window)s]) >= %(times)d and %(resets)s' % facts,
      // So often that the next is near.
      fast:: promql.by('max', service, fast),
      expr: |||
        max by (%(service)s) (
          %(fast)s
          or
          (
            resets(%(up)s[%(window)s]) >= %(times)d and avg_over_time(%(up)s[%(window)s]) < 0.9
            or
            %(restarts)s >= %(times)d
          )
          and
          last_over_time(%(resets)s[30m])
          unless
          max_over_time(%(resets)s[%(window)s]) >= %(times)d
        )
      ||| % facts { fast: fast },
    },
    hardly_readable: {
      local lost = 0.25,  // a quarter of the time
      lost:: lost,
      unit: 'percentunit',
      help: 'Share of the last half hour, or hour where that is less, in which the replicas of a service could be read: where it is low.',
      local over(seconds) =
        promql.by('avg', service, promql.range('avg_over_time', up, seconds)) + ' < ' + number(1 - lost),
      expr: over(1800) + '\nor\n' + over(3600),
    },

    // Recorded: at most one series for each engine.
    replica_idle: {
      record: name('replica', 'idle'),
      unit: 'short',
      help: 'Engines that generated no token for %s, but did before: one for embeddings never does.' % promql.duration(short),
      expr: source.replicaCounter('rate', 'generation_tokens', short) + ' == 0\nand\n'
            + source.replicaCounter('max_over_time', 'generation_tokens', short) + ' > 0',
    },
    // Requests that run are not enough: after all of them are aborted, the gauge may keep its last value (vLLM #22545), that of
    // waiting ones too. But an idle engine would get requests before another has two all the time, and a service that was never
    // idle for an hour does not lose all of them at once. Then it goes on as it is: the hour passes.
    stalled: {
      unit: 'short',
      help: 'Engines that generate nothing while requests wait in them, or run in them and another is busy, or no engine of a service '
            + 'generates anything that did so all the time. The value: requests.',
      expr: |||
        (
          %(waiting)s > 0
          or
          %(running)s > 0
          and on (%(level)s)
          (
            %(busy)s >= 2
            unless
            %(idle)s
            or
            %(generated)s == 0
            and
            %(steady)s >= %(least)s
          )
          or
          %(running)s > 0
          and on (%(level)s, %(replica)s)
          ALERTS{alertname="SpecDecodeEngineStalled"}
        )
        and
        %(idle)s
      ||| % {
        level: promql.list(level),
        replica: promql.list(config.replica_labels),
        generated: signals.generation_tokens_now.record,
        steady: promql.range('min_over_time', signals.generation_tokens_now.record, 3600, 600),
        least: number(signals.generation_tokens_now.least),
        waiting: source.replicaGauge('sum', 'requests_waiting'),
        running: source.replicaGauge('sum', 'requests_running'),
        busy: source.replicaLeast('requests_running', short),
        idle: signals.replica_idle.record,
      },
    },
    engines_gone: {
      unit: 'short',
      help: 'Engines that drafted within six hours and have no series any more, while their replica can be read and did not restart.',
      local process = 'on (%s)' % promql.list(service + [label for label in config.replica_labels if label != 'engine']),
      expr: |||
        %(drafted)s
        unless
        %(there)s
        and %(process)s
        (%(up)s == 1)
        unless %(process)s
        (resets(%(up)s[6h]) > 0)
      ||| % {
        drafted: promql.by('group', level + config.replica_labels, 'last_over_time(%s[6h])' % signals.replica_drafts.record),
        there: source.engines,
        process: process,
        up: up,
      },
    },

    several_processes: {
      unit: 'short',
      help: 'Processes that answer in turn at the URL that one exporter reads, where there are several.',
      expr: promql.by('max', source.sidecar, source.family('predictor_processes')) + ' > 1',
    },

    warming: {
      record: name('warming_replicas', 'ratio'),
      unit: 'percentunit',
      help: 'Share of the replicas that started within the warm-up time. Absent when none did.',
      expr: source.replicasStarted(config.warm_up_seconds) + '\n/\n' + source.replicas,
    },

    // Absent nearly always.
    unsettled: {
      record: name('unsettled', 'ratio'),
      help: 'Half of the replicas or more started so recently that the long window still holds their slow first requests. Not '
            + 'where they start again and again: there, slow requests are what users have.',
      // Each start holds the record at 1 for the warm-up time.
      expr: '%(lately)s >= 0.5\nunless\n%(minutes)s > %(few)s' % {
        lately: promql.range('max_over_time', signals.warming.record, config.settling_seconds),
        minutes: promql.range('sum_over_time', signals.warming.record, config.restart_window_seconds),
        few: number((config.restarts_min - 0.5) * config.warm_up_seconds / config.evaluation_interval_seconds),
      },
    },
  }
