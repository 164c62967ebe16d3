// The groups of a mixin, from its _config and _signals.
local promql = import 'promql.libsonnet';
local text = import 'text.libsonnet';

{
  local config = $._config,
  local s = $._signals,
  local series = (import 'series.libsonnet')(config),

  local rules(signal) = [
    { record: signal.record, expr: promql.strip(each.expr) }
    + (if 'labels' in each then { labels: each.labels } else {})
    for each in std.get(signal, 'by', [signal])
  ],
  local group(name, minutes, rules) = {
    name: 'specdec-' + name,
    interval: config.minutes(minutes),
  } + config.group_fields + { rules: rules },
  local recorded(name, minutes, signals) = group(name, minutes, std.flatMap(rules, signals)),
  local specs = std.flatMap(function(file) file(config, s, series), [
    import 'alerts/up.libsonnet',
    import 'alerts/drafts.libsonnet',
    import 'alerts/latency.libsonnet',
    import 'alerts/data.libsonnet',
  ]),
  local alerts(name, minutes, names) = group(name, minutes, [
    text.alert(config, spec)
    for spec in specs
    if std.member(names, std.strReplace(spec.alert, 'SpecDecode', ''))
  ]),

  prometheusRules+:: {
    groups+: [
      recorded('drafts', 1, [
        s.drafts,
        s.tokens,
        s.acceptance,
        s.acceptance_now,
        s.length,
        s.acceptance_min,
        s.acceptance_usual,
        s.up,
        s.busy,
        s.engines,
        s.settled,
      ]),
      recorded('latency', 2, [s.requests, s.latency, s.latency_now, s.beyond, s.buckets_differ, s.baseline, s.ratio, s.ratio_now, s.tail, s.speedup]
                             + (if config.source == 'vllm' then [] else [s.verdict])),
      recorded('history', 60, [s.latency_hour, s.latency_usual, s.acceptance_hour, s.acceptance_usual_hour]),
    ],
  },
  prometheusAlerts+:: {
    groups+: [
      alerts('alerts-up', 1, ['TargetDown', 'EngineStalled']),
      alerts('alerts-drafts', 1, ['NotDrafting', 'AcceptanceLow']),
      alerts('alerts-latency', 2, ['Harmful', 'NotPayingOff', 'P99Regression']),
      // These read long windows of every replica.
      alerts('alerts-restarts', 2, ['RestartLoop']),
      alerts('alerts-replicas', 4, ['ReplicaOutlier']),
      alerts('alerts-load', 4, ['LoadTooHigh']),
      alerts('alerts-data', 4, ['DataUntrusted']),
    ],
  },
}
