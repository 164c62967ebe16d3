// Where raw series come from: the only file of the pack that knows how the exporter and vLLM spell things.
// Everything is summed over replicas and engines before anything is divided.
local promql = import 'promql.libsonnet';

// `exporter` and `vllm`: without prefix and suffix. `log`: the exporter reconstructs it from the log, too.
// `v0`: false where vLLM's V0 engine (up to 0.9.2) writes something else under this name: it adds lifetime totals to its
// counters again and again, and counts steps as generated tokens.
// `vllm_before`: an older name; releases that have both write the same samples under both.
local counters = {
  drafts: { exporter: 'drafts', vllm: 'spec_decode_num_drafts', log: 'drafts', v0: true },
  draft_tokens: { exporter: 'draft_tokens', vllm: 'spec_decode_num_draft_tokens', log: 'draft_tokens', v0: false },
  accepted_tokens: {
    exporter: 'accepted_tokens',
    vllm: 'spec_decode_num_accepted_tokens',
    log: 'accepted_tokens',
    v0: false,
  },
  accepted_tokens_per_position: {
    exporter: 'accepted_tokens_per_position',
    vllm: 'spec_decode_num_accepted_tokens_per_pos',
    log: 'accepted_tokens_per_position',
    v0: true,
  },
  generation_tokens: { exporter: 'generation_tokens', vllm: 'generation_tokens', v0: true },
  preemptions: { exporter: 'preemptions', vllm: 'num_preemptions', v0: true },
};

local gauges = {
  requests_running: { exporter: 'requests_running', vllm: 'num_requests_running' },
  requests_waiting: { exporter: 'requests_waiting', vllm: 'num_requests_waiting' },
  // Renamed in 0.9.2.
  kv_cache_usage: { exporter: 'kv_cache_usage_ratio', vllm: '(kv|gpu)_cache_usage_perc' },
};

