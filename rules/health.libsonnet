// Can the figures be believed? What scrapes, log readers, baselines and buckets are like. Views, too: never recorded.
local promql = import 'promql.libsonnet';

function(config, source, signals, narrow)
  local short = config.short_window_seconds;
  local level = config.level_labels;
  local service = std.filter(function(label) label != 'model_name', level);
  local target = (import 'sources.libsonnet')(config { selector: narrow.target });
  local place = (import 'sources.libsonnet')(config { selector: narrow.place });

  local aggregate(operator, expression, labels=level) = '%s by (%s) (%s)' % [operator, promql.list(labels), expression];

  // The alike series of all replicas, as one; those of the exporter about itself or its log have no model.
  local ofTarget(operator, name, labels=service) = aggregate(operator, target.family(name), labels);
  local rateOfTarget(name) = aggregate('sum', 'rate(%s[%s])' % [target.family(name), promql.duration(short)], service);

  local health = {
    up: {
      unit: 'short',
      help: 'Whether the predictor answered, by replica.',
      expr: target.up.expr,
    },
    data_age: {
      unit: 's',
      help: 'Seconds since the predictor last answered, for an hour.',
      expr: 'time() - max by (%s) (\n  last_over_time(timestamp(%s == 1)[1h:1m])\n)' % [
        promql.list(target.up.labels),
        target.up.expr,
      ],
    },
    collector_metrics: {
      unit: 'short',
      help: "Whether the exporter could read the predictor's metrics, the worst replica.",
      expr: aggregate('min', target.family('scrape_collector_success', ['collector="metrics"']), service),
    },
    collector_log: {
      unit: 'short',
      help: "Whether it could read the predictor's log, the worst replica.",
      expr: aggregate('min', target.family('scrape_collector_success', ['collector="log"']), service),
    },
    collector_seconds: {
      unit: 's',
      help: 'How long reading took, the slowest replica.',
      expr: ofTarget('max', 'scrape_collector_duration_seconds', service + ['collector']),
    },
    log_lines_now: {
      unit: 'ops',
      help: 'Lines of the log read per second.',
      expr: rateOfTarget('log_reader_lines_total'),
    },
    log_matched_lines_now: {
      unit: 'ops',
      help: 'Lines of them, per second, that said something about speculation or the engine.',
      expr: rateOfTarget('log_reader_matched_lines_total'),
    },
    log_errors_now: {
      unit: 'ops',
      help: 'Lines per second that could not be read although they were certainly of interest; lines that were too long; '
            + 'failures to read the log.',
      label: 'error',
      by: {
        'parse error': rateOfTarget('log_reader_parse_errors_total'),
        'line too long': rateOfTarget('log_reader_oversized_lines_total'),
        'read error': rateOfTarget('log_reader_read_errors_total'),
      },
    },
    log_bytes_behind: {
      unit: 'bytes',
      help: 'Bytes of the log that are still to be read.',
      expr: ofTarget('max', 'log_reader_bytes_behind'),
    },
    log_age: {
      unit: 's',
      help: 'Seconds since a line of the log was last read, of the replica where it is longest ago.',
      expr: 'time() - ' + ofTarget('min', 'log_reader_last_line_timestamp_seconds'),
    },
    baseline_age: {
      unit: 's',
      help: 'Age of the baselines that exporters were given as files.',
      expr: 'time() - ' + aggregate('min', source.family('baseline_recorded_timestamp_seconds')),
    },
    baseline_sources: {
      unit: 'short',
      help: 'Services by where the baseline of their latency comes from: a live control, a file, their own history.',
      expr: 'count by (sli, baseline_source) (%s)' % signals.latency_baseline.record,
    },
    log_errors_all_now: {
      unit: 'ops',
      help: 'Errors of the log reader per second, of all kinds.',
      expr: std.join('\n+ ', [promql.group(health.log_errors_now.by[kind]) for kind in std.objectFields(health.log_errors_now.by)]),
    },
    up_share: {
      unit: 'percentunit',
      help: 'Share of the replicas of a service whose predictor answers.',
      expr: aggregate('avg', target.up.expr, target.up.labels),
    },
    replicas_answering: {
      unit: 'short',
      help: 'Replicas whose predictor answers.',
      expr: 'sum(%s)' % target.up.expr,
    },
    replicas_silent: {
      unit: 'short',
      help: 'Replicas whose predictor does not answer.',
      expr: 'count(%s == 0) or vector(0)' % target.up.expr,
    },
    bounds: {
      unit: 'short',
      help: 'Bucket boundaries that a histogram has. When they change, quantiles jump without any request being slower.',
      by_sli: {
        [sli]: aggregate('count', source.replicasByBound(sli))
        for sli in std.objectFields(config.slis)
      },
    },
    exporter_version: {
      unit: 'short',
      help: 'Exporters by version.',
      expr: 'count by (version) (%s)' % place.family('exporter_build_info'),
    },
    reloads_failed: {
      unit: 'short',
      help: 'Exporters whose last load of the configuration failed.',
      expr: 'sum(1 - %s)' % place.family('exporter_config_last_reload_successful'),
    },
  };
  health
