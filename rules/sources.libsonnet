// Raw series. Only this file of the pack knows the names that the exporter and vLLM use.
// Every sum over replicas and engines comes before any division.
local promql = import 'promql.libsonnet';

// `exporter` and `vllm`: the name without prefix and suffix. `log`: the exporter also reconstructs it from the log.
// `v0`: false where vLLM's V0 engine (up to 0.9.2) writes other values under this name: it adds lifetime totals to its
// counters again and again, and counts steps as generated tokens.
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
  prompt_tokens: { exporter: 'prompt_tokens', vllm: 'prompt_tokens', v0: true },
  preemptions: { exporter: 'preemptions', vllm: 'num_preemptions', v0: true },
  // Renamed in 0.9.2.
  prefix_cache_queries: {
    exporter: 'prefix_cache_queries',
    vllm: 'prefix_cache_queries',
    before: 'gpu_prefix_cache_queries',
    v0: false,
  },
  prefix_cache_hits: { exporter: 'prefix_cache_hits', vllm: 'prefix_cache_hits', before: 'gpu_prefix_cache_hits', v0: false },
};

local gauges = {
  requests_running: { exporter: 'requests_running', vllm: 'num_requests_running' },
  requests_waiting: { exporter: 'requests_waiting', vllm: 'num_requests_waiting' },
  // Renamed in 0.9.2.
  kv_cache_usage: { exporter: 'kv_cache_usage_ratio', vllm: 'kv_cache_usage_perc', before: 'gpu_cache_usage_perc' },
};

