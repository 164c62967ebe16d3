// The monitoring mixin: recording rules, alerts, dashboards.
(import 'config.libsonnet') + (import 'signals.libsonnet') + (import 'rules.libsonnet')
+ (import 'dashboards/dashboards.libsonnet')
