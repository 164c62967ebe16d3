// Every setting and threshold of the pack. Override a key where the mixin is used:
//   (import 'mixin.libsonnet') + { _config+:: { source: 'vllm', min_requests: 500 } }
// Ratios are 0..1, times are seconds.
local promql = import 'promql.libsonnet';

{
  _config+:: {
    local config = self,

    // --- What is read ------------------------------------------------------------------------------------------------

    // 'exporter': the specdec_* families of the sidecar. 'vllm': vLLM's own metrics, without the sidecar. Then method, draft
    // model, baseline files and measured speed-up are missing. Both record the same names.
    source: 'exporter',

    // Matchers for every selector of raw series, for example 'cluster="eu-1", job=~"predictors/.+"'.
    selector: '',

    // A matcher that leaves out the prefill pods of disaggregated serving, by KServe's label. Series without the label count.
    role_selector: 'llm_isvc_role!="prefill"',

    // A service that is named so runs the same model and traffic as the one in the first group, without speculation: its live
    // control. It is the baseline as long as it does not draft.
    control_service_regex: '(.+)-control',

    // Only with source 'vllm': the prefix of vLLM's names, a regular expression or plain; the label that names the service
    // (series without it are named after their job); and a matcher of the services with enable_adaptive_verification, of
    // which vLLM verifies only a part of each draft and counts all of it.
    vllm_prefix: '(ray_)?vllm[:_]',
    vllm_service_label: 'inference_service',
    vllm_adaptive_selector: '',

    // --- Thresholds --------------------------------------------------------------------------------------------------

    // Of the exporter: `make render` writes these, and a test holds them equal. `counting_at_end`: the inference engines whose
    // counters grow when a request ends. Of a long answer, they show nothing for minutes.
    // <policy>
    acceptance: { flag: 0.5, broken: 0.1, broken_tokens: 0.5, outlier: 0.2 },
    assumed: { light: [[2, 0.2], [4, 0.12], [null, 0.09]], heavy: 0.5, light_requests: 8.0, heavy_requests: 32.0 },
    min_requests: 200,
    speedup: { wanted: 1.05, harmful: 0.9 },
    tail: { held: 0.9, growth: 1.5, ticket: 0.01, page: 0.1 },
    counting_at_end:: 'llamacpp|sglang|tensorrt_llm',
    runbook_url_prefix: 'https://github.com/specdec-exporter/specdec-exporter/blob/main/rules/runbooks/',
    // </policy>

    // Alerts about acceptance are silent with fewer drafts in 30 minutes: about a dozen requests.
    min_drafts: 1000,

    // A service that generates fewer tokens a second is idle.
    min_tokens: 1,

    // The acceptance rate is low below this share of break-even, or of what is usual; the length, of what is usual. A fall needs so
    // many requests. Where exporters say no levels by load, a step of so many tokens is not low.
    low: { break_even: 0.95, usual: 0.85, usual_length: 0.95, requests: 20, length: 2.5 },

    // History is a baseline after so many hours with at least so many requests or drafts. The higher the quantile, the slower is
    // the hour of the week that is usual.
    history: { hours: 24, requests: 50, drafts: 500, quantile: 0.75 },

    // How many times as slow as its baseline a service is: on average over 30 minutes, and over 5 minutes for a page. By chance,
    // the mean of n requests may be `chance` / sqrt(n) above, of `requests` at least, and fewer than `tail_requests` beyond a boundary
    // say nothing. A page needs this share of engines that have run for 20 minutes; for its tail, the last 5 minutes may be no
    // faster than `lasting` of the 30.
    slower: { ratio: 1.2, now: 1.3, chance: 4, requests: 30, tail_requests: 8, settled: 0.5, lasting: 0.9 },

    // A baseline file says nothing about more than this many times the load of its recording.
    baseline_load_max: 1.3,

    // A replica takes this many times as long as the others, over so many requests.
    outlier: { latency: 1.5, requests: 50 },

    // Too much load: KV cache in use while requests are preempted; or requests waiting in a batch that is larger than this.
    load: { kv_cache: 0.9, waiting: 1, running: 32 },

    // A ticket after so many restarts in three hours, or as many times out of reach and for this share of an hour; a page where the
    // service cannot be read for this share of half an hour.
    restarts: { times: 3, unread: 0.1, away: 0.25 },

    // --- Rules and texts ---------------------------------------------------------------------------------------------

    // The minute of all windows, intervals and waits. To try the pack out, make it shorter.
    minute_seconds: 60,

    // Fields that every group gets, for example { limit: 100000, query_offset: '30s' }.
    group_fields: {},

    // false for rulers that refuse keep_firing_for: Prometheus before 2.42, vmalert before 1.90.
    keep_firing_for: true,

    // Added to every alert.
    alert_labels: {},

    // The address of Grafana, for example 'https://grafana.mine.net'. Without it, dashboard_url works within Grafana only.
    grafana_url: '',

    // Metadata of the PrometheusRule. kube-prometheus-stack selects by the label `release`.
    prometheus_rule: {
      name: 'specdec',
      labels: { 'app.kubernetes.io/name': 'specdec-exporter', 'app.kubernetes.io/component': 'rules' },
    },

    // false hides the dashboards' variable `cluster`.
    show_multi_cluster: true,

    // --- Not settings ------------------------------------------------------------------------------------------------

    // The labels that identify a service; `cluster` and `namespace` may be missing. Those of one replica come on top.
    service:: 'cluster, namespace, inference_service',
    target:: 'cluster, namespace, job, instance, pod',
    role:: config.service + ', llm_isvc_role',
    level:: config.service + ', model_name',
    replica:: config.level + ', pod, instance, engine, revision',
    component:: 'specdec',
    minutes(n):: promql.duration(n * config.minute_seconds),

    assert std.member(['exporter', 'vllm'], config.source) : "source must be 'exporter' or 'vllm', not '%s'" % config.source,
  },
}
