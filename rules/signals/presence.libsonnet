// Which replicas are known, which of them can be read and work, and which have just started.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local short = config.short_window_seconds;
  local level = config.level_labels;
  local number = promql.number;
  local service = source.service;
  local ofService = 'on (%s)' % promql.list(service);
  local up = source.replica_up;
  local presence = name('presence', 'state');
  local loop = name('restart', 'loop');
  local remembered = 2 * 3600;
  local unseen = 600;

  // How often the replica that fell most often could no longer be read, if that was for more than a share of the time. Below it,
  // single scrapes failed. Of a replica that dies before its first token, no counter begins again: this alone tells.
  local falls(seconds) = 'max by (%(service)s) (%(resets)s and %(readable)s < %(limit)s)' % {
    service: promql.list(service),
    resets: promql.range('resets', up, seconds),
    readable: promql.range('avg_over_time', up, seconds),
    limit: number(1 - config.restart_loss_min),
  };

  {
    replica_up: {
      record: source.replica_up,
      unit: 'short',
      help: "Whether a replica's metrics can be read. It stays, at 0, as long as its target is there.",
      expr: source.up.recorded,
    },

    // It reads its own past, so it tells a fall from a start. A service at zero, one that was removed, and one that starts and
    // could not be read yet have none.
    presence: {
      record: presence,
      unit: 'short',
      help: 'Can the service be read? 0: yes. 1: no longer, or not within the time of a start; until it can be read, or '
            + promql.duration(remembered) + ' after its last target. 2: its targets vanished while it was busy; for a day at most.',
      expr: |||
        0 * max by (%(service)s) (%(up)s == 1)
        or
        max by (%(service)s) (last_over_time(%(presence)s[%(remembered)s]) == 1)
        and %(of)s
        last_over_time(%(up)s[%(remembered)s])
        or
        max by (%(service)s) (1 - %(up)s)
        and %(of)s
        (
          max_over_time(%(up)s[%(just_now)s]) == 1
          or
          %(up)s offset %(start)s
          unless %(of)s
          (max_over_time(%(up)s[%(start)s]) == 1)%(logged)s
        )
        or
        (
          max by (%(service)s) (%(presence)s == 2)
          unless
          (%(presence)s offset 1d == 2)
          or
          2 + max by (%(service)s) (last_over_time(%(presence)s[%(unseen)s]) == 0)
          and %(of)s
          (
            %(busy)s
          )
        )
        unless %(of)s
        %(up)s
        unless %(of)s
        (last_over_time(%(up)s[%(unseen)s]) and on (%(anywhere)s) %(up)s)
        unless on (%(cluster)s)
        %(silent)s
      ||| % {
        service: promql.list(service),
        of: ofService,
        up: up,
        presence: presence,
        remembered: promql.duration(remembered),
        just_now: promql.duration(3 * config.evaluation_interval_seconds),
        start: promql.duration(std.max(config.minute_seconds, config.cold_start_seconds - 5 * config.minute_seconds)),
        // The look-back, and some evaluations more.
        unseen: promql.duration(unseen),
        // A replica whose metrics could never be read, but whose log is: the log tells that it works.
        logged: if config.source == 'vllm' then '' else '\n  unless %(of)s\n  %(logged)s' % { of: ofService, logged: source.logged },
        busy: promql.indent(source.busyAtLast(unseen), 4),
        // The same target under another name: a service that was renamed, or that has a new label.
        anywhere: promql.list([label for label in service if !std.member(['cluster', 'inference_service'], label)] + ['instance']),
        cluster: promql.list(source.cluster),
        silent: promql.group(signals.silent.expr),
      },
    },
    silent: {
      unit: 'short',
      help: 'Services of a cluster of which no sample arrives, nor of any other target of the cluster: the way of the samples to '
            + 'the ruler is broken.',
      expr: |||
        count by (%(cluster)s) (last_over_time(%(presence)s[1h])) >= 2
        unless on (%(cluster)s)
        %(up)s
        unless on (%(cluster)s)
        up
      ||| % { cluster: promql.list(source.cluster), presence: presence, up: up },
    },

    // Absent nearly always, so it costs no series.
    restart_loop: {
      record: loop,
      unit: 'short',
      help: ('2: a replica fell twice within half an hour, and changed within 25 minutes. 1: it restarted or fell %(times)d times '
             + 'within %(window)s, the last time within an hour.') % {
        times: config.restarts_min,
        window: promql.duration(config.restart_window_seconds),
      },
      expr: |||
        2 + 0 * (%(fell_fast)s >= 2)
        or
        max by (%(service)s) (%(loop)s == 2)
        and %(of)s
        (changes(%(up)s[25m]) > 0)
        or
        1 + 0 * (
          %(restarts)s >= %(times)d
          or
          %(fell)s >= %(times)d
        )
        and %(of)s
        (%(restarts_lately)s > 0 or max by (%(service)s) (resets(%(up)s[1h])) > 0)
        unless %(of)s
        (last_over_time(%(loop)s[%(window)s]) == 2)
      ||| % {
        service: promql.list(service),
        of: ofService,
        up: up,
        loop: loop,
        fell_fast: falls(1800),
        fell: falls(config.restart_window_seconds),
        times: config.restarts_min,
        window: promql.duration(config.restart_window_seconds),
        restarts: source.restarts(config.restart_window_seconds),
        restarts_lately: source.restarts(3600),
      },
    },

    // Not recorded: only alerts read these.
    // Requests that run are not enough: after all of them are aborted, the gauge may keep its last value (vLLM #22545). But an
    // engine that gets none while the others of its service work would be idle.
    stalled: {
      unit: 'short',
      help: 'Engines in which requests wait, or run while others of the service generate, and that generate no token, but did '
            + 'before: one for embeddings never does. The value: requests.',
      expr: |||
        (
          %(waiting)s > 0
          or
          %(running)s > 0
          and on (%(level)s)
          (%(generating)s > 0)
        )
        and
        %(tokens)s == 0
        and
        %(generated)s > 0
      ||| % {
        level: promql.list(level),
        waiting: source.replicaGauge('sum', 'requests_waiting'),
        running: source.replicaGauge('sum', 'requests_running'),
        generating: signals.generation_tokens_now.record,
        tokens: source.replicaCounter('rate', 'generation_tokens', short),
        generated: source.replicaCounter('max_over_time', 'generation_tokens', short),
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
