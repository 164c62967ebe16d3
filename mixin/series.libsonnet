// Raw series: the only file that knows how the exporter and vLLM name them.
local promql = import 'promql.libsonnet';

// What: the exporter's name, vLLM's name without its prefix.
local names = {
  drafts: ['specdec_drafts_total', 'spec_decode_num_drafts_total'],
  draft_tokens: ['specdec_draft_tokens_total', 'spec_decode_num_draft_tokens_total'],
  accepted_tokens: ['specdec_accepted_tokens_total', 'spec_decode_num_accepted_tokens_total'],
  accepted_by_position: ['specdec_accepted_tokens_per_position_total', 'spec_decode_num_accepted_tokens_per_pos_total'],
  generation_tokens: ['specdec_generation_tokens_total', 'generation_tokens_total'],
  prompt_tokens: ['specdec_prompt_tokens_total', 'prompt_tokens_total'],
  preemptions: ['specdec_preemptions_total', 'num_preemptions_total'],
  finished: ['specdec_requests_finished_total', 'request_success_total'],
  running: ['specdec_requests_running', 'num_requests_running'],
  waiting: ['specdec_requests_waiting', 'num_requests_waiting'],
  kv_cache: ['specdec_kv_cache_usage_ratio', 'kv_cache_usage_perc'],
  tpot: ['specdec_time_per_output_token_seconds', 'request_time_per_output_token_seconds'],
  ttft: ['specdec_time_to_first_token_seconds', 'time_to_first_token_seconds'],
  e2e: ['specdec_request_latency_seconds', 'e2e_request_latency_seconds'],
  // One sample for each engine step of a request, not for each token. vLLM's name since 0.10.2.
  step: ['specdec_step_latency_seconds', 'inter_token_latency_seconds'],
};

function(config)
  local vllm = config.source == 'vllm';
  local label = if vllm then config.vllm_service_label else 'inference_service';

  // vLLM writes vllm:, collectors that allow no colon vllm_, and Ray Serve puts ray_ before either. A plain prefix gives plain
  // names, which cost less, and which are all that some rulers allow.
  local select(name, matchers) =
    local plain = std.length(std.findSubstr('(', name) + std.findSubstr('[', name)) == 0;
    local given = [m for m in matchers + [config.selector] if m != ''];
    if plain then name + promql.braces(given) else promql.braces(['__name__=~"%s"' % name] + given);

  {
    // One kind of series. Prefill pods of disaggregated serving draft nothing, and their time per output token is 0.
    of(what, suffix='', matchers=[], role=config.role_selector)::
      select((if vllm then config.vllm_prefix + names[what][1] else names[what][0]) + suffix, [role] + matchers),
    // A family that only the exporter has.
    family(name, matchers=[]):: select(name, matchers),
    // vLLM's own series name their service by another label, or by nothing: then their job is the service.
    named(expression)::
      if !vllm then expression
      else
        'label_replace(label_join(%s,"s",";","%s","job"),"inference_service","$1$2","s","(.+);.*|;(.*)")' % [expression, label],

    // Leaves out the services of these inference engines, which only the exporter can read.
    without_engines(expression, matcher)::
      if vllm then expression
      else promql.strip(expression) + '\nunless on (%s) last_over_time(%s[%s])' % [
        config.level,
        self.family('specdec_predictor_info', ['inference_engine' + matcher]),
        config.minutes(30),
      ],

    by(operator, labels, expression):: promql.by(operator, labels, self.named(expression)),

    // Sums over a service, such as the increase of a counter within so many minutes.
    sum(operation, what, minutes, suffix='', more='', matchers=[])::
      self.by('sum', config.level + more, promql.range(operation, self.of(what, suffix, matchers), config.minutes(minutes))),
    // Sum of a histogram / its count.
    mean(what, minutes)::
      self.sum('increase', what, minutes, '_sum') + '\n/ (' + self.sum('increase', what, minutes, '_count') + ' > 0)',

    // Whether targets answer, not aggregated. `up` has the labels of the target alone. Without the sidecar it is that of targets with
    // the label of a service, or that served vLLM's metrics within two hours.
    up:
      local labelled = select('up', [label + '!=""']);
      if !vllm then labelled
      else '(%s or %s and on (%s) last_over_time(%s[%s]))' % [labelled, self.own_up, config.target, self.of('generation_tokens'), config.minutes(120)],
    // The same, of the predictor itself.
    own_up: select(if vllm then 'up' else 'specdec_up', []),
  }
