// Can the figures be believed? Not recorded: only alerts and the pack's own dashboard read these.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local short = config.short_window_seconds;
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;
  local tolerance = 0.02;

  {
    inconsistency: {
      unit: 'percentunit',
      help: 'How far the accepted tokens by position differ from all accepted tokens, where that is more than %g %%.'
            % (100 * tolerance)
            + ' They are equal in every release that has both.',
      expr: 'abs(\n  1\n  - %(by_position)s\n  / (%(all)s > 0)\n) > %(tolerance)s' % {
        by_position: source.summed('increase', 'accepted_tokens_per_position', long),
        all: source.summed('increase', 'accepted_tokens', long),
        tolerance: number(tolerance),
      },
    },
    rules_busy: {
      most:: 0.8,  // Above 1, evaluations are missed.
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
    // Steps come with the first token, so a service that generates without them has lost its histograms. Mixed buckets
    // do arrive.
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
          (
            %(buckets)s
          )
        )
      ||| % {
        generating: signals.generation_tokens_now.record,
        min_tokens: number(signals.generation_tokens_now.least),
        on: on,
        steps: source.steps('last_over_time', short),
        labels: promql.list(level),
        requests: signals.requests.record,
        min_requests: config.min_requests,
        buckets: promql.indent(std.join('\nor\n', [
          promql.withLabel(source.bucketed(sli, long), 'sli', sli)
          for sli in std.objectFields(config.slis)
        ]), 4),
      },
    },

    baselines_differ: {
      unit: 'short',
      help: 'Replicas have baseline files that were recorded at different times, or some replicas have a file and others none.',
      expr: |||
        stddev by (%(labels)s) (%(recorded)s) > 0
        or
        count by (%(labels)s) (
          group by (%(replica)s) (%(replicas)s)
        )
        > count by (%(labels)s) (%(recorded)s)
      ||| % {
        labels: promql.list(level),
        recorded: source.family('baseline_recorded_timestamp_seconds'),
        // An exporter has one file for all engines of its predictor.
        replica: promql.list(level + [label for label in config.replica_labels if label != 'engine']),
        replicas: source.family('predictor_info'),
      },
    },

    baselines_old: {
      local days = 60,  // traffic, driver and neighbours change
      days:: days,
      unit: 's',
      help: 'Age of baseline files that are older than %d days, or of another release or method than runs now.'
            % days,
      expr: |||
        time() - min by (%(labels)s) (%(recorded)s)
        > %(seconds)d
        or
        time() - min by (%(labels)s) (%(recorded)s)
        and %(on)s
        (
          %(release)s
          or
          %(method)s
        )
      ||| % {
        labels: promql.list(level),
        recorded: source.family('baseline_recorded_timestamp_seconds'),
        seconds: 86400 * days,
        on: on,
        release: promql.indent(source.recordedWithOther('vllm_version')),
        method: promql.indent(source.recordedWithOther('method')),
      },
    },
  }