function(config)
  local level = config.level_labels;

  local selector(name, matchers=[]) = name + promql.braces(matchers + [config.selector]);

  // vLLM writes vllm:, collectors that allow no colon vllm_, and Ray Serve puts ray_ in front of either.
  local vllmSelector(name, matchers=[]) =
    promql.braces(['__name__=~"(ray_)?vllm[:_]%s"' % name] + matchers + [config.selector]);

  // Series of vLLM with the label that names the service under the name that the pack uses.
  local named(expression) =
    if config.source == 'exporter' || config.vllm_service_label == 'inference_service' then expression
    else
      'label_replace(%s, "inference_service", "$1", "%s", "(.*)")' % [expression, config.vllm_service_label];

  local aggregate(operator, expression, extra=[]) =
    '%s by (%s) (%s)' % [operator, promql.list(level + extra), named(expression)];

  local range(operation, expression, seconds) = '%s(%s[%s])' % [operation, expression, promql.duration(seconds)];
  local ranged(operation, seconds) = function(series) range(operation, series, seconds);

  {
    local source = self,

    // Series of one kind, unaggregated. `of` makes what is wanted of a selector, such as its rate.
    exporter:: {
      counter(name, of=function(series) series):: of(selector('specdec_%s_total' % counters[name].exporter)),
      gauge(name):: selector('specdec_' + gauges[name].exporter),
      histogram(sli, suffix, matchers=[])::
        selector('specdec_%s_seconds_%s' % [config.slis[sli].family, suffix], matchers),
      steps(operation, seconds):: range(operation, selector('specdec_step_latency_seconds_count'), seconds),
      v0:: selector('specdec_predictor_info', ['engine_generation="v0"']),
    },
    vllm:: {
      // Ray without _total before 2.10, and since then both, the same samples twice: then only the right name counts. One
      // regular expression would not do, for a rate of both is an error.
      counter(name, of=function(series) series)::
        '(%s or %s)' % [of(vllmSelector(counters[name].vllm + '_total')), of(vllmSelector(counters[name].vllm))],
      gauge(name):: vllmSelector(gauges[name].vllm),
      histogram(sli, suffix, matchers=[])::
        vllmSelector('%s_seconds_%s' % [config.slis[sli].vllm, suffix], matchers),
      // Both names in 0.10.2 to 0.11.2, hence `or` and no regular expression.
      steps(operation, seconds)::
        range(operation, vllmSelector('inter_token_latency_seconds_count'), seconds)
        + ' or ' + range(operation, vllmSelector('time_per_output_token_seconds_count'), seconds),
      v0:: vllmSelector('spec_decode_draft_acceptance_rate'),
    },
    raw:: source[config.source],

    // Services with an engine of generation V0.
    v0:: source.onV0('group'),
    onV0(operator):: aggregate(operator, source.raw.v0),

    // increase or rate of a counter, by service.
    counter(operation, name, seconds, extra=[])::
      local own = aggregate('sum', source.raw.counter(name, ranged(operation, seconds)), extra);
      local usable = own + (if counters[name].v0 then '' else '\nunless on (%s)\n%s' % [promql.list(level), source.v0]);
      // The same figure from the log, where the metrics do not have it: vLLM before 0.8.5, and V0 engines.
      local from_log = aggregate(
        'sum', range(operation, selector('specdec_log_%s_total' % counters[name].log), seconds), extra
      );
      if config.source == 'exporter' && 'log' in counters[name] then promql.firstOf([usable, from_log], level) else usable,

    // The same without a stand-in from the log.
    summed(operation, name, seconds):: aggregate('sum', source.raw.counter(name, ranged(operation, seconds))),

    gauge(operator, name):: aggregate(operator, source.raw.gauge(name)),

    // One sample per engine step of a request, steps without a draft included.
    steps(operation, seconds):: aggregate('sum', source.raw.steps(operation, seconds)),

    // Count, sum or buckets of a latency. Buckets of replicas with different boundaries, now or within the window, have no
    // sum: each boundary would count some of the replicas, and the others' requests would pass for slower ones.
    histogram(operation, sli, suffix, seconds, extra=[], matchers=[])::
      local sum = aggregate('sum', range(operation, source.raw.histogram(sli, suffix, matchers), seconds), extra);
      if suffix != 'bucket' then sum
      else promql.group(
        '%s\nunless on (%s)\nmax_over_time(%s{sli="%s"}[%s])' % [
          sum,
          promql.list(level),
          source.mixed_buckets,
          sli,
          promql.duration(seconds + config.slow_interval_seconds),
        ]
      ),

    // The record of the services whose replicas have different boundaries.
    mixed_buckets:: 'inference_service:specdec_latency_buckets:mixed',

    // Replicas with each boundary.
    replicasByBound(sli):: aggregate('count', source.raw.histogram(sli, 'bucket'), ['le']),

    // The boundary as a matcher: 5 and 5.0 are the same bound.
    bound(le):: 'le=~"%s(\\\\.0)?"' % std.strReplace(le, '.', '\\\\.'),

    // A matcher for raw series of services by name.
    serviceMatches(regex)::
      '%s=~"%s"' % [if config.source == 'vllm' then config.vllm_service_label else 'inference_service', regex],

    // The exporter's families about a service, whatever the source of the figures.
    family(name, matchers=[]):: selector('specdec_' + name, matchers),

    // Replicas that started, or started again, within the time; and all replicas. One that was there at any moment of as
    // long a time before has not started: a scrape that failed is no start.
    replicasStarted(seconds)::
      local generated(of) = source.raw.counter('generation_tokens', of);
      aggregate('count', '(%s > 0) or (%s unless %s)' % [
        generated(ranged('resets', seconds)),
        generated(function(series) series),
        generated(function(series) 'last_over_time(%s[%s] offset %s)' % [
          series,
          promql.duration(seconds),
          promql.duration(seconds),
        ]),
      ]),
    replicas:: aggregate('count', source.raw.counter('generation_tokens')),

    // By replica: the labels of the pack's level and those that tell replicas apart.
    replicaCounter(operation, name, seconds)::
      aggregate('sum', source.raw.counter(name, ranged(operation, seconds)), config.replica_labels),

    // Whether the predictor answers, by replica: 1 or 0. And the labels that such a series has.
    up:: {
      labels: [label for label in level if config.source == 'vllm' || label != 'model_name'],
      // Without the sidecar the target's own `up`, for targets that served vLLM's metrics within the last hour.
      expr:
        if config.source == 'exporter' then selector('specdec_up')
        else
          local lately(series) = range('last_over_time', series, 3600);
          local replicas = 'group by (%s) (%s)' % [
            promql.list(level + ['job', 'instance']),
            // Gauges are absent until the first request.
            named('%s or %s' % [lately(source.raw.gauge('requests_running')), source.raw.counter('draft_tokens', lately)]),
          ];
          local joined(labels) =
            'max by (%s) (up) * on (%s) group_right () %s' % [promql.list(labels), promql.list(labels), replicas];
          local place = [label for label in level if label != 'inference_service' && label != 'model_name'];
          // Equal addresses may stand in several clusters; a label of the series may not be one of the target.
          promql.group(
            promql.firstOf([joined(place + ['job', 'instance']), joined(['job', 'instance'])], level + ['job', 'instance'])
          ),
      // What every target has that is scraped, whether its predictor answers or not if there is a sidecar to say so.
      seen(offset)::
        if config.source == 'exporter' then selector('specdec_up') + offset
        else named(source.raw.gauge('requests_running') + offset),
    },
  }
