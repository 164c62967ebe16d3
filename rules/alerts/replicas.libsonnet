// Does one replica of a service draft worse than the others, or not at all? The figures of the service hardly show it.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);

  [
    {
      alert: 'SpecDecodeReplicaOutlier',
      severity: 'warning',
      level: config.level_labels + config.replica_labels + [config.revision_label],
      for_seconds: minutes(30),
      keep_seconds: minutes(10),
      // -1 stands for the ratio that a replica without drafts does not have.
      expr: |||
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
        %(effective)s >= %(min_effective)s
        or
        0 * (
          %(generating)s >= %(min_tokens)s
          unless
          %(drafts)s > 0
          and %(on)s
          sum by (%(labels)s) (%(drafts)s) >= %(min_drafts)d
        ) - 1
      ||| % {
        acceptance: signals.replica_acceptance.record,
        others: promql.indent(signals.others_acceptance.expr),
        margin: promql.indent(signals.others_margin.expr),
        gap: number(0.2),
        effective: signals.replica_effective_drafts.expr,
        min_effective: number(config.policy.min_effective_drafts),
        generating: signals.replica_generation_tokens.expr,
        min_tokens: number(signals.generation_tokens_now.least),
        drafts: signals.replica_drafts.record,
        on: on,
        labels: promql.list(config.level_labels),
        min_drafts: config.alert_min_drafts,
      },
      summary: 'One replica drafts worse than the others, or not at all.',
      description: ('Replica {{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }} (engine {{ $labels.engine }}'
                    + '{{ with $labels.%(revision)s }}, revision {{ . }}{{ end }}) '
                    + 'of %(where)s {{ if lt $value 0.0 }}generates tokens without drafts, while other replicas draft'
                    + '{{ else }}accepts %(value)s of its draft tokens{{ end }}. ') % alert.facts {
        value: alert.value(alert.percent),
        revision: config.revision_label,
      } + alert.ifAccepted('On the whole service, acceptance is %(acceptance)s.' % alert.facts),
      impact: 'Requests to this replica are slower than the same requests to the others.',
      action: 'Compare its arguments, image and model files with those of another replica. A pod without --speculative-config or '
              + 'with a wrong draft head looks like this. Save its metrics, then restart it, or roll its revision back.',
    },
  ]
