// Every threshold, window, selector and label of the pack. Override a key where the mixin is used:
//   (import 'specdec-exporter/mixin.libsonnet') + { _config+:: { alert_z_score: 3.3 } }
// Ratios are 0..1, times seconds. Thresholds that the exporter applies too come from its policy and are not repeated here.
{
  _config+:: {
    local config = self,

    // 'exporter': the specdec_* families of the sidecar. 'vllm': straight from vLLM's own names, without the sidecar; then
    // what only the log knows (method, draft model) and baselines from a file are missing. Both record the same names.
    source: 'exporter',

    // Thresholds and per-method bands. Keys of `methods` are the exporter's canonical names of a method.
    policy: import '../exporter/specdec_exporter/speculation/policy.json',

    // --- What is selected ------------------------------------------------------------------------------------------

    // Matchers added to every selector of raw series, for example 'cluster="eu-1", job=~"predictors/.+"'.
    selector: '',

    // What identifies a service. `cluster` and `namespace` may be missing from the series.
    level_labels: ['cluster', 'namespace', 'inference_service', 'model_name'],

    // What tells the replicas of a service apart. Labels that are missing do no harm.
    replica_labels: ['pod', 'instance', 'engine'],

    // Only with source 'vllm': the label of the scraped series that names the service. KServe's pods have it as a label,
    // serving_kserve_io_inferenceservice, which the pack's PodMonitor turns into inference_service.
    vllm_service_label: 'inference_service',

    // Only with source 'vllm', where no series names the method: matchers of the services by method, for example
    // { ngram: 'inference_service=~"code-.+"' }. The others get the general thresholds.
    vllm_method_selectors: {},

    // A service whose name matches is the live control of the service that the first group names: the same model, hardware
    // and traffic without speculation. It becomes that service's baseline as long as it does not draft.
    control_service_regex: '(.+)-control',

    // --- Windows and intervals ---------------------------------------------------------------------------------------

    // Of the slowest scrape. Windows must hold four of them, or one lost scrape leaves a gap.
    scrape_interval_seconds: 60,

    // Alerts and the rules that they need at once.
    evaluation_interval_seconds: 60,

    // Rules that read buckets or long windows. Below Prometheus' look-back of 5 minutes, or their series would flicker.
    slow_interval_seconds: 240,

    // The hour-by-hour history that baselines are taken from. Read with windows, never with instant selectors.
    history_interval_seconds: 3600,

    // Of the times that alerts wait (`for`, `keep_firing_for`). Shorter together with the windows to try the pack out.
    minute_seconds: 60,

    short_window_seconds: 5 * 60,  // what happens now
    long_window_seconds: 30 * 60,  // what decides
    warm_up_seconds: 15 * 60,  // cold caches and kernel compilation make the first requests slow
    settling_seconds: 15 * 60,  // then until they have left the long window, less the time that latency alerts wait
    history_days: 7,  // a week holds every hour of the week once

    // --- Sampling error ----------------------------------------------------------------------------------------------

    // An alert needs a difference of this many standard errors (a one-sided normal quantile). By chance, one look in 200
    // exceeds 2.58. Alerts look for minutes before they fire, so fewer than 1 in 1,000 are false (docs/alert-quality.md).
    // The exporter and the recorded verdict judge after a single look, so they use the policy's higher latency.z_score.
    alert_z_score: 2.58,

    // Alerts about acceptance are silent with fewer drafts than this in the long window. Drafts count, not their tokens:
    // the tokens of one draft are accepted or rejected together. About a dozen requests make a thousand drafts, and fewer
    // requests do not represent a service. The verdict needs only the policy's min_drafts.
    alert_min_drafts: 1000,

    // The same limit for one replica.
    min_replica_drafts: 500,

    // Draft tokens that are taken for a draft where releases count no drafts (0.8.3, 0.8.4): more than most use for k, so
    // that the sample is rather taken for too small.
    assumed_draft_tokens: 8,

    // Requests in the long window below which latency alerts are silent.
    min_requests: config.policy.latency.min_requests,

    // An hour counts as history of the acceptance rate with at least this many drafts, and as history of the latency with
    // at least this many requests.
    min_history_drafts: 1000,
    min_history_requests: 50,

    // Hours of history before it serves as a baseline.
    min_history_hours: 24,

    // --- Acceptance --------------------------------------------------------------------------------------------------

    // The minimum by method is the policy's (from the exporter: specdec_policy_acceptance_ratio_min). A page also needs the
    // short window to lie this far below it.
    acceptance_page_factor: 0.75,

    // Against the service's own baseline: both must hold.
    acceptance_drop_ratio: 0.85,
    acceptance_drop_min: 0.05,

    // First and last position of the curve.
    head_acceptance_min: config.policy.head_acceptance_ratio_min,
    tail_acceptance_min: config.policy.tail_acceptance_ratio_min,

    // By how much a replica must fall short of the median of the replicas.
    replica_acceptance_gap: 0.2,
    min_replicas: 3,

    // Above it, with at least so many positions, the text probably repeats itself.
    suspicious_acceptance: config.policy.acceptance_ratio_suspicious,
    suspicious_positions: config.policy.suspicious_positions,

    // Tokens per second that a service must generate before the absence of drafts means anything.
    min_generation_tokens_per_second: 1,

    // Draft tokens accepted by position must sum to all accepted ones; every release with both counters does that.
    consistency_tolerance: 0.02,

    // --- Latency -----------------------------------------------------------------------------------------------------

    // By label `sli`. `family`: the exporter's histogram without prefix and unit; `vllm`: vLLM's. Time per output token is
    // per request, never the inter-token latency, which is per engine step (one sample for all tokens of a draft).
    // `cv`: coefficient of variation that the sampling error of the mean is taken from; a histogram does not tell it.
    // `quantiles`: recorded for people; at vLLM's buckets they are off by up to 70 %, so no alert compares them.
    slis: {
      tpot: {
        title: 'time per output token',
        family: 'time_per_output_token',
        vllm: 'request_time_per_output_token',
        cv: config.policy.latency.time_per_output_token_cv,
        quantiles: [0.5, 0.99],
      },
      ttft: {
        title: 'time to first token',
        family: 'time_to_first_token',
        vllm: 'time_to_first_token',
        cv: 1.5,
        quantiles: [0.99],
      },
      e2e: {
        title: 'end-to-end latency',
        family: 'request_latency',
        vllm: 'e2e_request_latency',
        cv: 1.25,
        quantiles: [0.99],
      },
    },

    // SLIs whose buckets are kept hour by hour, so that the tail has a baseline from history. One per service, the first
    // that it has: each costs about twenty series per service. (Time per output token came with 0.11.0.) Live controls and
    // baselines from a file cover all SLIs without that.
    history_tail_slis: ['tpot', 'e2e'],

    // History's baseline is a slow hour, but a usual one: three of four were faster. So the daily peak is no regression, and
    // an incident shorter than a quarter of the history does not become the norm.
    latency_history_quantile: 0.75,

    // Of acceptance the median hour.
    acceptance_history_quantile: 0.5,

    // The body: mean over baseline mean. Mean, since histograms have it exactly.
    latency_mean_ratio: 1.15,

    // The tail: requests slower than a limit that at baseline held this share of them ...
    tail_limit_share: config.policy.latency.tail_limit_share,

    // ... beyond this many times the share that was slower at baseline, which absorbs harmless drift, ...
    tail_growth: config.policy.latency.tail_growth,

    // ... as a share of all requests.
    tail_shift_warning: config.policy.latency.tail_shift_min,
    tail_shift_critical: 0.1,

    // A wider spread: the tail shifted while the mean is within this ratio of the baseline.
    spread_mean_ratio: 1.05,

    // Slower per token than baseline by this ratio while acceptance is too low: speculation does harm.
    harmful_ratio: config.policy.latency.harmful_ratio,

    // Against a baseline without speculation: a speed-up below this is not worth its memory and its risk.
    speedup_min: config.policy.latency.speedup_min,

    // Slower than the live control by this ratio.
    control_ratio: config.policy.latency.slowdown_min,

    // --- Load --------------------------------------------------------------------------------------------------------

    // Verifying drafts is free only while the accelerator waits for memory; in big batches it costs what it saves.
    saturated_requests_running: 32,
    saturated_requests_waiting: 1,
    kv_cache_usage_max: 0.9,

    // --- Error budget ------------------------------------------------------------------------------------------------

    // Objectives by name: the share of requests within a bound, which must be a bucket boundary of the SLI. A fifth of a
    // second per token is about as slow as people read.
    slos: {
      tpot: { sli: 'tpot', le: '0.2', objective: 0.99 },
    },
    // Burn rates as multiples of the budget of 30 days: 14.4 for an hour spends 2 % of it.
    slo_burn_rates: [
      { severity: 'critical', factor: 14.4, long_seconds: 3600, short_seconds: 600 },
      { severity: 'critical', factor: 6, long_seconds: 6 * 3600, short_seconds: 1800 },
      { severity: 'warning', factor: 3, long_seconds: 24 * 3600, short_seconds: 2 * 3600 },
      { severity: 'warning', factor: 1, long_seconds: 72 * 3600, short_seconds: 6 * 3600 },
    ],

    // --- Alerts ------------------------------------------------------------------------------------------------------

    // Routing and inhibition key on it.
    component: 'specdec',

    // Added to every alert.
    alert_labels: {},

    // false for rulers that refuse keep_firing_for: Prometheus before 2.42, vmalert before 1.90.
    keep_firing_for: true,

    // Annotations' links.
    runbook_url_prefix: 'https://github.com/specdec-exporter/specdec-exporter/blob/main/rules/runbooks/',
    grafana_url: 'https://grafana.example.com',
    dashboard_uid: 'specdec-service',
    pack_dashboard_uid: 'specdec-pack',

    // --- Dashboards --------------------------------------------------------------------------------------------------

    fleet_dashboard_uid: 'specdec-fleet',
    comparison_dashboard_uid: 'specdec-ab',
    dashboard_tags: ['specdec', 'vllm'],
    dashboard_refresh: '1m',
    dashboard_from: 'now-6h',

    // The sidecar of Grafana's Helm chart looks for the label, and may read the folder from the annotation.
    dashboard_config_map: {
      name: 'dashboard',  // followed by the uid
      labels: { grafana_dashboard: '1', 'app.kubernetes.io/name': 'specdec-exporter', 'app.kubernetes.io/component': 'dashboards' },
      annotations: { grafana_folder: 'vLLM' },
    },

    // Share of its interval that a rule group may take.
    rules_busy_max: 0.8,

    // Up to so many positions the dashboard says what another k would give.
    considered_positions: 8,

    // --- PrometheusRule ----------------------------------------------------------------------------------------------

    // The operator selects objects by labels; kube-prometheus-stack by `release`.
    prometheus_rule: {
      name: 'specdec',
      labels: { 'app.kubernetes.io/name': 'specdec-exporter', 'app.kubernetes.io/component': 'rules' },
    },

    assert std.member(['exporter', 'vllm'], config.source) : "source must be 'exporter' or 'vllm', not '%s'" % config.source,
    assert config.short_window_seconds >= 4 * config.scrape_interval_seconds :
           'short_window_seconds must hold four scrapes',
    assert config.evaluation_interval_seconds * 2 <= config.short_window_seconds :
           'evaluation_interval_seconds must be at most half of short_window_seconds',
    assert config.slow_interval_seconds < 300 : 'slow_interval_seconds must be below the look-back of 5 minutes',
  },
}
