// All services together: a few series a cluster, whatever the number of services. Recorded by the layer `global` alone, from the
// records of the shards.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local cluster = promql.list(source.cluster);
  local record(what, operation) = 'cluster:specdec_' + what + ':' + operation;

  {
    fleet_verdicts: {
      record: record('services', 'by_verdict'),
      unit: 'short',
      help: 'Services by verdict. ' + signals.verdict.help,
      expr: 'count_values by (%s) ("verdict", ' % cluster + signals.verdict.record + ')',
    },
    fleet_replicas_up: {
      record: record('replicas', 'up_ratio'),
      unit: 'percentunit',
      help: 'Share of the replicas whose metrics can be read.',
      expr: promql.by('avg', source.cluster, signals.replica_up.record),
    },
    fleet_alerts: {
      record: record('alerts', 'firing'),
      unit: 'short',
      help: 'Alerts of this pack that fire, by name and severity.',
      expr: promql.by('count', source.cluster + ['alertname', 'severity'], 'ALERTS{alertstate="firing", component="%s"}' % config.component),
    },
  }
