// The monitoring mixin: recording rules and alerts, and whatever else the pack grows.
// Use it as it is, or override keys of its config.libsonnet files:
//   (import 'mixin.libsonnet') + { _config+:: { source: 'vllm' } }
(import 'rules/config.libsonnet') + (import 'rules/rules.libsonnet')
+ (import 'alertmanager/config.libsonnet') + (import 'alertmanager/alertmanager.libsonnet')
+ (import 'dashboards/dashboards.libsonnet')
