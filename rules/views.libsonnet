// Quantities that only people look at: asked for when a panel is drawn, never recorded, read by no rule. Part of the signals.
// Of them `by` is an object of expressions, by the value of the label that it names.
local promql = import 'promql.libsonnet';

// `narrow`: matchers of series without a model (`target`: about scrapes), without a service (`place`: about exporters), and
// of ALERTS (`alerts`), which have none of the labels that matchers of raw series may be about.
function(config, source, signals, narrow)
  local policy = config.policy;
  local short = config.short_window_seconds;
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local service = std.filter(function(label) label != 'model_name', level);
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;
  local with_exporter = config.source == 'exporter';

  local aggregate(operator, expression, labels=level) = '%s by (%s) (%s)' % [operator, promql.list(labels), expression];
  local ratio(above, below) = '%s\n/ %s\n%s' % [promql.group(above), on, promql.group(below + ' > 0')];

  local recorded(signal, sli) = '%s{sli="%s"}' % [signal.record, sli];
  local percentile(sli, quantile) =
    if std.member(config.slis[sli].quantiles, quantile)
    then '%s{sli="%s", quantile="%s"}' % [signals.latency_quantile.record, sli, number(quantile)]
    else
      'histogram_quantile(%s, %s) >= 0' % [
        number(quantile),
        source.histogram('rate', sli, 'bucket', long, ['le']),
      ];

  local firing(matchers) =
    'ALERTS' + promql.braces(['alertstate="firing"', 'component="%s"' % config.component] + matchers + [narrow.alerts]);

  // State in which all replicas of a service are.
  local all(state) = aggregate('min', source.family('predictor_state', ['state="%s"' % state])) + ' == 1';
  local status(value, expression) = '0 * (%s) + %d' % [expression, value];

  // The curve never rises, so its first positions are its highest: topk needs no position by name.
  local lengthWith(k) = |||
    1 + %s
    and %s
    count without (position) (%s) >= %d
  ||| % [
    aggregate('sum', 'topk by (%s) (%d, %s)' % [promql.list(level), k, signals.position_acceptance.record]),
    on,
    signals.position_acceptance.record,
    k,
  ];

  local views = {
    // --- Verdict -----------------------------------------------------------------------------------------------------
    status: {
      unit: 'short',
      help: 'The verdict over %s, or why there is none: -1 speculation off, 0 idle or too few drafts, 1 healthy, 2 watch, '
            % promql.duration(long)
            + '3 not paying off, 4 harmful, 5 broken, 6 not drafting, 7 statistics off, 8 unreachable (every replica).',
      expr: promql.firstOf(
        (if with_exporter then [status(8, all('unreachable'))] else [])
        + [
          status(6, '%s == 0 and %s > 0' % [signals.sample.record, signals.generation_tokens_now.record]),
          '1 * ' + signals.verdict.record,  // without its name, as the others
        ]
        + (if with_exporter then [status(7, all('stats_disabled')), status(-1, all('speculation_off'))] else [])
        + [status(0, signals.sample.record)],
        level
      ),
    },
    alerts: {
      unit: 'short',
      help: 'Alerts of this pack that fire.',
      expr: firing([]),
    },
    alerts_foremost: {
      unit: 'short',
      help: 'Alerts of this pack that fire, each by its highest severity: 3 critical (wakes somebody), 2 warning (a task), '
            + '1 info (explains).',
      local alert = ['alertname', 'sli'] + level,
      local of(severity) = firing(['severity="%s"' % severity]),
      expr: |||
        3 * max by (%(labels)s) (%(critical)s)
        or
        2 * max by (%(labels)s) (%(warning)s unless on (%(alert)s) %(critical)s)
        or
        max by (%(labels)s) (%(info)s)
      ||| % {
        labels: promql.list(['severity'] + alert),
        alert: promql.list(alert),
        critical: of('critical'),
        warning: of('warning'),
        info: of('info'),
      },
    },
    method: {
      unit: 'short',
      help: 'What drafts, as the engine said when it started; two of them during a rollout.',
      expr: aggregate('group', source.family('predictor_info'), level + ['method', 'draft_model', 'vllm_version']),
    },
    positions_configured: {
      unit: 'short',
      help: 'k: draft tokens per draft at most (num_speculative_tokens).',
      expr: if with_exporter then aggregate('max', source.family('num_speculative_tokens')) else signals.positions.expr,
    },
    positions_recommended: {
      unit: 'short',
      help: 'k that the measured curve supports; 0 is off. A hint where to measure, never above the k that was measured.',
      expr: aggregate('min', source.family('recommended_num_speculative_tokens')),
    },
    efficiency: {
      unit: 'percentunit',
      help: 'Realised speed-up / its ceiling: what drafting and verifying leave of it.',
      expr: ratio(signals.speedup.record, signals.tokens_per_step.record),
    },

    // --- Acceptance --------------------------------------------------------------------------------------------------
    draft_tokens_now: {
      unit: 'ops',
      help: 'Draft tokens proposed per second.',
      expr: source.counter('rate', 'draft_tokens', short),
    },
    accepted_tokens_now: {
      unit: 'ops',
      help: 'Draft tokens accepted per second.',
      expr: source.counter('rate', 'accepted_tokens', short),
    },
    wasted_tokens_now: {
      unit: 'ops',
      help: 'Wasted draft tokens per second: proposed, verified and rejected.',
      expr: '%s\n- %s\n%s' % [
        promql.group(views.draft_tokens_now.expr),
        on,
        promql.group(views.accepted_tokens_now.expr),
      ],
    },
    acceptance_quantile: {
      unit: 'percentunit',
      help: 'Acceptance rate of short windows of at least %d drafts, by quantile: how much it depends on the traffic.'
            % policy.min_drafts,
      label: 'quantile',
      by: {
        [number(quantile)]: 'histogram_quantile(%s, %s) >= 0' % [
          number(quantile),
          aggregate(
            'sum',
            'rate(%s[%s])' % [source.family('window_acceptance_ratio_bucket'), promql.duration(long)],
            level + ['le']
          ),
        ]
        for quantile in [0.1, 0.5, 0.9]
      },
    },

    // --- The curve ---------------------------------------------------------------------------------------------------
    position_acceptance_usual: {
      unit: 'percentunit',
      help: 'Per-position rate as it usually is: the median of the last %d days, without the last hour.'
            % config.history_days,
      expr: 'quantile_over_time(0.5, %s[%dd] offset %s)' % [
        signals.position_acceptance.record,
        config.history_days,
        promql.duration(config.history_interval_seconds),
      ],
    },
    length_with: {
      unit: 'short',
      help: 'Mean acceptance length with only the first positions of the measured curve: 1 + sum of their rates.',
      label: 'k',
      by: { ['%d' % k]: lengthWith(k) for k in std.range(1, config.considered_positions) },
    },
    speedup_with: {
      unit: 'short',
      help: 'Expected speed-up with k draft tokens: mean acceptance length / (1 + k c), with c the acceptance rate that '
            + 'breaks even. A hint where to measure, no promise.',
      label: 'k',
      by: {
        [k]: '%s\n/ %s\n(1 + %s * %s)' % [promql.group(views.length_with.by[k]), on, k, signals.acceptance_min.record]
        for k in std.objectFields(views.length_with.by)
      },
    },
    draft_fullness: {
      unit: 'percentunit',
      help: 'Mean draft length / k. Below %g %% drafts are short: the tail of the curve reads too low, and another k cannot '
            % (100 * (1 - policy.short_draft_tolerance))
            + 'be judged by it.',
      expr: ratio(signals.draft_length.expr, signals.positions.expr),
    },

    // --- Latency -----------------------------------------------------------------------------------------------------
    latency_percentile: {
      unit: 's',
      help: signals.latency_quantile.help,
      by_sli: {
        [sli]: { [number(quantile)]: percentile(sli, quantile) for quantile in [0.5, 0.95, 0.99] }
        for sli in std.objectFields(config.slis)
      },
    },
    mean_error: {
      help: 'What chance does to a mean: cv / sqrt(requests), relative to it.',
      by_sli: {
        [sli]: '%s / sqrt(%s > 0)' % [number(config.slis[sli].cv), recorded(signals.requests, sli)]
        for sli in std.objectFields(config.slis)
      },
    },
    latency_spread: {
      unit: 'short',
      help: 'Spread: P99 / P50. It grows when a few requests become slow and the typical one does not.',
      by_sli: {
        [sli]: ratio('max without (quantile) (%s)' % percentile(sli, 0.99), 'max without (quantile) (%s)' % percentile(sli, 0.5))
        for sli in std.objectFields(config.slis)
      },
    },
    slow_requests: {
      unit: 'percentunit',
      help: 'Share of the requests of %s beyond the bound of their objective: %s.' % [
        promql.duration(long),
        std.join(', ', [
          '%s over %s s (at most %g %%)' % [slo, config.slos[slo].le, 100 * (1 - config.slos[slo].objective)]
          for slo in std.objectFields(config.slos)
        ]),
      ],
      label: 'slo',
      by: {
        [slo]: 'avg_over_time(%s{slo="%s"}[%s])\n/ (avg_over_time(%s{slo="%s"}[%s]) > 0)' % [
          signals.slo_slow_requests.record,
          slo,
          promql.duration(long),
          signals.slo_requests.record,
          slo,
          promql.duration(long),
        ]
        for slo in std.objectFields(config.slos)
      },
    },

    // --- Load and memory -----------------------------------------------------------------------------------------------
    requests_running: {
      unit: 'short',
      help: 'Requests running, of all engines.',
      expr: source.gauge('sum', 'requests_running'),
    },
    requests_running_per_engine: {
      unit: 'short',
      help: 'Requests running per engine: the size of its batch.',
      expr: source.gauge('avg', 'requests_running'),
    },
    requests_waiting: {
      unit: 'short',
      help: 'Requests waiting, of all engines.',
      expr: source.gauge('sum', 'requests_waiting'),
    },
    kv_cache_usage: {
      unit: 'percentunit',
      help: 'Share of the KV cache in use, of the fullest engine.',
      expr: source.gauge('max', 'kv_cache_usage'),
    },
    preemptions: {
      unit: 'short',
      help: 'Requests preempted within %s: they lose their place in the KV cache and start again.' % promql.duration(long),
      expr: source.counter('increase', 'preemptions', long),
    },

    // --- Events ------------------------------------------------------------------------------------------------------
    restarts: {
      unit: 'short',
      help: 'Replicas that started, or started again, within %s.' % promql.duration(short),
      expr: source.replicasStarted(short),
    },
    changes: {
      unit: 'short',
      help: 'A release, method or draft model that was not there %s ago.' % promql.duration(short),
      expr: '%s\nunless\n%s' % [
        views.method.expr,
        aggregate(
          'group',
          source.family('predictor_info') + ' offset ' + promql.duration(short),
          level + ['method', 'draft_model', 'vllm_version']
        ),
      ],
    },
    warnings: {
      unit: 'short',
      help: "Known warnings about speculation in the predictor's log, within %s." % promql.duration(long),
      expr: aggregate(
        'sum',
        'increase(%s[%s])' % [source.family('predictor_warnings_total'), promql.duration(long)],
        level + ['warning']
      ) + ' > 0',
    },

    // --- Fleet -------------------------------------------------------------------------------------------------------
    services_by_status: {
      unit: 'short',
      help: 'Services by status. ' + views.status.help,
      label: 'status',
      local status = promql.indent(views.status.expr, 4),
      by: { ['%d' % value]: 'count(\n  (\n    %s\n  ) == %d\n) or vector(0)' % [status, value] for value in std.range(-1, 8) },
    },
    alerts_by_severity: {
      unit: 'short',
      help: 'Alerts of this pack that fire, by severity: critical wakes somebody, warning is a task, info explains.',
      label: 'severity',
      by: {
        [severity]: 'count(%s) or vector(0)' % firing(['severity="%s"' % severity])
        for severity in ['critical', 'warning', 'info']
      },
    },
    alerts_by_service: {
      unit: 'short',
      help: 'Alerts that fire for the service, without those that only explain.',
      expr: aggregate('count', firing(['severity!="info"']), service),
    },
    pack_alerts: {
      unit: 'short',
      help: 'Alerts that fire about figures, rules or scraping.',
      expr: 'count by (alertname) (%s)' % firing([
        'alertname=~"%s"' % std.join('|', [
          'SpecDecode' + name
          for name in ['MetricsInconsistent', 'BaselineMissing', 'BucketsMixed', 'RulesLagging', 'TargetDown', 'TargetAbsent']
        ]),
      ]),
    },
    acceptance_headroom: {
      unit: 'percentunit',
      help: 'Acceptance rate / its minimum: below 100 % speculation does not break even.',
      expr: '%s / %s %s' % [signals.acceptance.record, on, signals.acceptance_min.record],
    },
    without_baseline: {
      unit: 'short',
      help: 'Requests of services that draft and whose latency has no baseline. ' + signals.latency_baseline.help,
      expr: '%s\nand %s\n(%s > 0)\nunless on (%s, sli)\n%s' % [
        signals.requests.record,
        on,
        signals.drafts.record,
        promql.list(level),
        signals.latency_baseline.record,
      ],
    },
    history_hours: {
      unit: 'short',
      help: 'Hours of history with enough requests, where there is no baseline; %d of them make one.'
            % config.min_history_hours,
      expr: 'count_over_time(%s[%dd])\nand %s\n%s' % [
        signals.latency_mean_hour.record,
        config.history_days,
        'on (%s, sli)' % promql.list(level),
        promql.group(views.without_baseline.expr),
      ],
    },
    speculation_unused: {
      unit: 'ops',
      help: 'Tokens per second of services without speculation, live controls left out.',
      expr: '%s{inference_service!~"%s"} >= %s\nunless\n%s' % [
        signals.generation_tokens_now.record,
        config.control_service_regex,
        number(config.min_generation_tokens_per_second),
        signals.drafts_now.record,
      ],
    },

    unused_batch: {
      unit: 'short',
      help: 'Requests running per engine of these services.',
      expr: '%s\nand %s\n%s' % [
        promql.group(views.requests_running_per_engine.expr),
        on,
        promql.group(views.speculation_unused.expr),
      ],
    },
  };
  views + (import 'health.libsonnet')(config, source, signals, narrow)
