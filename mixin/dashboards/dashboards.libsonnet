// The dashboards of a mixin, by file name.
{
  local common = (import 'common.libsonnet')($._config, $._signals, [
    rule
    for group in $.prometheusAlerts.groups
    for rule in group.rules
    if 'alert' in rule
  ]),

  grafanaDashboards+:: {
    'specdec-fleet.json': (import 'fleet.libsonnet')($._config, common),
    'specdec-service.json': (import 'service.libsonnet')($._config, common),
    'specdec-ab.json': (import 'ab.libsonnet')($._config, common),
    'specdec-pack.json': (import 'pack_health.libsonnet')($._config, common),
  },

  // For ConfigMaps with the dashboards, by the sidecar of Grafana's Helm chart: it selects by the label, and can read the folder
  // from the annotation. The name is followed by the uid.
  specdecDashboards:: {
    configMap: {
      name: 'dashboard',
      labels: { grafana_dashboard: '1', 'app.kubernetes.io/name': 'specdec-exporter', 'app.kubernetes.io/component': 'dashboards' },
      annotations: { grafana_folder: 'vLLM' },
    },
  },
}
