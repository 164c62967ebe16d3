// The demo's short windows, but long enough for the few requests that a tiny vLLM answers on a CPU.
(import '../../deploy/demo/config.libsonnet') + {
  minute_seconds: 2,
}
