// Quantities that only people look at: asked for when a panel is drawn, never recorded, read by no rule. Part of the signals.
// `by` maps each value of the label `label` to its expression.
local promql = import 'promql.libsonnet';

// `narrow`: matchers for series without a model (`target`: about scrapes), for series without a service (`place`: about
// exporters), and for ALERTS (`alerts`). ALERTS lack labels that matchers of raw series may use.
function(config, source, signals, narrow)
  local policy = config.policy;
  local short = config.short_window_seconds;
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local service = std.filter(function(label) label != 'model_name', level);
  local on = 'on (%s)' % promql.list(level);
  local on_sli = 'on (%s, sli)' % promql.list(level);
  local number = promql.number;
  local with_exporter = config.source == 'exporter';

  local aggregate(operator, expression, labels=level) = promql.by(operator, labels, expression);
  local ratio(above, below) = '%(above)s\n/ %(on)s\n%(below)s' % {
    above: promql.group(above),
    on: on,
    below: promql.group(below + ' > 0'),
  };

  local recorded(signal, sli) = '%(record)s{sli="%(sli)s"}' % { record: signal.record, sli: sli };
  local acceptanceQuantile(quantile, family) =
    promql.quantile(quantile, aggregate('sum', promql.range('rate', source.family(family + '_bucket'), long), level + ['le']));

  local firing(matchers) =
    'ALERTS' + promql.braces(['alertstate="firing"', 'component="%s"' % config.component] + matchers + [narrow.alerts]);

  local count(matchers) = aggregate('count', firing(matchers), service);

  // Alerts, each by its highest severity. `of`: the series of a severity.
  local foremost(operator, factors, of) =
    local alert = ['alertname', 'sli', 'reason', 'container'] + level;
    local by(severity, without='') = factors[severity] + aggregate(operator, of(severity) + without, ['severity'] + alert);
    std.join('\nor\n', [
      by('critical'),
      by('warning', ' unless on (%s) ' % promql.list(alert) + firing(['severity="critical"'])),
      by('info'),
    ]);

  local is(value, expression) = '0 * (' + expression + ') + ' + value;
  // The recorded verdict, unless the service is down, and -1 without one. `before`: what goes before the verdict. `otherwise`:
  // what tells more where there is none. A service that is down has no model.
  local statusBy(before=[], otherwise=[]) = promql.firstOf([
    is(9, aggregate('max', firing(['alertname="SpecDecodeTargetDown"', 'severity="critical"']), service)),
    promql.group(
      promql.firstOf(before + ['1 * ' + signals.verdict.record] + otherwise, level)  // 1 *: without its name, as the others
    ),
    is(-1, aggregate('max', signals.replica_up.record, service)),
  ], service);
  local not_drafting = is(7, signals.sample.record + ' == 0 and ' + signals.generation_tokens_now.record + ' > 0');
  local no_verdict = [
    is(0, signals.sample.record),
    // V0 engines without a log have no counts of drafts.
    is(-2, signals.generation_tokens_now.record + ' unless ' + on + ' ' + signals.acceptance_lifetime.record),
  ];

  // A limit by where it comes from. Assumed: the policy's guess for the method, which counts only where nothing is measured.
  local byBasis(limit, measured) =
    if with_exporter then {
      measured: '%(limit)s\nand %(on)s\n(%(measured)s)' % { limit: limit, on: on, measured: measured },
      assumed: '%(limit)s\nunless %(on)s\n(%(measured)s)' % { limit: limit, on: on, measured: measured },
    } else { assumed: limit };

  // By concurrency, where enough request-steps ran.
  local ofLoad(expression) = '%(expression)s\nand\n%(steps)s >= %(min_steps)d' % {
    expression: promql.group(expression),
    steps: source.byLoad('steps'),
    min_steps: policy.cost.min_steps,
  };
  local by_load = promql.list(level + ['concurrency']);

  // The curve never rises, so its first k positions are its k highest.
  local acceptedWith(k) = |||
    sum by (%(labels)s) (topk by (%(labels)s) (%(k)s, %(curve)s))
    and %(on)s %(curve)s{position="%(last)d"}
  ||| % { labels: promql.list(level), k: k, last: k - 1, curve: signals.position_acceptance.record, on: on };

  // A vector by k, from an expression for each k.
  local byK(of) = std.join('\nor\n', [
    promql.withLabel(of(k), 'k', std.toString(k))
    for k in std.range(1, 8)
  ]);
  // The drafts of a request's first decoding step have no sample.
  local drafts_per_step = 'clamp_max(%s, 1)' % ratio(signals.drafts.record, source.steps('increase', long));
  local cost_per_step = '%(drafts)s * %(on)s %(cost)s' % {
    drafts: drafts_per_step,
    on: on,
    cost: source.measured('avg', 'draft_cost_ratio'),
  };
  // Tokens per step, by k.
  local tokens_with = '(1 + %(accepted)s * %(on)s group_left () %(drafts)s)' % {
    accepted: promql.group(byK(acceptedWith)),
    on: on,
    drafts: drafts_per_step,
  };

  local views = {
    // --- Verdict -----------------------------------------------------------------------------------------------------
    status: {
      unit: 'short',
      help: 'The verdict over %s: 0 idle, 1 healthy, 2 watch, 3 not paying off, 4 harmful, 5 broken, 6 slower than before. '
            % promql.duration(long)
            + '9 no metrics (SpecDecodeTargetDown fires), -1 no verdict.',
      expr: statusBy(),
    },
    state: {
      unit: 'short',
      help: views.status.help + ' And why: 7 not drafting, 0 too few drafts, -2 speculation off.',
      expr: statusBy([not_drafting], no_verdict),
    },
    advice: {
      unit: 'short',
      help: 'The status, plus 10 where nothing measured stands behind it: it follows from acceptance and a guess of what drafts '
            + 'cost.',
      local guessed = '(%(verdict)s == %(healthy)d or %(verdict)s == %(harmful)d or %(verdict)s == %(broken)d)' % signals.verdict.values {
        verdict: signals.verdict.record,
      },
      expr: statusBy([not_drafting, '10 + (' + guessed + ' unless ' + on + ' ' + signals.speedup.record + ')'], no_verdict),
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
      local factors = { critical: '3 * ', warning: '2 * ', info: '' },
      expr: foremost('max', factors, function(severity) firing(['severity="%s"' % severity])),
    },
    alerts_since: {
      unit: 'dateTimeFromNow',
      help: 'When the condition of the alert came true. The alert fires once it has been true for a while.',
      local factors = { critical: '1000 * ', warning: '1000 * ', info: '1000 * ' },  // Grafana counts milliseconds
      expr: foremost('min', factors, function(severity)
        'ALERTS_FOR_STATE%(which)s and ignoring (alertstate) %(firing)s' % {
          which: promql.braces(['component="%s"' % config.component, 'severity="%s"' % severity, narrow.alerts]),
          firing: firing(['severity="%s"' % severity]),
        }),
    },
    method: {
      unit: 'short',
      help: 'Method and draft model that the engine reported at its start. During a rollout there are two.',
      expr: aggregate('group', source.family('predictor_info'), level + ['method', 'draft_model', 'vllm_version']),
    },
    positions_configured: {
      unit: 'short',
      help: 'k: the largest number of draft tokens per draft (num_speculative_tokens).',
      expr:
        if with_exporter then aggregate('max', source.family('num_speculative_tokens'))
        // Not the curve: with adaptive verification it has only position 0.
        else aggregate('count', source.counter('increase', 'accepted_tokens_per_position', long, ['position'])),
    },

    // --- Does it pay? ------------------------------------------------------------------------------------------------
    speedup_band: {
      unit: 'suffix:x',
      help: signals.speedup_bound.help + ' Left out where it is a factor of 2 away from the speed-up, because it says little.',
      label: 'bound',
      local told(bound, comparison, factor) = '%(bound)s{bound="%(which)s"} %(comparison)s %(on)s %(factor)s * %(speedup)s' % {
        bound: signals.speedup_bound.record,
        which: bound,
        comparison: comparison,
        on: on,
        factor: factor,
        speedup: signals.speedup.record,
      },
      by: { 'at least': told('low', '>', '0.5'), 'at most': told('high', '<', '2') },
    },
    draft_cost: {
      unit: 'percentunit',
      help: 'Cost of one more draft token, in steps without a draft: measured at the load that the service has, and the guess '
            + 'of the policy. It is the acceptance rate that breaks even.',
      label: 'basis',
      by: {
        measured: source.measured('avg', 'draft_cost_ratio'),
        assumed: aggregate('min', source.family('draft_cost_ratio', ['basis="assumed"'])),
      },
    },
    break_even_acceptance: {
      unit: 'percentunit',
      help: signals.acceptance_min.help,
      label: 'basis',
      by: byBasis(signals.acceptance_min.record, signals.break_even.expr),
    },
    break_even_length: {
      unit: 'short',
      help: signals.acceptance_length_min.help,
      label: 'basis',
      by: byBasis(signals.acceptance_length_min.expr, source.measured('min', 'break_even_acceptance_length')),
    },
    break_even_measured: {
      unit: 'short',
      help: 'Whether break-even is measured (1) or assumed (0).',
      expr: promql.firstOf(
        (if with_exporter then ['0 * %s + 1' % signals.break_even.expr] else [])
        + ['0 * ' + signals.acceptance_min.record],
        level
      ),
    },
    concurrency: {
      unit: 'short',
      help: 'Requests in decode at a time, per engine: seconds of step latency per second (Little).',
      expr: source.concurrency(short),
    },
    speedup_by_load: {
      unit: 'suffix:x',
      help: 'Measured speed-up by concurrency: the time that the same tokens would have taken without speculation at like load '
            + '/ the time that they took. Of loads with at least %d request-steps.' % policy.cost.min_steps,
      label: 'place',
      local all = ofLoad('%(plain)s\n/ (%(compared)s > 0)' % {
        plain: source.byLoad('plain_seconds'),
        compared: source.byLoad('compared_seconds'),
      }),
      // A number becomes a label in the form that the exporter writes.
      local here = 'count_values by (%(labels)s) ("concurrency", 2 ^ ceil(log2(clamp(%(concurrency)s, 1, 2048))))' % {
        labels: promql.list(level),
        concurrency: views.concurrency.expr,
      },
      by: {
        here: '%(all)s\nand on (%(labels)s)\n%(here)s' % { all: promql.group(all), labels: by_load, here: here },
        elsewhere: '%(all)s\nunless on (%(labels)s)\n%(here)s' % { all: promql.group(all), labels: by_load, here: here },
      },
    },
    step_time_by_load: {
      unit: 's',
      help: 'Mean time of a request-step by concurrency, with speculation, and without it at like load.',
      label: 'speculation',
      by: {
        with: ofLoad('%(seconds)s\n/ (%(steps)s > 0)' % { seconds: source.byLoad('step_seconds'), steps: source.byLoad('steps') }),
        // Only a part of a load may have a like load in the baseline: its tokens are in proportion to its step time.
        without: ofLoad('%(plain)s / (%(tokens)s > 0)\n* %(seconds)s / (%(compared)s > 0)' % {
          plain: source.byLoad('plain_seconds'),
          tokens: source.byLoad('tokens'),
          seconds: source.byLoad('step_seconds'),
          compared: source.byLoad('compared_seconds'),
        }),
      },
    },

    // --- Acceptance --------------------------------------------------------------------------------------------------
    draft_tokens_now: {
      unit: 'suffix:/s',
      help: 'Draft tokens proposed per second.',
      expr: source.counter('rate', 'draft_tokens', short),
    },
    accepted_tokens_now: {
      unit: 'suffix:/s',
      help: 'Draft tokens accepted per second.',
      expr: source.counter('rate', 'accepted_tokens', short),
    },
    wasted_tokens_now: {
      unit: 'suffix:/s',
      help: 'Wasted draft tokens per second: proposed, verified and rejected. Absent with adaptive verification.',
      expr: signals.whollyVerified('%(drafted)s\n- %(on)s\n%(accepted)s' % {
        drafted: promql.group(views.draft_tokens_now.expr),
        on: on,
        accepted: promql.group(views.accepted_tokens_now.expr),
      }),
    },
    acceptance_quantile: {
      unit: 'percentunit',
      help: 'Acceptance rate of short windows of at least %d drafts, by quantile: how much it depends on the traffic.'
            % policy.min_drafts,
      label: 'quantile',
      by: { [number(quantile)]: acceptanceQuantile(quantile, 'window_acceptance_ratio') for quantile in [0.1, 0.5, 0.9] },
    },
    acceptance_median_by_draft: {
      unit: 'percentunit',
      help: 'Median acceptance rate of the same short windows, each counted once per draft: busy windows weigh more.',
      expr: acceptanceQuantile(0.5, 'window_acceptance_ratio_by_draft'),
    },

    // --- The curve ---------------------------------------------------------------------------------------------------
    position_acceptance_usual: {
      unit: 'percentunit',
      help: 'Usual per-position rate: the median of the last %d days, without the last hour.' % config.history_days,
      expr: 'quantile_over_time(0.5, %(record)s[%(days)dd] offset %(last)s)' % {
        record: signals.position_acceptance.record,
        days: config.history_days,
        last: promql.duration(config.history_interval_seconds),
      },
    },
    length_with: {
      unit: 'short',
      help: 'Mean acceptance length with only the first k positions of the measured curve: 1 + sum of their rates.',
      expr: '1 + ' + promql.group(byK(acceptedWith)),
    },
    // The cost is measured at the k that runs. How much of it is per draft and how much per draft token is not known, so the
    // speed-up with another k lies between two limits.
    speedup_at_least: {
      unit: 'suffix:x',
      help: 'Expected speed-up with k draft tokens if a draft costs the same with any k: by the measured curve and the measured '
            + 'cost. Absent while the cost is not measured.',
      expr: '%(tokens)s\n/ %(on)s group_left ()\n(1 + %(cost)s * %(on)s %(length)s)' % {
        tokens: tokens_with,
        on: on,
        cost: cost_per_step,
        length: promql.group(signals.draft_length.expr),
      },
    },
    speedup_at_most: {
      unit: 'suffix:x',
      help: 'The same if the cost grows in proportion to k.',
      expr: '%(tokens)s\n/ on (%(labels)s)\n(1 + %(cost)s)' % {
        tokens: tokens_with,
        labels: promql.list(level + ['k']),
        cost: promql.group(byK(function(k) '%(k)d * %(cost)s' % { k: k, cost: cost_per_step })),
      },
    },
    draft_fullness: {
      unit: 'percentunit',
      help: 'Mean draft length / k. Below %g %%, drafts are short: the end of the curve reads too low, so it cannot tell '
            % (100 * (1 - policy.short_draft_tolerance))
            + 'whether another k is better.',
      expr: ratio(signals.draft_length.expr, signals.positions.expr),
    },

    // --- Latency -----------------------------------------------------------------------------------------------------
    mean_error: {
      help: 'Relative sampling error of a mean: cv / sqrt(requests).',
      by_sli: {
        [sli]: '%(cv)s / sqrt(%(requests)s > 0)' % {
          cv: number(config.slis[sli].cv),
          requests: recorded(signals.requests, sli),
        }
        for sli in std.objectFields(config.slis)
      },
    },
    replica_latency: {
      unit: 's',
      help: 'Mean latency by replica.',
      by_sli: { [sli]: source.replicaMean(sli, long) for sli in std.objectFields(config.slis) },
    },
    replica_speedup: {
      unit: 'suffix:x',
      help: 'Measured speed-up by replica: by its exporter at like load, otherwise time per output token at baseline / of the '
            + 'replica.',
      // An exporter measures all engines of its predictor together.
      local replica = [label for label in config.replica_labels if label != 'engine'],
      local by_exporter = source.measured('avg', 'speedup_ratio', extra=replica),
      // The speed-up of the service is the same baseline / the mean of the service.
      local by_mean = '(%(speedup)s{speedup_source!="like_load", sli="tpot"} * %(on)s %(mean)s)\n/ %(on)s group_right ()\n%(replica)s' % {
        speedup: signals.speedup.record,
        on: on,
        mean: recorded(signals.latency_mean, 'tpot'),
        replica: promql.group(source.replicaMean('tpot', long, replica)),
      },
      expr: promql.firstOf((if with_exporter then [by_exporter] else []) + [by_mean], level + replica),
    },
    answer_length: {
      unit: 'short',
      help: 'Mean length of an answer in tokens: generated tokens / finished requests. Longer answers take longer end to end.',
      expr: ratio(source.counter('increase', 'generation_tokens', long), source.histogram('increase', 'e2e', 'count', long))
            + '\nunless ' + on + '\n' + source.v0,
    },
    latency_spread: {
      unit: 'short',
      help: 'Spread: P99 / P50. It grows when a few requests become slow and the typical request does not.',
      by_sli: {
        [sli]: ratio('max without (quantile) (%s)' % signals.latency_quantile.by_sli[sli][number(0.99)], 'max without (quantile) (%s)' % signals.latency_quantile.by_sli[sli][number(0.5)])
        for sli in std.objectFields(config.slis)
      },
    },
    slow_requests: {
      unit: 'percentunit',
      help: 'Share of the requests of %(long)s that were slower than their objective: %(objectives)s.' % {
        long: promql.duration(long),
        objectives: std.join(', ', [
          '%(slo)s over %(bound)s s (at most %(budget)g %%)' % {
            slo: slo,
            bound: config.slos[slo].le,
            budget: 100 * (1 - config.slos[slo].objective),
          }
          for slo in std.objectFields(config.slos)
        ]),
      },
      label: 'slo',
      by: {
        [slo]: promql.strip(|||
          avg_over_time(%(slow)s{slo="%(slo)s"}[%(long)s])
          / (avg_over_time(%(all)s{slo="%(slo)s"}[%(long)s]) > 0)
        ||| % {
          slow: signals.slo_slow_requests.record,
          all: signals.slo_requests.record,
          slo: slo,
          long: promql.duration(long),
        })
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

    // --- Events ------------------------------------------------------------------------------------------------------
    restarts: {
      unit: 'short',
      help: 'Replicas that started or restarted within %s.' % promql.duration(short),
      expr: source.replicasStarted(short),
    },
    changes: {
      unit: 'short',
      help: 'A release, method or draft model that did not run %s ago.' % promql.duration(short),
      local before = aggregate(
        'group',
        source.family('predictor_info') + ' offset ' + promql.duration(short),
        level + ['method', 'draft_model', 'vllm_version']
      ),
      expr: views.method.expr + '\nunless\n' + before,
    },
    warnings: {
      unit: 'short',
      help: "Known warnings about speculation in the predictor's log, within %s." % promql.duration(long),
      expr: aggregate(
        'sum',
        promql.range('increase', source.family('predictor_warnings_total'), long),
        level + ['warning']
      ) + ' > 0',
    },

    // --- Fleet -------------------------------------------------------------------------------------------------------
    services_by_status: {
      unit: 'short',
      help: 'Services by status. ' + views.status.help,
      expr: 'count_values("status",\n  %s\n)' % promql.indent(views.status.expr),
    },
    urgency: {
      unit: 'short',
      help: 'What hurts: 100 for each critical alert, 10 for each warning (90 at most), and the status; slower than before counts '
            + 'as 2.5, between watch and not paying off.',
      local slower = signals.verdict.record + ' == ' + signals.verdict.values.slower,
      local part(name, expression) = promql.withLabel(expression, 'part', name),
      expr: aggregate('sum', std.join('\nor\n', [
        part('critical', '100 * ' + count(['severity="critical"'])),
        part('warning', '10 * clamp_max(%s, 9)' % count(['severity="warning"'])),
        part('status', aggregate('max', promql.group(statusBy([is('2.5', slower)])), service)),
      ]), service),
    },
    alerts_by_service: {
      unit: 'short',
      help: 'Critical and warning alerts that fire for the service.',
      expr: count(['severity!="info"']),
    },
    pack_alerts: {
      unit: 'short',
      help: 'Alerts that fire about figures, rules or scraping.',
      expr: 'count by (alertname) (%s)' % firing([
        'alertname=~"%s"' % std.join('|', [
          'SpecDecode' + name
          for name in [
            'DataUntrusted',
            'RulesLagging',
            'TargetDown',
          ]
        ]),
      ]),
    },
    without_baseline: {
      unit: 'short',
      help: 'Requests of services that draft but have no latency baseline. ' + signals.latency_baseline.help,
      expr: '%(requests)s\nand %(on)s\n(%(drafts)s > 0)\nunless %(on_sli)s\n%(baseline)s' % {
        requests: signals.requests.record,
        on: on,
        drafts: signals.drafts.record,
        on_sli: on_sli,
        baseline: signals.latency_baseline.record,
      },
    },
    history_hours: {
      unit: 'short',
      help: 'Hours of history with enough requests, for services without a baseline. %d such hours make a baseline.'
            % config.min_history_hours,
      expr: 'count_over_time(%(record)s[%(days)dd])\nand %(on_sli)s\n%(without_baseline)s' % {
        record: signals.latency_mean_hour.record,
        days: config.history_days,
        on_sli: on_sli,
        without_baseline: promql.group(views.without_baseline.expr),
      },
    },
    speculation_unused: {
      unit: 'suffix:/s',
      help: 'Tokens per second of services without speculation. Live controls are left out.',
      expr: '%(tokens)s{inference_service!~"%(control)s"} >= %(min_tokens)s\nunless\n%(drafts)s' % {
        tokens: signals.generation_tokens_now.record,
        control: config.control_service_regex,
        min_tokens: number(signals.generation_tokens_now.least),
        drafts: signals.drafts_now.record,
      },
    },
    unused_batch: {
      unit: 'short',
      help: 'Requests running per engine of the services without speculation.',
      expr: '%(running)s\nand %(on)s\n%(unused)s' % {
        running: promql.group(views.requests_running_per_engine.expr),
        on: on,
        unused: promql.group(views.speculation_unused.expr),
      },
    },
  };
  views + (import 'health.libsonnet')(config, source, signals, narrow)
