// Can the other alerts be believed?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  [
    {
      alert: 'SpecDecodeMetricsInconsistent',
      severity: 'warning',
      dashboard: config.pack_dashboard_uid,
      for_seconds: minutes(15),
      expr: |||
        %s
        and
        %s >= %d
      ||| % [
        signals.inconsistency.expr,
        signals.drafts.record,
        config.alert_min_drafts,
      ],
      summary: 'Accepted tokens by position do not sum to all accepted tokens.',
      description: 'On %s the two differ by %s.' % [alert.where, alert.value(alert.percent)],
      impact: 'Acceptance rate, length or curve is wrong.',
      action: 'Compare the raw counters of one replica. It is a bug of the exporter or of vLLM, or two releases under one name.',
    },
    {
      alert: 'SpecDecodeBaselineMissing',
      severity: 'info',
      dashboard: config.pack_dashboard_uid,
      level: level + ['sli'],
      for_seconds: minutes(60),
      expr: |||
        (%(requests)s offset 2d)
        and
        %(requests)s
        and %(on)s
        %(drafts)s
        unless on (%(labels)s, sli)
        %(baseline)s
      ||| % {
        requests: signals.requests.record,
        on: on,
        drafts: signals.drafts.record,
        labels: promql.list(level),
        baseline: signals.latency_baseline.record,
      },
      summary: 'A service has no latency baseline although it is two days old.',
      description: 'Latency ({{ $labels.sli }}) of %s has nothing to be compared with: no live control, no baseline file, and '
                   % alert.where
                   + 'fewer than %d hours with %d requests in the last %d days.' % [
                     config.min_history_hours,
                     config.min_history_requests,
                     config.history_days,
                   ],
      impact: 'Alerts about latency regressions cannot fire for this service.',
      action: 'Give the exporter a baseline file, or accept it: with so few requests a regression cannot be told from chance.',
    },
    {
      alert: 'SpecDecodeBucketsMixed',
      severity: 'warning',
      dashboard: config.pack_dashboard_uid,
      for_seconds: minutes(30),
      level: level + ['sli'],
      expr: '%s > 0' % signals.buckets_mixed.record,
      summary: 'Replicas of one service have different histogram buckets.',
      description: 'Replicas of %s have different buckets ({{ $labels.sli }}).' % alert.where,
      impact: 'Quantiles and tail shift of the service are wrong while it lasts.',
      action: 'Finish the rollout of --custom-histogram-buckets, or of the release that changed them.',
    },
    {
      alert: 'SpecDecodeRulesLagging',
      severity: 'warning',
      dashboard: config.pack_dashboard_uid,
      level: ['rule_group'],
      for_seconds: minutes(15),
      expr: '%s\n> %s\nor\n%s > 0' % [
        signals.rules_busy.expr,
        number(config.rules_busy_max),
        signals.rules_missed.expr,
      ],
      summary: 'Rules of this pack take too long to evaluate.',
      description: 'Rule group {{ $labels.rule_group }} uses nearly all of its interval, or missed an evaluation.',
      impact: 'Series of the pack have gaps, and alerts come late or not at all.',
      action: 'Give the ruler more CPU, split services between rulers, or take SLIs out of history_tail_slis.',
    },
  ]
