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
  local acceptanceQuantile(quantile) = promql.quantile(
    quantile, aggregate('sum', promql.range('rate', source.family('window_acceptance_ratio_bucket'), long), level + ['le'])
  );

  local firing(matchers) =
    'ALERTS' + promql.braces(['alertstate="firing"', 'component="%s"' % config.component] + matchers + [narrow.alerts]);

  local count(matchers) = aggregate('count', firing(matchers), service);

  local alert_labels = ['severity', 'alertname', 'sli', 'reason', 'container'] + level;
  // Alerts, each by its highest severity. `of`: the series of a severity.
  local foremost(operator, factors, of) =
    local by(severity, without='') = factors[severity] + aggregate(operator, of(severity) + without, alert_labels);
    std.join('\nor\n', [
      by('critical'),
      by('warning', ' unless on (%s) ' % promql.list(alert_labels[1:]) + firing(['severity="critical"'])),
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
  // Verdicts that rest on acceptance and a guess of what drafts cost, plus 10.
  local guessed(verdicts) = '10 + ((%(of)s) unless %(on)s %(speedup)s)' % {
    of: std.join(' or ', [signals.verdict.record + ' == %d' % signals.verdict.values[verdict] for verdict in verdicts]),
    on: on,
    speedup: signals.speedup.record,
  };
  local no_verdict = [
    is(0, signals.sample.record),
    // V0 engines without a log have no counts of drafts.
    is(-2, signals.generation_tokens_now.record + ' unless ' + on + ' (' + signals.acceptance_lifetime.expr + ')'),
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

  local views = {
    // --- Verdict -----------------------------------------------------------------------------------------------------
    status: {
      unit: 'short',
      help: 'The verdict over %s: 0 idle, 1 healthy, 2 watch, 3 not paying off, 4 harmful, 5 broken, 6 slower than before. '
            % promql.duration(long)
            + '9 no metrics (SpecDecodeTargetDown fires), -1 no verdict, 11 acceptance is good and whether it pays is not measured.',
      expr: statusBy([guessed(['healthy'])]),
    },
    state: {
      unit: 'short',
      help: views.status.help + ' 14 and 15: 4 and 5 by acceptance alone, without a measured speed-up. And why there is no '
            + 'verdict: 7 not drafting, 0 too few drafts, -2 speculation off.',
      expr: statusBy([not_drafting, guessed(['healthy', 'harmful', 'broken'])], no_verdict),
    },
    alerts: {
      unit: 'short',
      help: 'Alerts of this pack that fire.',
      expr: firing([]),
    },
    alerts_foremost: {
      unit: 'short',
      help: 'Alerts of this pack that fire, each by its highest severity: 3 critical (wakes somebody), 2 warning (a task), '
            + '1 info (explains). Critical ones about a service that is down, or that drafts harm, are 4 and come first.',
      local factors = { critical: '3 * ', warning: '2 * ', info: '' },
      local worst = firing(['severity="critical"', 'alertname=~"SpecDecode(TargetDown|ManyServices|EngineStalled|Harmful)"']),
      expr: '4 * ' + aggregate('max', worst, alert_labels) + '\nor\n'
            + foremost('max', factors, function(severity) firing(['severity="%s"' % severity])),
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
    what_runs: {
      unit: 'short',
      help: 'Method and k of the last hour, as labels.',
      expr: 'label_replace(label_replace(%s, "k", "$1", "epoch", "([^;]*);.*"), "method", "$1", "epoch", "[^;]*;([^;]*);.*")'
            % signals.epoch.record,
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
      by: byBasis(signals.acceptance_length_min.record, source.measured('min', 'break_even_acceptance_length')),
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
      by: { [number(quantile)]: acceptanceQuantile(quantile) for quantile in [0.1, 0.5, 0.9] },
    },

    // --- The curve ---------------------------------------------------------------------------------------------------
    position_acceptance_usual: {
      unit: 'percentunit',
      local days = config.history_days * 86400,
      local last = config.history_interval_seconds,
      help: 'Usual per-position rate: of the last %d days, without the last hour.' % config.history_days,
      expr: signals.curve(days, last, promql.range('avg_over_time', signals.first_acceptance.record, days, last)),
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
    tail_shift_shown: {
      unit: 'percentunit',
      help: signals.tail_shift.help + ' Not while replicas have different boundaries.',
      by_sli: {
        [sli]: '%s\nunless %s\n%s' % [recorded(signals.tail_shift, sli), on, source.mixedWithin(sli, long)]
        for sli in std.objectFields(config.slis)
      },
    },
    replica_latency: {
      unit: 's',
      help: 'Mean latency by replica.',
      by_sli: { [sli]: source.replicaMean(sli, long) for sli in std.objectFields(config.slis) },
    },
    answer_length: {
      unit: 'short',
      help: 'Mean length of an answer in tokens: generated tokens / finished requests. Longer answers take longer end to end.',
      expr: ratio(source.counter('increase', 'generation_tokens', long), source.histogram('increase', 'e2e', 'count', long))
            + '\nunless ' + on + '\n' + source.v0,
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
      help: 'What hurts: 100 with a critical alert, otherwise 10 with a warning, and the status; slower than before counts as 2.5, '
            + 'between watch and not paying off.',
      local slower = signals.verdict.record + ' == ' + signals.verdict.values.slower,
      local part(name, expression) = promql.withLabel(expression, 'part', name),
      local critical = count(['severity="critical"']),
      expr: aggregate('sum', std.join('\nor\n', [
        part('critical', '100 * clamp_max(%s, 1)' % critical),
        part('warning', '10 * clamp_max(%s, 1)' % (count(['severity="warning"']) + ' unless ' + critical)),
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
        running: signals.running_lately.record,
        on: on,
        unused: promql.group(views.speculation_unused.expr),
      },
    },
  };
  views + (import 'health.libsonnet')(config, source, signals, narrow)
