// Which replicas are known, which of them can be read and work, and which have just started.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local short = config.short_window_seconds;
  local level = config.level_labels;
  local number = promql.number;

  {
    replica_up: {
      record: source.replica_up,
      unit: 'short',
      help: "Whether a replica's metrics can be read. It stays, at 0, as long as its target is there.",
      expr: source.up.recorded,
    },
    // Not recorded: only alerts read these.
    // Requests that run are not enough: after all of them are aborted, the gauge may keep its last value (vLLM #22545).
    stalled: {
      unit: 'short',
      help: 'Engines in which requests wait and that generate no token, but did before: one for embeddings never does.',
      expr: |||
        count by (%(labels)s) (
          %(waiting)s > 0
          and
          %(tokens)s == 0
          and
          %(generated)s > 0
        )
      ||| % {
        labels: promql.list(level),
        waiting: source.replicaGauge('sum', 'requests_waiting'),
        tokens: source.replicaCounter('rate', 'generation_tokens', short),
        generated: source.replicaCounter('max_over_time', 'generation_tokens', short),
      },
    },

    sidecars_down: {
      unit: 'short',
      help: 'Exporters whose target is there and cannot be scraped.',
      local replica = source.service + ['job', 'instance'],
      expr: |||
        count by (%(labels)s) (
          %(replicas)s == 0
          unless on (%(replica)s)
          %(answers)s
        )
      ||| % {
        labels: promql.list(source.service),
        replicas: signals.replica_up.record,
        replica: promql.list(replica),
        answers: source.family('up'),
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
