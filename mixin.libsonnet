// The monitoring mixin: recording rules and alerts, and whatever else the pack grows.
// Use it as it is, or override keys of rules/config.libsonnet:
//   (import 'mixin.libsonnet') + { _config+:: { source: 'vllm' } }
(import 'rules/config.libsonnet') + (import 'rules/rules.libsonnet')
