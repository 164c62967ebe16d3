// Does one replica of a service draft worse than the others, or not at all? The figures of the service hardly show it.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);

  local outlier(reason, does, expr) = {
    alert: 'SpecDecodeReplicaOutlier',
    severity: 'warning',
    labels: { reason: reason },
    level: config.level_labels + config.replica_labels + [config.revision_label],
    for_seconds: minutes(30),
    keep_seconds: minutes(10),
    expr: expr,
    summary: 'One replica drafts worse than the others, or not at all.',
    description: ('Replica {{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }} (engine {{ $labels.engine }}'
                  + '{{ with $labels.%(revision)s }}, revision {{ . }}{{ end }}) of %(where)s %(does)s. ') % alert.facts {
      revision: config.revision_label,
      does: does,
    } + alert.ifAccepted('On the whole service, acceptance is %(acceptance)s.' % alert.facts),
    impact: 'Requests to this replica are slower than the same requests to the others.',
    action: 'Compare its arguments, image and model files with those of another replica. A pod without --speculative-config or '
            + 'with a wrong draft head looks like this. Save its metrics, then restart it, or roll its revision back.',
  };

  [
    outlier('poor_drafts', 'accepts %s of its draft tokens' % alert.value(alert.percent), |||
      %(acceptance)s
      <
      (
        %(others)s
      )
      -
      clamp_min(
        %(margin)s,
        %(gap)s
      )
      and
      %(shorter)s
      and
      %(effective)s >= %(min_effective)s
    ||| % {
      shorter: signals.replica_shorter.record,
      acceptance: signals.replica_acceptance.record,
      others: promql.indent(signals.others_acceptance.expr),
      margin: promql.indent(signals.others_margin.expr),
      gap: number(0.2),
      effective: signals.replica_effective_drafts.expr,
      min_effective: number(config.policy.min_effective_drafts),
    }),
    outlier('no_drafts', 'generates tokens without drafts, while other replicas draft', |||
      %(generating)s >= %(min_tokens)s
      unless
      %(drafts)s > 0
      and %(on)s
      sum by (%(labels)s) (%(drafts)s) >= %(min_drafts)d
      and on (%(replica)s)
      %(there)s
    ||| % {
      replica: promql.list(config.level_labels + config.replica_labels),
      there: source.engines,
      generating: signals.replica_generation_tokens.expr,
      min_tokens: number(signals.generation_tokens_now.least),
      drafts: signals.replica_drafts.record,
      on: on,
      labels: promql.list(config.level_labels),
      min_drafts: config.alert_min_drafts,
    }),
  ]
