// Every quantity of the pack, defined once: record name, unit, meaning, expression. Recording rules, alerts and dashboards
// read them from here.
local promql = import 'promql.libsonnet';

// `narrow`: a dashboard's matchers for series without a model, for series without a service, and for alerts.
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
    'inference_service:specdec_' + what + ':' + operation + (if seconds == null then '' else promql.duration(seconds));
  local ratio(above, below) = '%(above)s / (%(below)s > 0)' % { above: above, below: below };

  // The bucket boundaries that history keeps. vLLM has twenty for time per output token. Nine of them are above half a second
  // per token: no service with readers has a limit there, and each boundary is one more series per service.
  local history_bounds(sli) = if sli == 'tpot' then ['le=~"0[.]([0-4].*|50*)|[+]Inf"'] else [];

  // A threshold that depends on the method: 0 * <series of the services> + <value>. The general threshold comes last.
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
        [promql.by('max', level, source.family('predictor_info', ['method=~"(%s).*"' % std.join('|', methods(value))]))]
      else
        [
          name('drafts', 'increase', long) + promql.braces([config.vllm_method_selectors[method]])
          for method in methods(value)
          if method in config.vllm_method_selectors
        ];
    local constant(expression, value) = '0 * ' + expression + ' + ' + value;
    [
      constant(expression, value)
      for value in values
      for expression in series(value)
    ] + [constant(name('drafts', 'at_least', long), number(general))];

  // Hours of history, each with its epoch. Where nothing is known of the predictor, there is none.
  local ofEpoch(hours, services) = '%(hours)s\n* %(on)s group_left (epoch)\n%(epoch)s' % {
    hours: promql.group(hours),
    on: on,
    epoch: promql.group(promql.firstOf([source.epoch(hour), promql.by('group', level, services)], level)),
  };
  local lasting(matchers) = 'count_over_time(ALERTS%(matchers)s[%(window)s:%(hour)s]) >= %(hours)d' % {
    matchers: promql.braces(['alertname=~"SpecDecode(P99|LatencyMean)Regression"', 'alertstate="firing"'] + matchers),
    window: promql.duration(2 * config.history_patience_hours * hour),
    hour: promql.duration(hour),
    hours: config.history_patience_hours,
  };
  local usual(sli, hours) = ofEpoch('%(hours)s\nunless %(on)s\n%(lasting)s' % {
    hours: promql.strip(hours),
    on: on,
    lasting: lasting(['sli="%s"' % sli]),
  }, name('latency_requests', 'increase', long));

  local signals = {
    // --- Counts ------------------------------------------------------------------------------------------------------
    drafts: {
      record: name('drafts', 'increase', long),
      unit: 'short',
      help: 'Drafts: speculations of one request in one engine step with at least one draft token.',
      expr: source.counter('increase', 'drafts', long),
    },
    // The size of the sample, for guards.
    sample: {
      record: name('drafts', 'at_least', long),
      unit: 'short',
      help: 'Drafts. Releases 0.8.3 and 0.8.4 do not count them; there it is their draft tokens / %d.'
            % config.assumed_draft_tokens,
      expr: promql.firstOf(
        [
          signals.drafts.record,
          // > 0: without speculation these releases serve the counters at 0.
          '%(draft_tokens)s / %(assumed)d > 0' % {
            draft_tokens: signals.draft_tokens.record,
            assumed: config.assumed_draft_tokens,
          },
        ],
        level
      ),
    },
    // Drafts of one request resemble each other, so they tell less than drafts of as many requests. Every latency counts the
    // requests; the first token counts unfinished ones as well. An answer longer than the window is a request, too.
    effective_drafts: {
      record: name('drafts', 'effective', long),
      unit: 'short',
      help: 'How many independent drafts tell as much: drafts / (1 + %s * (drafts per request - 1)). Requests that are not '
            % number(policy.draft_correlation)
            + 'counted are assumed to have %d drafts each.' % policy.assumed_drafts_per_request,
      expr: |||
        %(drafts)s
        /
        (
          1 + %(correlation)s * clamp_min(
            %(drafts)s
            / %(on)s
            (
              clamp_min(max without (sli) (%(requests)s), 1)
              or %(on)s
              clamp_min(%(drafts)s / %(assumed)d, 1)
            ) - 1,
            0
          )
        )
      ||| % {
        drafts: signals.sample.record,
        requests: signals.requests.record,
        correlation: number(policy.draft_correlation),
        assumed: policy.assumed_drafts_per_request,
        on: on,
      },
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

    // --- Replicas that are known -------------------------------------------------------------------------------------
    replica_up: {
      record: source.replica_up,
      unit: 'short',
      help: 'Whether a replica answers. It stays, at 0, as long as its target is there.',
      expr: source.up.recorded,
    },
    // Not recorded: only alerts read these.
    // Requests that run are not enough: after all of them are aborted, the gauge may keep its last value (vLLM #22545).
    stalled: {
      unit: 'short',
      help: 'Engines in which requests wait and that generate no token, but did before: one for embeddings never does.',
      expr: |||
        count by (%(labels)s) (
          %(waiting)s > 0
          and
          %(tokens)s == 0
          and
          %(generated)s > 0
        )
      ||| % {
        labels: promql.list(level),
        waiting: source.replicaGauge('sum', 'requests_waiting'),
        tokens: source.replicaCounter('rate', 'generation_tokens', short),
        generated: source.replicaCounter('max_over_time', 'generation_tokens', short),
      },
    },

    sidecars_down: {
      unit: 'short',
      help: 'Exporters whose target is there and does not answer.',
      local replica = source.service + ['job', 'instance'],
      expr: |||
        count by (%(labels)s) (
          %(replicas)s == 0
          unless on (%(replica)s)
          %(answers)s
        )
      ||| % {
        labels: promql.list(source.service),
        replicas: signals.replica_up.record,
        replica: promql.list(replica),
        answers: source.family('up'),
      },
    },
    alternating: {
      help: 'Drafting stopped, began and stopped again within a few hours, as where dynamic k is 0 in every peak.',
      expr: 'changes((%(drafts)s > bool 0)[%(window)s:%(step)s]) >= 3' % {
        drafts: signals.drafts_now.record,
        window: promql.duration(config.alternation_window_seconds),
        step: promql.duration(short),
      },
    },

    // --- Acceptance: no drafts, no ratio -----------------------------------------------------------------------------
    acceptance: {
      record: name('acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Acceptance rate: accepted draft tokens / draft tokens.',
      expr: ratio(signals.accepted_tokens.record, signals.draft_tokens.record),
    },
    acceptance_now: {
      record: name('acceptance', 'ratio_rate', short),
      unit: 'percentunit',
      help: 'Acceptance rate of the last minutes.',
      expr: '%(accepted)s\n/\n(%(drafted)s > 0)' % {
        accepted: promql.group(source.counter('rate', 'accepted_tokens', short)),
        drafted: promql.group(source.counter('rate', 'draft_tokens', short)),
      },
    },
    // Not recorded.
    acceptance_lately: {
      unit: 'percentunit',
      help: 'For %(share)g %% of the last %(window)s, the acceptance rate of the last minutes was at most this.'
            % { share: 100 * config.acceptance_low_share, window: promql.duration(long) },
      expr: 'quantile_over_time(%(share)s, %(now)s[%(window)s])' % {
        share: number(config.acceptance_low_share),
        now: signals.acceptance_now.record,
        window: promql.duration(long),
      },
    },
    acceptance_at_worst: {
      unit: 'percentunit',
      help: 'For %(share)g %% of the last %(window)s, the acceptance rate of the last minutes was at most this.'
            % { share: 100 * config.acceptance_page_share, window: promql.duration(config.acceptance_page_seconds) },
      expr: 'quantile_over_time(%(share)s, %(now)s[%(window)s])' % {
        share: number(config.acceptance_page_share),
        now: signals.acceptance_now.record,
        window: promql.duration(config.acceptance_page_seconds),
      },
    },
    acceptance_length: {
      record: name('acceptance_length', 'mean', long),
      unit: 'short',
      help: 'Mean acceptance length: 1 + accepted tokens / drafts, the bonus token included.',
      expr: '1 + ' + ratio(signals.accepted_tokens.record, signals.drafts.record),
    },
    // Not recorded: the quotient of two records.
    draft_length: {
      unit: 'short',
      help: 'Mean draft length: draft tokens / drafts. Below k, some drafts are short and the end of the curve reads low.',
      expr: ratio(signals.draft_tokens.record, signals.drafts.record),
    },
    tokens_per_step: {
      record: name('tokens_per_step', 'mean', long),
      unit: 'short',
      help: 'Tokens per step: (generated tokens - requests) / request-steps, including steps without a draft. It is the '
            + 'ceiling of the speed-up.',
      // Requests are counted by their first token: prefill makes it, whether the request finishes or not.
      expr: |||
        (
            %(tokens)s
          - %(requests)s
        )
        /
        (%(steps)s > 0)
        unless %(on)s
        %(v0)s
      ||| % {
        tokens: source.counter('increase', 'generation_tokens', long),
        requests: source.histogram('increase', 'ttft', 'count', long),
        steps: source.steps('increase', long),
        on: on,
        v0: source.v0,
      },
    },
    // For V0 engines without a log: they have no counters to take windows from.
    acceptance_lifetime: {
      record: name('acceptance', 'ratio_lifetime'),
      unit: 'percentunit',
      help: 'Acceptance rate since the start. Only V0 engines (up to 0.9.2) have it: they count lifetimes. No alert uses it.',
      expr:
        if config.source == 'exporter' then
          '%(ratio)s and %(on)s %(v0)s' % {
            ratio: promql.by('avg', level, source.family('acceptance_ratio')),
            on: on,
            v0: source.v0,
          }
        else
          source.onV0('avg'),
    },

    // --- The curve, for any k ----------------------------------------------------------------------------------------
    position_acceptance: {
      record: name('position_acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Per-position rate: accepted at the position / drafts. Positions start at 0.',
      // Not the record of the drafts: that is evaluated at another moment.
      expr: '%(accepted)s\n/ %(on)s group_left ()\n(%(drafts)s > 0)' % {
        accepted: promql.group(source.counter('increase', 'accepted_tokens_per_position', long, ['position'])),
        on: on,
        drafts: promql.group(source.counter('increase', 'drafts', long)),
      },
    },
    positions: {
      unit: 'short',
      help: 'k: positions of the curve.',
      expr: promql.by('count', level, signals.position_acceptance.record),
    },
    conditional_acceptance: {
      record: name('position_conditional_acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Conditional rate: accepted at the position / accepted at the position before. Exact only without short drafts.',
      // Each position but the first is divided by its predecessor. PromQL cannot compute with labels. So a histogram gets one
      // observation per position, in the bucket le="<position>": its quantile is the position as a number. count_values
      // turns that number plus one into a label again. The name of this label must sort last: in range queries, Prometheus
      // 2.42 loses all labels that sort behind it.
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
    // Not recorded. The replicas of a service share its requests, so they have about as many drafts per request as it.
    replica_effective_drafts: {
      unit: 'short',
      help: 'How many independent drafts the drafts of a replica are worth.',
      expr: '%(drafts)s * %(on)s group_left () (%(effective)s / %(sample)s)' % {
        drafts: signals.replica_drafts.record,
        on: on,
        effective: signals.effective_drafts.record,
        sample: signals.sample.record,
      },
    },
    replica_acceptance: {
      record: name('replica_acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Acceptance rate by replica. Compare the replicas; do not average them.',
      expr: '%(accepted)s\n/\n(%(drafted)s > 0)' % {
        accepted: source.replicaCounter('increase', 'accepted_tokens', long),
        drafted: source.replicaCounter('increase', 'draft_tokens', long),
      },
    },
    // Not recorded: this and the next three. Each replica is held against all others together, so two are enough.
    others_drafts: {
      unit: 'short',
      help: 'Drafts of the other replicas of the service.',
      expr: '(sum by (%(labels)s) (%(drafts)s) - %(on)s group_right () %(drafts)s) > 0' % {
        labels: promql.list(level),
        drafts: signals.replica_drafts.record,
        on: on,
      },
    },
    others_acceptance: {
      unit: 'percentunit',
      help: 'Acceptance rate of the other replicas of the service, each weighted by its drafts.',
      expr: |||
        (sum by (%(labels)s) (%(weighted)s) - %(on)s group_right () (%(weighted)s))
        /
        (%(drafts)s)
      ||| % {
        labels: promql.list(level),
        weighted: signals.replica_acceptance.record + ' * ' + signals.replica_drafts.record,
        on: on,
        drafts: signals.others_drafts.expr,
      },
    },
    // The error of a share is at most sqrt(1/4 / n).
    others_margin: {
      help: 'Chance may put the acceptance of a replica this far below that of the others.',
      expr: |||
        %(z)s * sqrt(
          (1 / %(own)s + 1 / (%(others)s))
          * %(on)s group_left ()
          (%(sample)s / %(effective)s)
        )
      ||| % {
        z: number(config.alert_z_score / 2),
        own: signals.replica_drafts.record,
        others: signals.others_drafts.expr,
        on: on,
        sample: signals.sample.record,
        effective: signals.effective_drafts.record,
      },
    },
    replica_generation_tokens: {
      unit: 'ops',
      help: 'Tokens generated per second by replica.',
      expr: source.replicaCounter('rate', 'generation_tokens', long),
    },

    // --- Thresholds --------------------------------------------------------------------------------------------------
    // Not recorded; only with source 'exporter'. min: replicas differ by their load.
    break_even: {
      unit: 'percentunit',
      help: 'Measured break-even: the acceptance rate at which drafts cost here what they save.',
      expr: source.measured('min', 'break_even_acceptance_ratio'),
    },
    acceptance_min: {
      record: name('acceptance_min', 'threshold'),
      unit: 'percentunit',
      help: 'Acceptance rate that breaks even: measured here, or where it is not, assumed for the method.',
      // min: during a rollout a service has the thresholds of two methods.
      expr: promql.firstOf(
        (if config.source == 'exporter'
         then [signals.break_even.expr, promql.by('min', level, source.family('policy_acceptance_ratio_min'))]
         else [])
        + byMethod('acceptance_ratio_min', policy.acceptance_ratio_min), level
      ),
    },
    acceptance_length_min: {
      record: name('acceptance_length_min', 'threshold'),
      unit: 'short',
      help: 'Mean acceptance length that breaks even: measured, or 1 + mean draft length * minimum of the acceptance rate.',
      expr: promql.firstOf(
        (if config.source == 'exporter' then [source.measured('min', 'break_even_acceptance_length')] else [])
        + [
          '1 + %(minimum)s * (%(length)s)' % {
            minimum: signals.acceptance_min.record,
            length: signals.draft_length.expr,
          },
        ] + (
          if config.source == 'exporter'
          then [promql.by('min', level, source.family('policy_mean_acceptance_length_min'))]
          else []
        ), level
      ),
    },
    // Not recorded. Null where no service can have a method: without the sidecar, and without selectors by method.
    method_known: {
      help: 'Services whose method is known.',
      local selected = [
        signals.drafts.record + promql.braces([config.vllm_method_selectors[method]])
        for method in std.objectFields(config.vllm_method_selectors)
      ],
      expr:
        if config.source == 'exporter' then promql.by('group', level, source.family('predictor_info', ['method!=""']))
        else if selected == [] then null
        else promql.firstOf(selected, level),
    },
    // Not recorded: only the verdict needs it.
    acceptance_watch: {
      unit: 'percentunit',
      help: 'Watch level: below this acceptance rate, speculation may or may not pay.',
      expr: promql.firstOf(byMethod('acceptance_ratio_watch', policy.acceptance_ratio_watch), level),
    },

    // --- Latency, by sli ---------------------------------------------------------------------------------------------
    requests: {
      record: name('latency_requests', 'increase', long),
      unit: 'short',
      help: 'Requests whose latency was observed.',
      by_sli: { [sli]: source.histogram('increase', sli, 'count', long) for sli in std.objectFields(config.slis) },
    },
    latency_mean: {
      record: name('latency_seconds', 'mean', long),
      unit: 's',
      help: 'Mean latency. Histograms hold it exactly.',
      by_sli: {
        [sli]: '%(sum)s\n/ %(on)s\n(%(requests)s{sli="%(sli)s"} > 0)' % {
          sum: source.histogram('increase', sli, 'sum', long),
          on: on,
          requests: signals.requests.record,
          sli: sli,
        }
        for sli in std.objectFields(config.slis)
      },
    },
    buckets_mixed: {
      record: source.mixed_buckets,
      unit: 'short',
      help: 'How unevenly the replicas have the bucket boundaries. Absent while all replicas have the same boundaries.',
      by_sli: {
        [sli]: promql.by('stddev', level, source.replicasByBound(sli)) + ' > 0'
        for sli in std.objectFields(config.slis)
      },
    },
    latency_quantile: {
      record: name('latency_seconds', 'quantile', long),
      unit: 's',
      help: 'Latency by quantile, for people. It is interpolated within a bucket: up to 70 % off at the default buckets.',
      by_sli: {
        [sli]: {
          [number(quantile)]: promql.quantile(quantile, source.histogram('rate', sli, 'bucket', long, ['le']))
          for quantile in config.slis[sli].quantiles
        }
        for sli in std.objectFields(config.slis)
      },
    },
    warming: {
      record: name('warming_replicas', 'ratio'),
      unit: 'percentunit',
      help: 'Share of the replicas that started within the warm-up time. Absent when none did.',
      expr: source.replicasStarted(config.warm_up_seconds) + '\n/\n' + source.replicas,
    },

    // --- Can the figures be believed? Not recorded: only alerts and the pack's own dashboard read these -----------------
    inconsistency: {
      unit: 'percentunit',
      help: 'How far the accepted tokens by position differ from all accepted tokens, where that is more than %g %%.'
            % (100 * config.consistency_tolerance)
            + ' They are equal in every release that has both.',
      expr: 'abs(\n  1\n  - %(by_position)s\n  / (%(all)s > 0)\n) > %(tolerance)s' % {
        by_position: source.summed('increase', 'accepted_tokens_per_position', long),
        all: source.summed('increase', 'accepted_tokens', long),
        tolerance: number(config.consistency_tolerance),
      },
    },
    rules_busy: {
      unit: 'percentunit',
      help: 'Duration of the last evaluation of a rule group of this pack / its interval.',
      local groups = '{rule_group=~".*;specdec-.+"}',
      expr: 'prometheus_rule_group_last_duration_seconds' + groups + '\n/ prometheus_rule_group_interval_seconds' + groups,
    },
    rules_missed: {
      unit: 'short',
      help: 'Missed evaluations of a rule group of this pack within %s.' % promql.duration(long),
      expr: promql.range('increase', 'prometheus_rule_group_iterations_missed_total{rule_group=~".*;specdec-.+"}', long),
    },
    rules_failed: {
      unit: 'short',
      help: 'Failed evaluations of rules of this pack within %s.' % promql.duration(long),
      expr: promql.range('increase', 'prometheus_rule_evaluation_failures_total{rule_group=~".*;specdec-.+"}', long),
    },

    // Every ruler can tell this, whatever it says of itself.
    rules_stale: {
      unit: 'short',
      help: 'Services with counters that have no record younger than %s: their rules fail, or come late.'
            % promql.duration(3 * config.evaluation_interval_seconds),
      expr: 'count(\n  %(replicas)s\n  unless %(on)s\n  (time() - timestamp(%(record)s) < %(seconds)d)\n)' % {
        replicas: promql.indent(source.replicas),
        on: on,
        record: signals.generation_tokens_now.record,
        seconds: 3 * config.evaluation_interval_seconds,
      },
    },
    // Prometheus 3 drops all classic histograms when it converts them to native ones. Others drop _bucket to save series.
    // Steps come with the first token, so a service that generates without them has lost its histograms. While buckets are
    // mixed, and until they have left the window, quantiles are missing on purpose.
    buckets_missing: {
      unit: 'short',
      help: 'Services that generate tokens and have no histograms, or that have histograms without buckets.',
      expr: |||
        %(generating)s >= %(min_tokens)s
        unless %(on)s
        %(steps)s
        or
        max by (%(labels)s) (
          %(requests)s >= %(min_requests)d
          unless on (%(labels)s, sli)
          (%(quantiles)s{quantile="0.99"} or last_over_time(%(mixed)s[1h]))
        )
      ||| % {
        generating: signals.generation_tokens_now.record,
        min_tokens: number(config.min_generation_tokens_per_second),
        on: on,
        steps: source.steps('last_over_time', short),
        labels: promql.list(level),
        requests: signals.requests.record,
        min_requests: config.min_requests,
        quantiles: signals.latency_quantile.record,
        mixed: signals.buckets_mixed.record,
      },
    },

    // --- History, by the hour ----------------------------------------------------------------------------------------
    acceptance_hour: {
      record: name('acceptance', 'ratio_rate', hour),
      unit: 'percentunit',
      help: 'Acceptance rate of an hour with enough drafts, by epoch.',
      local draft_tokens = promql.group(source.counter('increase', 'draft_tokens', hour)),
      expr: ofEpoch(|||
        %(accepted)s
        /
        %(drafted)s
        and %(on)s
        (%(drafts)s >= %(min_drafts)d)
      ||| % {
        accepted: promql.group(source.counter('increase', 'accepted_tokens', hour)),
        drafted: draft_tokens,
        on: on,
        drafts: promql.group(promql.firstOf([
          source.counter('increase', 'drafts', hour),
          '%(draft_tokens)s\n/ %(assumed)d' % { draft_tokens: draft_tokens, assumed: config.assumed_draft_tokens },
        ], level)),
        min_drafts: config.min_history_drafts,
      }, signals.sample.record),
    },
    // Not recorded. Such hours are no history, or a regression that nobody mends would become normal.
    lasting: {
      help: 'Latency alerts that fired in half of the last %d hours.' % (2 * config.history_patience_hours),
      // A subquery: the number of samples does not depend on the ruler.
      expr: lasting([]),
      by_sli: { [sli]: lasting(['sli="%s"' % sli]) for sli in std.objectFields(config.slis) },
    },
    latency_mean_hour: {
      record: name('latency_seconds', 'mean', hour),
      unit: 's',
      help: 'Mean latency of an hour with enough requests, by epoch. Not of one in a regression that lasts.',
      by_sli: {
        [sli]: usual(sli, '%(sum)s\n/\n(%(requests)s >= %(min_requests)d)' % {
          sum: source.histogram('increase', sli, 'sum', hour),
          requests: source.histogram('increase', sli, 'count', hour),
          min_requests: config.min_history_requests,
        })
        for sli in std.objectFields(config.slis)
      },
    },
    latency_cdf_hour: {
      record: name('latency', 'cdf', hour),
      unit: 'percentunit',
      help: 'Share of the requests of an hour within each bucket boundary, by epoch. Only boundaries that hold at least half of them.',
      local share(sli, better_slis) =
        usual(sli, '%(within)s\n/ %(on)s group_left ()\n(%(requests)s >= %(min_requests)d)\n>= 0.5%(unless)s' % {
          within: source.histogram('increase', sli, 'bucket', hour, ['le'], history_bounds(sli)),
          on: on,
          requests: source.histogram('increase', sli, 'count', hour),
          min_requests: config.min_history_requests,
          unless: std.join('', [
            '\nunless %(on)s\n%(requests)s{sli="%(sli)s"}' % { on: on, requests: signals.requests.record, sli: better }
            for better in better_slis
          ]),
        }),
      by_sli: {
        [config.history_tail_slis[i]]: share(config.history_tail_slis[i], config.history_tail_slis[:i])
        for i in std.range(0, std.length(config.history_tail_slis) - 1)
      },
    },
  };

  local compared = signals + (import 'baselines.libsonnet')(config, source, signals, name);
  // Hidden: only dashboards read views, so rules need not render them.
  compared { views:: (import 'views.libsonnet')(config, source, compared, narrow) }
