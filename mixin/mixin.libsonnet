// The monitoring mixin: recording rules and alerts.
(import 'config.libsonnet') + (import 'signals.libsonnet') + (import 'rules.libsonnet')