function(config)
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);

  local selector(name, matchers=[]) = name + promql.braces(matchers + [config.role_selector, config.selector]);

  // vLLM writes vllm:. Collectors that allow no colon write vllm_. Ray Serve puts ray_ before either.
  local vllmPrefix = if config.vllm_prefix == '' then '(ray_)?vllm[:_]' else config.vllm_prefix;

  // A plain name if neither part is a regular expression: that costs less, and some rulers allow nothing else.
  local vllmSelector(name, matchers=[]) =
    local full = vllmPrefix + name;
    if std.length(std.findSubstr('(', full) + std.findSubstr('[', full)) == 0 then selector(full, matchers)
    else selector('', ['__name__=~"%s"' % full] + matchers);

  // vLLM's series, with the service's label renamed to the pack's inference_service. Series without that label are named
  // after their job: otherwise all of them would be one service.
  local named(expression) =
    if config.source == 'exporter' then expression
    else
      ('label_replace(label_join(%(expression)s, "service", ";", "%(label)s", "job"), '
       + '"inference_service", "$1$2", "service", "([^;]+);.*|;(.*)")') % {
        expression: expression,
        label: config.vllm_service_label,
      };

  local aggregate(operator, expression, extra=[]) = promql.by(operator, level + extra, named(expression));

  local replica = config.replica_labels + [config.revision_label];

  local range = promql.range;
  local ranged(operation, seconds, ago=0) = function(series) range(operation, series, seconds, ago);

  {
    local source = self,

    // Series of one kind, not aggregated. `of` turns a selector into an expression, such as its rate.
    exporter:: {
      counter(name, of=function(series) series, matchers=[]):: of(selector('specdec_%s_total' % counters[name].exporter, matchers)),
      gauge(name):: selector('specdec_' + gauges[name].exporter),
      histogram(sli, suffix, matchers=[])::
        selector('specdec_' + config.slis[sli].family + '_seconds_' + suffix, matchers),
      steps(operation, seconds, suffix)::
        range(operation, selector('specdec_step_latency_seconds_' + suffix), seconds),
      v0:: selector('specdec_predictor_info', ['engine_generation="v0"']),
      cacheTokens:: promql.by('min', level, selector('specdec_kv_cache_capacity_tokens')),
    },
    vllm:: {
      // Ray before 2.10 leaves out _total. Later releases of Ray write the same samples under both names, and then only the
      // name with _total counts. One regular expression for both names would make rate() fail.
      counter(name, of=function(series) series, matchers=[])::
        local names = [counters[name][key] for key in ['vllm', 'before'] if key in counters[name]];
        '(' + std.join(' or ', [of(vllmSelector(each + suffix, matchers)) for each in names for suffix in ['_total', '']]) + ')',
      gauge(name)::
        local names = [gauges[name][key] for key in ['vllm', 'before'] if key in gauges[name]];
        std.join(' or ', [vllmSelector(each) for each in names]),
      histogram(sli, suffix, matchers=[])::
        vllmSelector(config.slis[sli].vllm + '_seconds_' + suffix, matchers),
      // Releases 0.10.2 to 0.11.2 have both names, so this is `or` and not a regular expression.
      steps(operation, seconds, suffix)::
        range(operation, vllmSelector('inter_token_latency_seconds_' + suffix), seconds)
        + ' or ' + range(operation, vllmSelector('time_per_output_token_seconds_' + suffix), seconds),
      v0:: vllmSelector('spec_decode_draft_acceptance_rate'),
      // Since 0.8.2, and blocks may be missing. Without a model.
      cacheTokens::
        local info = vllmSelector('cache_config_info');
        promql.by('min', source.service, named(
          promql.strip(promql.numberOf('num_gpu_blocks', info)) + '\n* ' + promql.strip(promql.numberOf('block_size', info))
        )),
    },
    raw:: source[config.source],

    // Services with an engine of generation V0.
    v0:: source.onV0('group'),
    onV0(operator):: aggregate(operator, source.raw.v0),

    // The increase or rate of a counter, by service; `ago`: that of so many seconds before.
    counter(operation, name, seconds, extra=[], ago=0, matchers=[])::
      local own = aggregate('sum', source.raw.counter(name, ranged(operation, seconds, ago), matchers), extra);
      local usable = own + (if counters[name].v0 then '' else '\nunless %(on)s\n%(v0)s' % { on: on, v0: source.v0 });
      // The metrics of vLLM before 0.8.5 and of V0 engines lack some figures. The log has them.
      local from_log = aggregate(
        'sum', ranged(operation, seconds, ago)(selector('specdec_log_%s_total' % counters[name].log, matchers)), extra
      );
      if config.source == 'exporter' && 'log' in counters[name] then promql.firstOf([usable, from_log], level) else usable,

    // The same, never from the log.
    summed(operation, name, seconds):: aggregate('sum', source.raw.counter(name, ranged(operation, seconds))),

    gauge(operator, name):: aggregate(operator, source.raw.gauge(name)),

    // One sample per engine step of a request, also for steps without a draft.
    steps(operation, seconds):: aggregate('sum', source.raw.steps(operation, seconds, 'count')),

    // Seconds of request-steps per second: Little's law makes it the requests in decode at a time. The mean of the engines.
    concurrency(seconds):: aggregate('avg', source.raw.steps('rate', seconds, 'sum')),

    // Count, sum or buckets of a latency.
    histogram(operation, sli, suffix, seconds, matchers=[], extra=if suffix == 'bucket' then ['le'] else [])::
      aggregate('sum', range(operation, source.raw.histogram(sli, suffix, matchers), seconds), extra),
    // Buckets have no sum while replicas have different boundaries, or had them within the window: a boundary would count only
    // some replicas, and the requests of the others would look slower.
    commonBuckets(operation, sli, seconds, matchers=[], extra=['le'])::
      promql.group('%(buckets)s\nunless %(on)s\n%(mixed)s' % {
        buckets: source.histogram(operation, sli, 'bucket', seconds, matchers, extra),
        on: on,
        mixed: source.mixedWithin(sli, seconds),
      }),
    mixedWithin(sli, seconds)::
      promql.range('max_over_time', '%s{sli="%s"}' % [source.mixed_buckets, sli], seconds + config.slow_interval_seconds),

    // Names the record of services whose replicas have different boundaries.
    mixed_buckets:: 'inference_service:specdec_latency_buckets:mixed',

    // The labels of a service, whichever model it serves.
    service:: [label for label in level if label != 'model_name'],

    // The label of the cluster, if services have one.
    cluster:: [label for label in level if label == 'cluster'],

    // The labels of one exporter: it has figures of its own, of no engine.
    sidecar:: source.service + [label for label in config.replica_labels if label != 'engine'],

    // Tokens that the smallest KV cache of an engine holds.
    cacheTokens:: source.raw.cacheTokens,

    // Services whose buckets arrived within a time, whatever their boundaries.
    bucketed(sli, seconds):: aggregate('group', range('last_over_time', source.raw.histogram(sli, 'bucket', ['le="+Inf"']), seconds)),

    // How many replicas have each boundary.
    replicasByBound(sli):: aggregate('count', source.raw.histogram(sli, 'bucket'), ['le']),

    // The boundary as a matcher: 5 and 5.0 are the same bound.
    bound(le):: 'le=~"%s(\\\\.0)?"' % std.strReplace(le, '.', '\\\\.'),

    // A matcher for raw series, by the service's name.
    serviceMatches(regex)::
      (if config.source == 'vllm' then config.vllm_service_label else 'inference_service') + '=~"' + regex + '"',

    // The exporter's families about a service, with either source of the figures.
    family(name, matchers=[]):: selector('specdec_' + name, matchers),

    // Services of which no replica runs what its baseline file was recorded with. Nothing is said of what either does not tell.
    recordedWithOther(fact):: |||
      %(recorded)s
      and on (%(labels)s)
      %(runs)s
      unless on (%(labels)s, %(fact)s)
      %(runs)s
    ||| % {
      labels: promql.list(level),
      fact: fact,
      recorded: source.family('baseline_info', [fact + '!=""']),
      runs: source.family('predictor_info', [fact + '!=""']),
    },

    // What the exporter measures against its baseline without speculation, smoothed over the long window. It also serves
    // assumed values of some of these families (basis="assumed"). No rule reads those.
    measured(operator, name, matchers=[], replicas='')::
      local series = source.family(name, ['basis="measured"'] + matchers);
      promql.by(operator, level, range('avg_over_time', series, config.long_window_seconds) + replicas),

    // The same of the replicas that measure now, or else of those that did: so a rollout is told at once.
    measuredNow(operator, name, matchers=[])::
      local series = source.family(name, ['basis="measured"'] + matchers);
      promql.group(promql.firstOf([source.measured(operator, name, matchers, ' and ' + series), source.measured(operator, name, matchers)], level)),

    // What the exporter counts by concurrency, over the time that a dashboard shows.
    byLoad(name)::
      local series = source.family('load_' + name + '_total');
      promql.by('sum', level + ['concurrency'], 'increase(%s[$__range])' % series),

    // Replicas that started or restarted within a time, and all replicas. A failed scrape is no start, nor is a gap of
    // Prometheus itself: a replica counts as new only if it has no sample in the hour before that time, or more tokens then.
    replicasStarted(seconds)::
      local generated(of) = source.raw.counter('generation_tokens', of);
      aggregate('count', '(%(resets)s > 0) or (%(now)s unless %(now)s >= %(before)s)' % {
        resets: generated(ranged('resets', seconds)),
        now: generated(function(series) series),
        before: generated(function(series) 'last_over_time(%(series)s[%(past)s] offset %(window)s)' % {
          series: series,
          past: promql.duration(std.max(seconds, 3600)),
          window: promql.duration(seconds),
        }),
      }),
    replicas:: aggregate('count', source.raw.counter('generation_tokens')),
    engines:: aggregate('group', source.raw.counter('generation_tokens'), config.replica_labels),

    // By replica: the pack's level plus the labels that tell replicas apart.
    replicaCounter(operation, name, seconds)::
      aggregate('sum', source.raw.counter(name, ranged(operation, seconds)), replica),

    // Mean latency by replica, or by other labels that tell replicas apart.
    replicaMean(sli, seconds, labels=config.replica_labels)::
      local of(suffix) = aggregate('sum', range('increase', source.raw.histogram(sli, suffix), seconds), labels);
      of('sum') + '\n/\n(' + of('count') + ' > 0)',

    // The same of a gauge, now, or the least within a time.
    replicaGauge(operation, name):: aggregate(operation, source.raw.gauge(name), replica),
    replicaLeast(name, seconds):: aggregate('sum', range('min_over_time', source.raw.gauge(name), seconds), replica),

    // How often each replica restarted within a time.
    restarts(seconds)::
      promql.by('max', source.target, named(source.raw.counter('generation_tokens', ranged('resets', seconds)))),

    // Names the record of the replicas that are known.
    replica_up:: 'inference_service:specdec_replica:up',

    // The labels of a replica in that record.
    target:: source.service + ['job', 'instance', 'pod'],

    // Whether the predictor's metrics can be read, by replica: 1 or 0. `labels`: the labels of such a series.
    up:: {
      local address = ['job', 'instance'],
      local place = [label for label in source.service if label != 'inference_service'],

      // Gauges are absent until the first request, so counters count as well.
      local serving(of=function(series) series) =
        named(of(source.raw.gauge('requests_running')) + ' or ' + source.raw.counter('draft_tokens', of)),

      labels: if config.source == 'vllm' then level else source.service,
      expr:
        if config.source == 'exporter' then selector('specdec_up')
        else
          // Without the sidecar it is the target's own `up`, for targets that served vLLM's metrics within the last hour.
          local lately = promql.by(
            'group', level + address, serving(function(series) range('last_over_time', series, 3600))
          );
          local joined(labels) = 'max by (%(labels)s) (up) * on (%(labels)s) group_right () %(replicas)s' % {
            labels: promql.list(labels),
            replicas: lately,
          };
          // Several clusters may use the same address. But a label of the series may be missing on the target.
          promql.group(promql.firstOf([joined(place + address), joined(address)], level + address)),

      // The same for the record, which outlives the other series of a replica: it reads its own past. 0 also means that the
      // target itself cannot be scraped, which with the sidecar is the sidecar.
      recorded:
        local known = 'last_over_time(%s[2h])' % source.replica_up;
        local serves = promql.by('group', source.target, serving());
        // Known replicas by the `up` of their target. Several clusters may use the same address, one after another several pods
        // have it. But `up` may lack these labels.
        local target = source.cluster + address + ['pod'];
        local targets(value) = std.join('\nor\n', [
          '%(known)s\nand on (%(labels)s) (up%(lacking)s == %(value)d)' % {
            known: known,
            labels: promql.list([label for label in target if !std.member(lacked, label)]),
            lacking: promql.braces(['%s=""' % label for label in lacked]),
            value: value,
          }
          for lacked in std.set([[], ['pod'], source.cluster, source.cluster + ['pod']])
        ]);
        '0 * %s\nor\n' % promql.group(targets(0)) + (
          if config.source == 'exporter' then promql.by('max', source.target, selector('specdec_up'))
          // A target that answers without vLLM's metrics, unless another service has its address now.
          else '%(serves)s\nor\n1 + 0 * %(targets)s\nunless on (%(place)s)\n%(serves)s' % {
            serves: serves,
            targets: promql.group(targets(1)),
            place: promql.list(source.cluster + address),
          }
        ),
    },

    // Requests that ran at the last scrape of a service within a time.
    runningAtLast(seconds)::
      named(range('last_over_time', source.raw.gauge('requests_running'), seconds)),

    // What a service ran within a window, as the label `epoch`: k, and with the exporter the facts that it knows. k is the
    // mean of the engines, to a half. While no configuration has nearly all of the window, facts are left out: a mixture
    // is an epoch of its own. Samples are counted, so neither a restart nor a lost scrape changes anything.
    epoch(seconds)::
      local exporter = config.source == 'exporter';
      local counted(expression) = range('count_over_time', expression, seconds);
      local info = counted(source.family('predictor_info'));
      local facts = {
        labels: promql.list(level),
        on: on,
        engines: if exporter then promql.by('sum', level, info) else source.summed('count_over_time', 'generation_tokens', seconds),
        positions:
          if exporter then promql.by('sum', level, range('sum_over_time', source.family('num_speculative_tokens'), seconds))
          else source.summed('count_over_time', 'accepted_tokens_per_position', seconds),
        k: if exporter then 'k' else 'epoch',
        facts: promql.list(config.epoch_facts),
        by_facts: promql.by('sum', level + config.epoch_facts, info),
        share: promql.number((1 - config.policy.latency.tail_shift_critical)),
        quoted: promql.list(['"%s"' % fact for fact in config.epoch_facts]),
        by_k: promql.indent(|||
          count_values by (%(labels)s) (
            "%(k)s",
            round(
              (
                %(positions)s
                or
                0 * %(engines)s
              ) / %(engines)s,
              0.5
            )
          )
        ||| % self),
      };
      promql.strip(if !exporter then 'group by (%(labels)s, epoch) (\n  %(by_k)s\n)' % facts else |||
        group by (%(labels)s, epoch) (
          label_join(
            %(by_k)s
            * %(on)s group_left (%(facts)s)
            (
              %(by_facts)s
              > %(on)s group_left ()
              %(share)s * %(engines)s
              or %(on)s
              %(engines)s
            ),
            "epoch", ";", "k", %(quoted)s
          )
        )
      ||| % facts { by_k: promql.indent(facts.by_k) }),

    // Services without metrics of their predictor that have figures from its log.
    logged:: '(%s > 0)' % selector('specdec_log_draft_tokens_total'),
  }
