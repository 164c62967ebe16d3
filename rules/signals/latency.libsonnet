// Latency by `sli`, and the requests within an objective.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;

  {
    requests: {
      record: name('latency_requests', 'increase', long),
      unit: 'short',
      help: 'Requests whose latency was observed.',
      by_sli: { [sli]: source.histogram('increase', sli, 'count', long) for sli in std.objectFields(config.slis) },
    },
    latency_mean: {
      record: name('latency_seconds', 'mean', long),
      unit: 's',
      help: 'Mean latency. Histograms hold it exactly.',
      by_sli: {
        [sli]: '%(sum)s\n/ %(on)s\n(%(requests)s{sli="%(sli)s"} > 0)' % {
          sum: source.histogram('increase', sli, 'sum', long),
          on: on,
          requests: signals.requests.record,
          sli: sli,
        }
        for sli in std.objectFields(config.slis)
      },
    },
    buckets_mixed: {
      record: source.mixed_buckets,
      unit: 'short',
      help: 'How unevenly the replicas have the bucket boundaries. Absent while all replicas have the same boundaries.',
      by_sli: {
        [sli]: promql.by('stddev', level, source.replicasByBound(sli)) + ' > 0'
        for sli in std.objectFields(config.slis)
      },
    },
    latency_quantile: {
      unit: 's',
      help: 'Latency by quantile, for people: panels ask for one service. It is interpolated within a bucket: up to 70 % off at the default buckets.',
      by_sli: {
        [sli]: {
          [number(quantile)]: promql.quantile(quantile, source.commonBuckets('rate', sli, long))
          for quantile in [0.5, 0.95, 0.99]
        }
        for sli in std.objectFields(config.slis)
      },
    },
  }
