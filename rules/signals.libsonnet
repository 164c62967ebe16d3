// Every quantity of the pack, defined once: record name, unit, meaning, expression. Recording rules, alerts and dashboards
// read them from here. Each file of signals/ holds those that answer one question; any of them may read all others.
local promql = import 'promql.libsonnet';

// `narrow`: a dashboard's matchers for series without a model, for series without a service, and for alerts.
function(config, narrow={ target: config.selector, place: config.selector, alerts: '' })
  local source = (import 'sources.libsonnet')(config);

  // inference_service:specdec_<what>:<operation><window>
  local name(what, operation, seconds=null) =
    'inference_service:specdec_' + what + ':' + operation + (if seconds == null then '' else promql.duration(seconds));

  local signals =
    (import 'signals/counts.libsonnet')(config, source, signals, name)
    + (import 'signals/presence.libsonnet')(config, source, signals, name)
    + (import 'signals/acceptance.libsonnet')(config, source, signals, name)
    + (import 'signals/replicas.libsonnet')(config, source, signals, name)
    + (import 'signals/latency.libsonnet')(config, source, signals, name)
    + (import 'signals/load.libsonnet')(config, source, signals, name)
    + (import 'signals/trust.libsonnet')(config, source, signals, name)
    + (import 'signals/history.libsonnet')(config, source, signals, name)
    + (import 'signals/baselines.libsonnet')(config, source, signals, name)
    + (import 'signals/regression.libsonnet')(config, source, signals, name)
    + (import 'signals/gain.libsonnet')(config, source, signals, name)
    + (import 'signals/verdict.libsonnet')(config, source, signals, name)
    + (import 'signals/fleet.libsonnet')(config, source, signals, name);

  // Hidden: only dashboards read views, so rules need not render them.
  signals { views:: (import 'views.libsonnet')(config, source, signals, narrow) }
