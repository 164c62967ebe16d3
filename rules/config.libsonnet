// Every threshold, window, selector and label of the pack. Override a key where the mixin is used:
//   (import 'specdec-exporter/mixin.libsonnet') + { _config+:: { alert_z_score: 3.3 } }
// Ratios are 0..1, times are seconds. Thresholds that the exporter also applies come from its policy.

// The package says the version once.
local version = std.split(std.split(importstr '../exporter/specdec_exporter/__init__.py', '__version__ = "')[1], '"')[0];

{
  _config+:: {
    local config = self,

    // 'exporter': the specdec_* families of the sidecar. 'vllm': vLLM's own names, without the sidecar. Then method, draft
    // model (only the log has them) and baseline files are missing. Both sources record the same names.
    source: 'exporter',

    // Which rules this ruler evaluates. 'all': everything. Where several Prometheus share the services (docs/scale.md), each of
    // them has 'shard': all rules of a service. One above them has 'global': the alert about many services, and sums over all.
    layer: 'all',

    // Thresholds, in general and by method. Keys of `methods` are the exporter's names of the methods.
    policy: import '../exporter/specdec_exporter/speculation/policy.json',

    // --- What is selected ------------------------------------------------------------------------------------------

    // Matchers for every selector of raw series, for example 'cluster="eu-1", job=~"predictors/.+"'.
    selector: '',

    // The labels that identify a service. The series may lack `cluster` and `namespace`.
    level_labels: ['cluster', 'namespace', 'inference_service', 'model_name'],

    // The labels that tell the replicas of a service apart. The series may lack some of them.
    replica_labels: ['pod', 'instance', 'engine'],

    // The label that tells a canary from the stable revision, if the series have one: an alert about a replica names it. In the
    // pack's PodMonitors it is the pod's ReplicaSet.
    revision_label: 'revision',

    // A matcher that leaves out the prefill pods of disaggregated serving. They generate one token per request, so they draft
    // nothing, and their times per output token are all 0. KServe's monitors name the label so. Series without it count.
    role_selector: 'llm_isvc_role!="prefill"',

    // Only with source 'vllm': the prefix of vLLM's names where it is not vLLM's own or Ray's. It may be a regular expression;
    // a plain prefix gives plain names. KServe's early monitors of an LLMInferenceService put kserve_ before vLLM's prefix;
    // later releases scrape every pod twice, once with each prefix. Do not allow both, or requests count twice.
    vllm_prefix: '',

    // Only with source 'vllm': the label that names the service in the scraped series. KServe's pods have the label
    // serving_kserve_io_inferenceservice; the pack's PodMonitor renames it to inference_service. KServe's monitors of an
    // LLMInferenceService name the label llm_isvc_name. Series without the label are named after their job.
    vllm_service_label: 'inference_service',

    // Only with source 'vllm', which has no series with the method: matchers of the services by method, for example
    // { ngram: 'inference_service=~"code-.+"' }. The method of all others is not known.
    vllm_method_selectors: {},

    // Only with source 'vllm', which has no series with it: a matcher of the services with enable_adaptive_verification, for
    // example 'inference_service=~"code-.+"'. vLLM verifies only part of each of their drafts and counts all of it.
    vllm_adaptive_verification_selector: '',

    // Names of live controls: the same model, hardware and traffic as another service, without speculation. The first group
    // is the name of that other service. A control is its baseline as long as the control does not draft.
    control_service_regex: '(.+)-control',

    // A service that could not be read lately and starts, or a replica, may take this long to load its model.
    cold_start_seconds: 20 * 60,

    // --- Windows and intervals ---------------------------------------------------------------------------------------

    // The interval of the slowest scrape. Windows must hold four scrapes, or one lost scrape leaves a gap.
    scrape_interval_seconds: 60,

    // For alerts, and for the records that they need without delay.
    evaluation_interval_seconds: 60,

    // For rules that read buckets or long windows. It must be below Prometheus' look-back of 5 minutes, or their series have
    // gaps.
    slow_interval_seconds: 240,

    // For the history that baselines come from, hour by hour. Read it with windows, never with instant selectors.
    history_interval_seconds: 3600,

    // Fields that every group of rules gets, for example { limit: 100000, query_offset: '30s' }: a limit of series and alerts for each
    // rule, and rules that look back, where samples arrive late (Prometheus from 2.53 on).
    group_fields: {},

    // The unit of `for` and `keep_firing_for`. To try the pack out, shorten it together with the windows.
    minute_seconds: 60,

    short_window_seconds: 5 * 60,  // what happens now
    long_window_seconds: 30 * 60,  // what alerts and verdict decide by
    warm_up_seconds: 15 * 60,  // cold caches and kernel compilation make the first requests slow
    settling_seconds: 15 * 60,  // time until warm-up samples leave the long window, minus the latency alerts' `for`
    history_days: 7,  // a week holds every hour of the week once

    // A replica that restarts this often within the window is in a restart loop.
    restart_window_seconds: 3 * 3600,
    restarts_min: 3,

    // --- Sampling error ----------------------------------------------------------------------------------------------

    // Alerts about acceptance need a difference of this many standard errors (a one-sided normal quantile). By chance, one look in
    // 200 exceeds 2.58. They look for minutes before they fire, so fewer than 1 in 1,000 are false where requests are
    // independent. docs/evidence/alert-quality.md tells of requests that are alike. Alerts about latency use the policy's
    // latency.z_score, as the exporter does.
    alert_z_score: 2.58,

    // Alerts about acceptance are silent with fewer drafts than this in the long window. About a dozen requests make a thousand
    // drafts, and fewer requests do not represent a service. The verdict needs only the policy's min_drafts and
    // min_effective_drafts.
    alert_min_drafts: 1000,

    // SpecDecodeAcceptanceLow says as `info` that the acceptance rate is below this, and the Alertmanager fragment sends that to
    // nobody. Whether such a rate pays depends on method, k and load.
    acceptance_flag: config.policy.acceptance_ratio_flag,

    // Latency alerts are silent with fewer requests than this in the long window.
    min_requests: config.policy.latency.min_requests,

    // History becomes a baseline after this many hours.
    min_history_hours: 24,

    // Only hours of the same epoch are compared: the same k and, with the exporter, the same values of these labels of
    // specdec_predictor_info. Without 'vllm_version', a new release is compared with the one before.
    epoch_facts: ['method', 'draft_model', 'vllm_version'],

    // --- Acceptance --------------------------------------------------------------------------------------------------

    quantised_models: '(?i).*(awq|gptq|gguf|bnb|fp8|nvfp4|mxfp4|int4|int8|w4a16|w8a8|w8a16).*',

    // --- Latency -----------------------------------------------------------------------------------------------------

    // By label `sli`. `family`: the exporter's histogram without prefix and unit. `vllm`: vLLM's histogram. Time per output
    // token is per request. The inter-token latency does not fit: it is per engine step (one sample for all tokens of a draft).
    // `cv`: coefficient of variation, for the sampling error of the mean. A histogram does not contain it.
    slis: {
      tpot: {
        title: 'time per output token',
        family: 'time_per_output_token',
        vllm: 'request_time_per_output_token',
        cv: config.policy.latency.time_per_output_token_cv,
      },
      ttft: {
        title: 'time to first token',
        family: 'time_to_first_token',
        vllm: 'time_to_first_token',
        cv: 1.5,
      },
      e2e: {
        title: 'end-to-end latency',
        family: 'request_latency',
        vllm: 'e2e_request_latency',
        cv: 1.25,
      },
    },

    // SLIs with hourly buckets, so that history can be a baseline for the tail. Each costs about twenty series per service, so
    // only the first SLI that the service has is kept. (Time per output token exists since 0.11.0.) Live controls and baseline
    // files cover all SLIs without this.
    history_tail_slis: ['tpot', 'e2e'],

    // --- Alerts ------------------------------------------------------------------------------------------------------

    // The label `component` of all alerts. Routing and inhibition match it.
    component: 'specdec',

    // Added to every alert.
    alert_labels: {},

    // false for rulers that refuse keep_firing_for: Prometheus before 2.42, vmalert before 1.90.
    keep_firing_for: true,

    // Links in the annotations. The runbooks are those of the release that the rules belong to, so that they fit each other.
    runbook_url_prefix: 'https://github.com/specdec-exporter/specdec-exporter/blob/v%s/rules/runbooks/' % version,
    // The address of Grafana, for example 'https://grafana.mine.net'. Without it, dashboard_url is relative: it works within
    // Grafana, and messages of Alertmanager leave the link out.
    grafana_url: '',
    dashboard_uid: 'specdec-service',
    pack_dashboard_uid: 'specdec-pack',

    // --- Dashboards --------------------------------------------------------------------------------------------------

    fleet_dashboard_uid: 'specdec-fleet',
    comparison_dashboard_uid: 'specdec-ab',
    dashboard_tags: ['specdec', 'vllm'],

    // false hides the variable `cluster`, where there is only one.
    show_multi_cluster: true,

    // The sidecar of Grafana's Helm chart selects by the label, and can read the folder from the annotation.
    dashboard_config_map: {
      name: 'dashboard',  // followed by the uid
      labels: { grafana_dashboard: '1', 'app.kubernetes.io/name': 'specdec-exporter', 'app.kubernetes.io/component': 'dashboards' },
      annotations: { grafana_folder: 'vLLM' },
    },

    // So many services of a cluster, and this share of them, are one incident: one page instead of one for each.
    many_services: { min: 5, share: 0.2 },

    // --- PrometheusRule ----------------------------------------------------------------------------------------------

    // The operator selects objects by labels. kube-prometheus-stack selects by `release`.
    prometheus_rule: {
      name: 'specdec',
      labels: { 'app.kubernetes.io/name': 'specdec-exporter', 'app.kubernetes.io/component': 'rules' },
    },

    assert std.member(['exporter', 'vllm'], config.source) : "source must be 'exporter' or 'vllm', not '%s'" % config.source,
    assert std.member(['all', 'shard', 'global'], config.layer) : "layer must be 'all', 'shard' or 'global', not '%s'" % config.layer,
    assert config.short_window_seconds >= 4 * config.scrape_interval_seconds :
           'short_window_seconds must hold four scrapes',
    assert config.evaluation_interval_seconds * 2 <= config.short_window_seconds :
           'evaluation_interval_seconds must be at most half of short_window_seconds',
    assert config.slow_interval_seconds < 300 : 'slow_interval_seconds must be below the look-back of 5 minutes',
  },
}
