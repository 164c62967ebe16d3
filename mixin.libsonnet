// The monitoring mixin: recording rules, alerts, dashboards, and the configuration of Alertmanager. Vendor it with
//   jb install github.com/specdec-exporter/specdec-exporter@main
// and import it as it is, or override keys of its config.libsonnet files:
//   (import 'github.com/specdec-exporter/specdec-exporter/mixin.libsonnet') + { _config+:: { source: 'vllm' } }
(import 'rules/config.libsonnet') + (import 'rules/rules.libsonnet') + (import 'rules/rulers.libsonnet')
+ (import 'rules/scraping.libsonnet')
+ (import 'alertmanager/config.libsonnet') + (import 'alertmanager/alertmanager.libsonnet')
+ (import 'dashboards/dashboards.libsonnet')
