// The monitoring mixin: recording rules, alerts, dashboards, and the configuration of Alertmanager. Vendor this folder with
//   jb install github.com/specdec-exporter/specdec-exporter/mixin@main
// and import it as it is, or override keys of config.libsonnet:
//   (import 'github.com/specdec-exporter/specdec-exporter/mixin/mixin.libsonnet') + { _config+:: { source: 'vllm' } }
(import 'config.libsonnet') + (import 'signals.libsonnet') + (import 'rules.libsonnet') + (import 'rulers.libsonnet')
+ (import 'dashboards/dashboards.libsonnet')
+ (import 'alertmanager/config.libsonnet') + (import 'alertmanager/alertmanager.libsonnet')
