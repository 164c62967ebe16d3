// Each quantity once: name of the record, unit, meaning, expression. Recording rules, alerts and dashboards take it here.
local promql = import 'promql.libsonnet';

// `narrow`: matchers of what a dashboard shows, for series without a model, without a service, and for alerts.
function(config, narrow={ target: config.selector, place: config.selector, alerts: '' })
  local source = (import 'sources.libsonnet')(config);
  local policy = config.policy;
  local short = config.short_window_seconds;
  local long = config.long_window_seconds;
  local hour = config.history_interval_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;

  // inference_service:specdec_<what>:<operation><window>
  local name(what, operation, seconds=null) =
    'inference_service:specdec_%s:%s%s' % [what, operation, if seconds == null then '' else promql.duration(seconds)];

  // Boundaries that history keeps. Of vLLM's twenty for time per output token seven are beyond a second per token, where no
  // limit of a service that anybody reads lies, and each is a series per service.
  local history_bounds(sli) = if sli == 'tpot' then ['le=~"0[.].+|1([.]0)?|[+]Inf"'] else [];

  // A threshold that depends on the method: 0 * <series of the services> + <value>, the general one last.
  local byMethod(key, general) =
    local own = [
      { method: method, value: policy.methods[method][key] }
      for method in std.objectFields(policy.methods)
      if key in policy.methods[method]
    ];
    local values = std.set([number(m.value) for m in own]);
    local methods(value) = [m.method for m in own if number(m.value) == value];
    local series(value) =
      if config.source == 'exporter' then
        // max: during a rollout a service has several info series.
        ['max by (%s) (%s)' % [
          promql.list(level),
          source.family('predictor_info', ['method=~"(%s).*"' % std.join('|', methods(value))]),
        ]]
      else
        [
          '%s%s' % [name('drafts', 'increase', long), promql.braces([config.vllm_method_selectors[method]])]
          for method in methods(value)
          if method in config.vllm_method_selectors
        ];
    [
      '0 * %s + %s' % [expression, value]
      for value in values
      for expression in series(value)
    ] + ['0 * %s + %s' % [name('drafts', 'at_least', long), number(general)]];

  local signals = {
    // --- Counts ------------------------------------------------------------------------------------------------------
    drafts: {
      record: name('drafts', 'increase', long),
      unit: 'short',
      help: 'Drafts: speculations of one request in one engine step with at least one draft token.',
      expr: source.counter('increase', 'drafts', long),
    },
    // What guards ask: how large is the sample?
    sample: {
      record: name('drafts', 'at_least', long),
      unit: 'short',
      help: 'Drafts; of releases that do not count them (0.8.3, 0.8.4) as many as their draft tokens make at k = %d.'
            % config.assumed_draft_tokens,
      expr: promql.firstOf(
        // Those releases have the counters, at 0, without speculation, too.
        [signals.drafts.record, '%s / %d > 0' % [signals.draft_tokens.record, config.assumed_draft_tokens]],
        level
      ),
    },
    draft_tokens: {
      record: name('draft_tokens', 'increase', long),
      unit: 'short',
      help: 'Draft tokens proposed.',
      expr: source.counter('increase', 'draft_tokens', long),
    },
    accepted_tokens: {
      record: name('accepted_tokens', 'increase', long),
      unit: 'short',
      help: 'Draft tokens that the target accepted.',
      expr: source.counter('increase', 'accepted_tokens', long),
    },
    drafts_now: {
      record: name('drafts', 'rate', short),
      unit: 'ops',
      help: 'Drafts per second.',
      expr: source.counter('rate', 'drafts', short),
    },
    generation_tokens_now: {
      record: name('generation_tokens', 'rate', short),
      unit: 'ops',
      help: 'Tokens generated per second.',
      expr: source.counter('rate', 'generation_tokens', short),
    },

    // --- Acceptance: no drafts, no ratio -----------------------------------------------------------------------------
    acceptance: {
      record: name('acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Acceptance rate: accepted draft tokens / draft tokens.',
      expr: '%s / (%s > 0)' % [signals.accepted_tokens.record, signals.draft_tokens.record],
    },
    acceptance_now: {
      record: name('acceptance', 'ratio_rate', short),
      unit: 'percentunit',
      help: 'Acceptance rate of the last minutes.',
      expr: '%s\n/\n(%s > 0)' % [
        promql.group(source.counter('rate', 'accepted_tokens', short)),
        promql.group(source.counter('rate', 'draft_tokens', short)),
      ],
    },
    acceptance_length: {
      record: name('acceptance_length', 'mean', long),
      unit: 'short',
      help: 'Mean acceptance length: 1 + accepted tokens / drafts, the bonus token included.',
      expr: '1 + %s / (%s > 0)' % [signals.accepted_tokens.record, signals.drafts.record],
    },
    // Not recorded: two series that are, divided.
    draft_length: {
      unit: 'short',
      help: 'Mean draft length: draft tokens / drafts. Below k some drafts are short and the tail of the curve reads low.',
      expr: '%s / (%s > 0)' % [signals.draft_tokens.record, signals.drafts.record],
    },
    tokens_per_step: {
      record: name('tokens_per_step', 'mean', long),
      unit: 'short',
      help: 'Tokens per step: (generated tokens - requests) / request-steps, those without a draft included. The ceiling '
            + 'of the speed-up.',
      // Requests by their first token, which comes from prefill whether they finish or not.
      expr: |||
        (
            %s
          - %s
        )
        /
        (%s > 0)
        unless %s
        %s
      ||| % [
        source.counter('increase', 'generation_tokens', long),
        source.histogram('increase', 'ttft', 'count', long),
        source.steps('increase', long),
        on,
        source.v0,
      ],
    },
    // Marks what has no counters to take windows from: V0 without a log.
    acceptance_lifetime: {
      record: name('acceptance', 'ratio_lifetime'),
      unit: 'percentunit',
      help: 'Acceptance rate since the start, of V0 engines only (up to 0.9.2), which count lifetimes. No alert uses it.',
      expr:
        if config.source == 'exporter' then
          'avg by (%s) (%s) and %s %s' % [promql.list(level), source.family('acceptance_ratio'), on, source.v0]
        else
          source.onV0('avg'),
    },

    // --- The curve, for any k ----------------------------------------------------------------------------------------
    position_acceptance: {
      record: name('position_acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Per-position rate: accepted at the position / drafts. Positions start at 0.',
      // The drafts of the same moment, not their record: this is evaluated less often.
      expr: '%s\n/ %s group_left ()\n(%s > 0)' % [
        promql.group(source.counter('increase', 'accepted_tokens_per_position', long, ['position'])),
        on,
        promql.group(source.counter('increase', 'drafts', long)),
      ],
    },
    // Not recorded: acceptance is nested, so the curve never rises and its ends are its extremes.
    head_acceptance: {
      unit: 'percentunit',
      help: 'Acceptance at the first position.',
      expr: 'max by (%s) (%s)' % [promql.list(level), signals.position_acceptance.record],
    },
    tail_acceptance: {
      unit: 'percentunit',
      help: 'Acceptance at the last position.',
      expr: 'min by (%s) (%s)' % [promql.list(level), signals.position_acceptance.record],
    },
    positions: {
      unit: 'short',
      help: 'k: positions of the curve.',
      expr: 'count by (%s) (%s)' % [promql.list(level), signals.position_acceptance.record],
    },
    conditional_acceptance: {
      record: name('position_conditional_acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Conditional rate: accepted at the position / accepted at the one before. Exact only without short drafts.',
      // Every position but the first is divided by its predecessor. PromQL cannot count in labels, so: a histogram of one
      // observation per position, in the bucket le="<position>", has the position as its quantile, and count_values makes
      // the position after it a label again. That label must sort behind the others: in range queries Prometheus 2.42
      // loses those that sort behind it.
      local position = |||
        histogram_quantile(
          1,
          label_replace(0 * %(curve)s + 1, "le", "$1", "position", "(.+)")
          or
          label_replace(0 * %(curve)s + 1, "le", "+Inf", "", "")
        )
      ||| % { curve: signals.position_acceptance.record },
      expr: |||
        %(curve)s
        / on (%(labels)s, position)
        (
          sum by (%(labels)s, position) (
            label_replace(
              %(curve)s
              * on (%(labels)s, position) group_left (position_after)
              count_values by (%(labels)s, position) (
                "position_after",
                1 + %(next)s
              ),
              "position", "$1", "position_after", "(.+)"
            )
          ) > 0
        )
        or
        max by (%(labels)s, position) (%(curve)s)
        and on (%(labels)s, position)
        (
          %(first)s == 0
        )
      ||| % {
        curve: signals.position_acceptance.record,
        labels: promql.list(level),
        next: promql.indent(position, 8),
        first: promql.indent(position, 2),
      },
    },

    // --- Replicas ----------------------------------------------------------------------------------------------------
    replica_drafts: {
      record: name('replica_drafts', 'increase', long),
      unit: 'short',
      help: 'Drafts by replica.',
      expr: source.replicaCounter('increase', 'drafts', long),
    },
    replica_acceptance: {
      record: name('replica_acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Acceptance rate by replica. Compare it, do not average it.',
      expr: '%s\n/\n(%s > 0)' % [
        source.replicaCounter('increase', 'accepted_tokens', long),
        source.replicaCounter('increase', 'draft_tokens', long),
      ],
    },

    // --- Thresholds --------------------------------------------------------------------------------------------------
    acceptance_min: {
      record: name('acceptance_min', 'threshold'),
      unit: 'percentunit',
      help: 'Acceptance rate below which speculation does not break even with this method.',
      // min: during a rollout a service has the thresholds of two methods.
      expr: promql.firstOf(
        (if config.source == 'exporter'
         then ['min by (%s) (%s)' % [promql.list(level), source.family('policy_acceptance_ratio_min')]]
         else [])
        + byMethod('acceptance_ratio_min', policy.acceptance_ratio_min), level
      ),
    },
    acceptance_length_min: {
      record: name('acceptance_length_min', 'threshold'),
      unit: 'short',
      help: 'The same as a length: 1 + mean draft length * that rate.',
      expr: promql.firstOf(
        [
          '1 + %s * (%s)' % [signals.acceptance_min.record, signals.draft_length.expr],
        ] + (
          if config.source == 'exporter'
          then ['min by (%s) (%s)' % [promql.list(level), source.family('policy_mean_acceptance_length_min')]]
          else []
        ), level
      ),
    },
    // Not recorded: only the verdict needs it.
    acceptance_watch: {
      unit: 'percentunit',
      help: 'Acceptance rate up to which speculation may or may not pay.',
      expr: promql.firstOf(byMethod('acceptance_ratio_watch', policy.acceptance_ratio_watch), level),
    },

    // --- Latency, by sli ---------------------------------------------------------------------------------------------
    requests: {
      record: name('latency_requests', 'increase', long),
      unit: 'short',
      help: 'Requests that the latency was observed of.',
      by_sli: { [sli]: source.histogram('increase', sli, 'count', long) for sli in std.objectFields(config.slis) },
    },
    latency_mean: {
      record: name('latency_seconds', 'mean', long),
      unit: 's',
      help: 'Mean latency, which histograms have exactly.',
      by_sli: {
        [sli]: '%s\n/ %s\n(%s{sli="%s"} > 0)' % [
          source.histogram('increase', sli, 'sum', long),
          on,
          signals.requests.record,
          sli,
        ]
        for sli in std.objectFields(config.slis)
      },
    },
    buckets_mixed: {
      record: source.mixed_buckets,
      unit: 'short',
      help: 'How unevenly the replicas have the bucket boundaries: absent where all have the same, as after a rollout.',
      by_sli: {
        [sli]: 'stddev by (%s) (%s) > 0' % [promql.list(level), source.replicasByBound(sli)]
        for sli in std.objectFields(config.slis)
      },
    },
    latency_quantile: {
      record: name('latency_seconds', 'quantile', long),
      unit: 's',
      help: 'Latency by quantile, for people: interpolated within a bucket, so up to 70 % off at the default buckets.',
      by_sli: {
        [sli]: {
          [number(quantile)]: 'histogram_quantile(%s, %s) >= 0' % [
            number(quantile),
            source.histogram('rate', sli, 'bucket', long, ['le']),
          ]
          for quantile in config.slis[sli].quantiles
        }
        for sli in std.objectFields(config.slis)
      },
    },
    warming: {
      record: name('warming_replicas', 'ratio'),
      unit: 'percentunit',
      help: 'Share of replicas that started within the warm-up time; absent when none did.',
      expr: '%s\n/\n%s' % [source.replicasStarted(config.warm_up_seconds), source.replicas],
    },

    // --- Whether the figures can be believed; not recorded, since only alerts and the pack's own dashboard ask ---------
    inconsistency: {
      unit: 'percentunit',
      help: 'By how much the accepted tokens by position differ from all accepted tokens, where it is more than %g %%.'
            % [100 * config.consistency_tolerance]
            + ' Every release with both has them equal.',
      expr: 'abs(\n  1\n  - %s\n  / (%s > 0)\n) > %s' % [
        source.summed('increase', 'accepted_tokens_per_position', long),
        source.summed('increase', 'accepted_tokens', long),
        number(config.consistency_tolerance),
      ],
    },
    rules_busy: {
      unit: 'percentunit',
      help: 'Time that a rule group of this pack takes / its interval.',
      local groups = '{rule_group=~".*;specdec-.+"}',
      expr: 'prometheus_rule_group_last_duration_seconds%s\n/ prometheus_rule_group_interval_seconds%s' % [groups, groups],
    },
    rules_missed: {
      unit: 'short',
      help: 'Evaluations of a rule group of this pack that were missed within %s.' % promql.duration(long),
      expr: 'increase(prometheus_rule_group_iterations_missed_total{rule_group=~".*;specdec-.+"}[%s])'
            % promql.duration(long),
    },

    // --- History, by the hour ----------------------------------------------------------------------------------------
    acceptance_hour: {
      record: name('acceptance', 'ratio_rate', hour),
      unit: 'percentunit',
      help: 'Acceptance rate of an hour with enough drafts.',
      expr: |||
        %s
        /
        %s
        and %s
        (%s >= %d)
      ||| % [
        promql.group(source.counter('increase', 'accepted_tokens', hour)),
        promql.group(source.counter('increase', 'draft_tokens', hour)),
        on,
        promql.group(promql.firstOf([
          source.counter('increase', 'drafts', hour),
          '%s\n/ %d' % [promql.group(source.counter('increase', 'draft_tokens', hour)), config.assumed_draft_tokens],
        ], level)),
        config.min_history_drafts,
      ],
    },
    latency_mean_hour: {
      record: name('latency_seconds', 'mean', hour),
      unit: 's',
      help: 'Mean latency of an hour with enough requests.',
      by_sli: {
        [sli]: '%s\n/\n(%s >= %d)' % [
          source.histogram('increase', sli, 'sum', hour),
          source.histogram('increase', sli, 'count', hour),
          config.min_history_requests,
        ]
        for sli in std.objectFields(config.slis)
      },
    },
    latency_cdf_hour: {
      record: name('latency', 'cdf', hour),
      unit: 'percentunit',
      help: 'Share of the requests of an hour within each bucket boundary, where it is at least half of them.',
      by_sli: {
        [config.history_tail_slis[i]]:
          '%s\n/ %s group_left ()\n(%s >= %d)\n>= 0.5%s' % [
            source.histogram(
              'increase',
              config.history_tail_slis[i],
              'bucket',
              hour,
              ['le'],
              history_bounds(config.history_tail_slis[i])
            ),
            on,
            source.histogram('increase', config.history_tail_slis[i], 'count', hour),
            config.min_history_requests,
            std.join('', [
              '\nunless %s\n%s{sli="%s"}' % [on, signals.requests.record, better]
              for better in config.history_tail_slis[:i]
            ]),
          ]
        for i in std.range(0, std.length(config.history_tail_slis) - 1)
      },
    },
  };

  local counted = signals;
  local compared = counted + (import 'baselines.libsonnet')(config, source, counted, name);
  // Hidden, so that rules do not wait for them.
  compared { views:: (import 'views.libsonnet')(config, source, compared, narrow) }
