// Can the figures be believed? Views of scrapes, log readers, baselines and buckets. Views are never recorded.
local promql = import 'promql.libsonnet';

function(config, source, signals, narrow)
  local short = config.short_window_seconds;
  local level = config.level_labels;
  local service = std.filter(function(label) label != 'model_name', level);
  local target = (import 'sources.libsonnet')(config { selector: narrow.target });
  local place = (import 'sources.libsonnet')(config { selector: narrow.place });

  local aggregate(operator, expression, labels=level) = promql.by(operator, labels, expression);

  // One series for all replicas. The exporter's series about itself or its log have no model.
  local ofTarget(operator, name, labels=service) = aggregate(operator, target.family(name), labels);
  local rateOfTarget(name) = aggregate('sum', promql.range('rate', target.family(name), short), service);

  local health = {
    up: {
      unit: 'short',
      help: "Whether the predictor's metrics could be read, by replica.",
      expr: target.up.expr,
    },
    collector_metrics: {
      unit: 'short',
      help: "Whether the exporter could read the predictor's metrics. The worst replica counts.",
      expr: aggregate('min', target.family('scrape_collector_success', ['collector="metrics"']), service),
    },
    collector_log: {
      unit: 'short',
      help: "Whether the exporter could read the predictor's log. The worst replica counts.",
      expr: aggregate('min', target.family('scrape_collector_success', ['collector="log"']), service),
    },
    collector_seconds: {
      unit: 's',
      help: 'How long the exporter took to read. The slowest replica counts.',
      expr: ofTarget('max', 'scrape_collector_duration_seconds', service + ['collector']),
    },
    fetch_failures: {
      unit: 'short',
      help: "Failed reads of the predictor's metrics within %s, by reason." % promql.duration(config.long_window_seconds),
      expr: aggregate(
        'sum',
        promql.range('increase', target.family('fetch_failures_total'), config.long_window_seconds),
        service + ['reason']
      ) + ' > 0',
    },
    processes: {
      unit: 'short',
      help: 'Processes that answered within 10 minutes at the URL that an exporter reads. The exporter with the most counts.',
      expr: ofTarget('max', 'predictor_processes'),
    },
    log_lines_now: {
      unit: 'suffix:/s',
      help: 'Log lines read per second.',
      expr: rateOfTarget('log_reader_lines_total'),
    },
    log_errors_now: {
      unit: 'suffix:/s',
      help: 'Per second: lines of interest that could not be parsed; lines that were too long; failures to read the log.',
      label: 'error',
      by: {
        'parse error': rateOfTarget('log_reader_parse_errors_total'),
        'line too long': rateOfTarget('log_reader_oversized_lines_total'),
        'read error': rateOfTarget('log_reader_read_errors_total'),
      },
    },
    log_bytes_behind: {
      unit: 'bytes',
      help: 'Bytes of the log not read yet.',
      expr: ofTarget('max', 'log_reader_bytes_behind'),
    },
    log_age: {
      unit: 's',
      help: 'Seconds since the last log line was read. The oldest replica counts.',
      expr: 'time() - ' + ofTarget('min', 'log_reader_last_line_timestamp_seconds'),
    },
    baseline_age: {
      unit: 's',
      help: 'Age of the baseline files.',
      expr: 'time() - ' + aggregate('min', source.family('baseline_recorded_timestamp_seconds')),
    },
    up_share: {
      unit: 'percentunit',
      help: 'Share of the replicas of a service that can be read.',
      expr: aggregate('avg', target.up.expr, target.up.labels),
    },
    replicas_read: {
      unit: 'short',
      help: 'Replicas whose metrics can be read.',
      expr: 'sum(%s)' % target.up.expr,
    },
    replicas_unread: {
      unit: 'short',
      help: 'Replicas whose metrics cannot be read.',
      expr: 'count(%s == 0) or vector(0)' % target.up.expr,
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
