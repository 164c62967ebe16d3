// The demo's short windows, but long enough for the few requests that a tiny vLLM answers on a CPU.
(import '../../deploy/demo/config.libsonnet') + {
  long_window_seconds: 60,
  minute_seconds: 2,
}
