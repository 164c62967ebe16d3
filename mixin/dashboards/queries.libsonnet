// What panels ask: records of the pack, and what people look at of one service, from its raw series. Each quantity has an
// expression, a unit and its definition, and is narrowed to what the dashboard's variables select.
local promql = import '../promql.libsonnet';
local seriesOf = import '../series.libsonnet';

// `service`: operator and value of the service's matcher, for example '="$inference_service"'. `part`: matchers of the
// instances and engines that a dashboard lets one choose, for load, tokens and latency.
function(config, signals, service, part=[])
  local vllm = config.source == 'vllm';
  local level = config.level;
  local w(n) = config.minutes(n);
  local place = ['cluster=~"$cluster"', 'namespace=~"$namespace"'];
  local own = place + ['inference_service' + service];
  local model = ['model_name=~"$model_name"'];
  local raw_own = place + [(if vllm then config.vllm_service_label else 'inference_service') + service];
  local given = [m for m in [config.selector] if m != ''];
  local narrowed(matchers) = seriesOf(config { selector: std.join(', ', matchers + given) });
  local raw = narrowed(raw_own + model);
  local chosen = narrowed(raw_own + model + part);
  local targets = narrowed(raw_own);  // series about scrapes and logs have no model
  local exporters = narrowed(place);

  local ratio(above, below) = '%s\n/ (%s > 0)' % [above, below];
  local gauge(operator, what) = chosen.by(operator, level, chosen.of(what));
  local finished(more='', matchers=[]) = chosen.sum('rate', 'finished', 5, more=more, matchers=matchers);
  // Of a replica, within half an hour.
  local ofReplica(above, below) = chosen.by('avg', config.replica, '%s / (%s > 0)' % [
    promql.range('increase', above, w(30)),
    promql.range('increase', below, w(30)),
  ]);
  local ofTarget(operator, name, by=config.service) = promql.by(operator, by, targets.family(name));
  local info = raw.family('specdec_predictor_info');
  local runs = level + ', inference_engine, vllm_version, method, draft_model';
  local own_up = if vllm then 'up' + promql.braces(raw_own + given) else targets.family('specdec_up');

  {
    local q = self,

    // A record of the pack, by the name of its signal.
    record(name, labels={})::
      local signal = signals[name];
      signal {
        expr: signal.record + promql.braces(
          own
          + (if name == 'up' then [] else model)
          + ['%s="%s"' % [label, labels[label]] for label in std.objectFields(labels)]
        ),
      },
    firing(matchers=[], name='ALERTS', state=['alertstate="firing"'])::
      name + promql.braces(['component="%s"' % config.component] + state + own + matchers),
    severity: {
      unit: 'short',
      help: 'Firing alerts of this pack: 3 is critical, 2 is warning.',
      expr: '3 * %s or 2 * %s' % [q.firing(['severity="critical"']), q.firing(['severity="warning"'])],
    },
    since(labels):: {
      unit: 'dateTimeFromNow',
      help: 'When the condition of the alert became true. The alert fires some minutes later.',
      expr: '1000 * min by (%s) (%s and ignoring (alertstate) %s)' % [
        labels,
        q.firing(['severity!="info"'], 'ALERTS_FOR_STATE', []),
        q.firing(),
      ],
    },

    // --- Are there metrics? ------------------------------------------------------------------------------------------
    // A quantity only while a replica can be read: figures of half an hour outlive the metrics that they are of.
    current(quantity):: quantity { expr+: '\nand on (%s) %s > 0' % [config.service, q.record('up').expr] },
    no_metrics: {
      unit: 'none',
      help: 'No metrics: no replica can be read, but one could within half an hour.',
      expr: 'label_replace(%s, "verdict", "no_metrics", "", "")' % 'group by (%s) (last_over_time(%s[%s])) unless on (%s) %s > 0' % [
        config.service,
        q.record('up').expr,
        w(30),
        config.service,
        q.record('up').expr,
      ],
    },

    // --- Verdict -----------------------------------------------------------------------------------------------------
    verdict: q.record('verdict') {
      help: 'The verdict of most tokens of the service. Not measured: acceptance is good, and that it pays is a guess.',
      expr: 'topk by (%s) (1, %s)' % [level, super.expr],
    },
    verdict_of_service: q.verdict {
      help+: ' ' + q.no_metrics.help,
      expr: 'topk(1,\n  sum by (verdict) (%s)\n  or 0 * group by (verdict) (%s)\n)' % [q.record('verdict').expr, q.no_metrics.expr],
    },
    otherwise: q.verdict {
      help: 'Replicas that are not healthy, and whose verdict differs from the verdict of most tokens, for example a canary.',
      // Where a live control measures a gain, the service is healthy though none of its replicas measures it.
      expr: |||
        count by (%(level)s, pod, instance, revision, verdict) (%(judged)s)
        unless on (%(level)s, verdict) label_replace(%(most)s, "verdict", "not_measured", "verdict", "healthy")
      ||| % {
        level: level,
        judged: raw.family('specdec_verdict', ['verdict!~"healthy|unknown|no_metrics"']),
        most: q.verdict.expr,
      },
    },

    // --- Does it pay? ------------------------------------------------------------------------------------------------
    break_even(measured):: q.record('acceptance_min') {
      expr+: '\n%s on (%s) %s' % [if measured then 'and' else 'unless', level, raw.family('specdec_break_even_acceptance_ratio', ['basis="measured"'])],
    },
    from_drafts: {
      unit: 'percentunit',
      help: 'Output from drafts: accepted draft tokens / generated tokens.',
      expr: ratio(raw.sum('rate', 'accepted_tokens', 5), raw.sum('rate', 'generation_tokens', 5)),
    },
    draft_length: {
      unit: 'short',
      help: 'Mean draft length: draft tokens / drafts.',
      expr: ratio(raw.sum('increase', 'draft_tokens', 30), raw.sum('increase', 'drafts', 30)),
    },
    break_even_length: {
      unit: 'short',
      help: 'Mean acceptance length that breaks even: 1 + mean draft length * break-even acceptance.',
      expr: '1 + %s\n* on (%s) (%s - 1)\n/ on (%s) (%s > 0)' % [q.record('acceptance_min').expr, level, q.record('length').expr, level, q.record('acceptance').expr],
    },
    speedup_bound(bound):: {
      unit: 'suffix:x',
      help: '95 % interval of the speed-up, by the exporter.',
      expr: promql.by('avg', level, raw.family('specdec_speedup_bound_ratio', ['basis="measured"', 'bound="%s"' % bound])),
    },
    local load(name) = 'sum by (%s, concurrency) (increase(%s[$__range]))' % [level, raw.family('specdec_load_%s_total' % name)],
    speedup_by_load: {
      unit: 'suffix:x',
      help: 'Speed-up: time of the same tokens without speculation / with speculation, at the same load. Load: requests in decode at a '
            + 'time, per engine, at most.',
      expr: ratio(load('plain_seconds'), load('compared_seconds')),
    },
    steps_by_load: { unit: 'none', help: 'Request-steps at this load.', expr: load('steps') + ' > 0' },

    // --- Acceptance by position --------------------------------------------------------------------------------------
    positions(window=w(30), offset=''):: {
      unit: 'percentunit',
      help: 'Per-position rate: tokens accepted at the position / drafts.',
      local within(what) = 'increase(%s[%s]%s)' % [raw.of(what), window, offset],
      expr: '%s\n/ on (%s) group_left ()\n(%s > 0)' % [
        promql.by('sum', level + ', position', within('accepted_by_position')),
        level,
        promql.by('sum', level, within('drafts')),
      ],
    },

    // --- Load, tokens, latency ---------------------------------------------------------------------------------------
    finished: { unit: 'suffix:/s', help: 'Requests that finished per second, for whatever reason.', expr: finished() },
    failed: {
      unit: 'percentunit',
      help: 'Share of the finished requests that were aborted, as when the client goes away, or that failed.',
      expr: '%s\n/ on (%s) group_left () (%s > 0)' % [finished(', finished_reason', ['finished_reason=~"abort|error"']), level, finished()],
    },
    per_second(what, help):: { unit: 'suffix:/s', help: help, expr: chosen.sum('rate', what, 5) },
    // vLLM's own series of a service that is named after its job cannot be selected: then the record of the whole service.
    local orRecord(expression, record) = if vllm then expression + '\nor ' + record.expr else expression,
    generated: {
      unit: 'suffix:/s',
      help: 'Tokens generated per second.',
      expr: orRecord(chosen.sum('rate', 'generation_tokens', 5), q.record('tokens')),
    },
    mean(sli):: {
      unit: 's',
      help: 'Mean of half an hour.',
      expr: orRecord(chosen.mean(sli, 30), q.record('latency', { sli: sli, stat: 'mean' })),
    },
    p99(sli):: {
      unit: 's',
      help: 'P99 of half an hour, interpolated within a bucket.',
      expr: 'histogram_quantile(0.99, %s) > 0' % chosen.sum('rate', sli, 30, '_bucket', ', le'),
    },
    prompt_length: {
      unit: 'none',
      help: 'Mean length of a prompt in tokens.',
      expr: ratio(raw.sum('increase', 'prompt_tokens', 30), raw.sum('increase', 'ttft', 30, '_count')),
    },
    answer_length: {
      unit: 'none',
      help: 'Mean length of an answer in tokens. Longer answers take longer end to end.',
      expr: ratio(raw.sum('increase', 'generation_tokens', 30), raw.sum('increase', 'e2e', 30, '_count')),
    },

    running: { unit: 'none', help: 'Requests running, of all engines.', expr: gauge('sum', 'running') },
    running_per_engine: { unit: 'short', help: 'Requests running per engine: the size of its batch.', expr: gauge('avg', 'running') },
    waiting: { unit: 'none', help: 'Requests waiting, of all engines.', expr: gauge('sum', 'waiting') },
    preemptions: { unit: 'none', help: 'Requests preempted within half an hour.', expr: chosen.sum('increase', 'preemptions', 30) },
    load_ratio: {
      unit: 'percentunit',
      help: 'Load / load of the baseline file, by the exporter.',
      expr: promql.by('avg', level, raw.family('specdec_baseline_load_ratio')),
    },
    kv_cache: { unit: 'percentunit', help: 'Share of the KV cache in use, of the fullest engine.', expr: gauge('max', 'kv_cache') },
    kv_capacity: {
      unit: 'short',
      help: 'Tokens that fit into the KV cache of the smallest engine.',
      expr: promql.by('min', level, chosen.family('specdec_kv_cache_capacity_tokens')),
    },

    // --- Replicas and events -----------------------------------------------------------------------------------------
    replica_acceptance: {
      unit: 'percentunit',
      help: 'Acceptance rate of half an hour, by replica.',
      expr: ofReplica(chosen.of('accepted_tokens'), chosen.of('draft_tokens')),
    },
    replica_latency: {
      unit: 's',
      help: 'Mean time per output token of half an hour, by replica.',
      expr: ofReplica(chosen.of('tpot', '_sum'), chosen.of('tpot', '_count')),
    },
    replica_verdict: {
      unit: 'short',
      help: 'Verdict of the replica.',
      expr: 'label_replace(%s and on (%s) %s > 1, "verdict", "healthy", "", "")\nor ignoring (verdict) %s' % [
        raw.family('specdec_verdict', ['verdict="not_measured"']),
        level,
        q.record('speedup').expr,
        raw.family('specdec_verdict'),
      ],
    },
    runs: {
      unit: 'short',
      help: 'Release, method and draft model that the engine reported at its start.',
      expr: promql.by('group', runs + ', pod, instance', info),
    },
    changes: {
      unit: 'short',
      help: 'A release, method or draft model that did not run within the hour before.',
      expr: '%s\nunless %s' % [promql.by('group', runs, info), promql.by('group', runs, 'last_over_time(%s[%s] offset %s)' % [info, w(60), w(5)])],
    },
    starts: {
      unit: 'none',
      help: 'Engines that started within 20 minutes.',
      expr: '%(all)s * (1 - %(settled)s) > 0\nor %(all)s unless %(settled)s' % { all: q.record('engines').expr, settled: q.record('settled').expr },
    },
    warnings: {
      unit: 'none',
      help: "Known warnings about speculation in the predictor's log, within half an hour.",
      expr: 'sum by (%s, warning) (increase(%s[%s])) > 0' % [level, raw.family('specdec_predictor_warnings_total'), w(30)],
    },
    readable: { unit: 'percentunit', help: 'Share of the replicas whose metrics can be read.', expr: promql.by('avg', config.service, own_up) },
    read: { unit: 'none', help: 'Replicas whose metrics can be read.', expr: 'sum(%s)' % own_up },
    unread: { unit: 'none', help: 'Replicas whose metrics cannot be read.', expr: 'count(%s == 0) or vector(0)' % own_up },

    // --- Can the figures be believed? --------------------------------------------------------------------------------
    problems: {
      unit: 'short',
      help: 'Why figures of the service cannot be trusted.',
      expr: 'max by (%s, reason) (%s)' % [
        config.service,
        q.firing(['alertname="SpecDecodeDataUntrusted"']) + (if vllm then '' else '\n  or ' + targets.family('specdec_data_problem')),
      ],
    },
    baseline_age: {
      unit: 's',
      help: 'Age of the oldest baseline file.',
      expr: 'time() - ' + promql.by('min', level, raw.family('specdec_baseline_recorded_timestamp_seconds')),
    },
    fetch_failures: {
      unit: 'none',
      help: "Failed reads of the predictor's metrics within half an hour.",
      expr: 'sum by (reason) (increase(%s[%s])) > 0' % [targets.family('specdec_fetch_failures_total'), w(30)],
    },
    collector(name):: {
      unit: 'short',
      help: "Whether the exporter can read the predictor's metrics and its log. The worst replica counts.",
      expr: promql.by('min', config.service, targets.family('specdec_scrape_collector_success', ['collector="%s"' % name])),
    },
    processes: { unit: 'none', help: 'Processes that answer in turn at the URL that an exporter reads.', expr: ofTarget('max', 'specdec_predictor_processes') },
    log_errors: {
      unit: 'suffix:/s',
      help: 'Log lines that matter but could not be read, per second.',
      expr: 'sum by (%s) (rate(%s[%s]))' % [config.service, targets.family('specdec_log_reader_parse_errors_total'), w(5)],
    },
    log_age: {
      unit: 's',
      help: 'Time since the last line of the log. The replica with the oldest line counts.',
      expr: 'time() - ' + ofTarget('min', 'specdec_log_reader_last_line_timestamp_seconds'),
    },
    exporters: { unit: 'none', help: 'Exporters by version.', expr: 'count by (version) (%s)' % exporters.family('specdec_exporter_build_info') },
    refused: {
      unit: 'none',
      help: 'Exporters that refused their configuration and keep the old one.',
      expr: 'sum(1 - %s)' % exporters.family('specdec_exporter_config_last_reload_successful'),
    },
  }
