// What is normal for a service. Normal comes from the best of three sources:
//   control: a twin of the service without speculation, now. It shares load, time of day and mix of prompts.
//   pinned: a baseline file that the exporter was given, unless the service has more load than the file's recording had.
//   history: the last days of the service itself, hour by hour. Only the hours of its epoch: see sources.libsonnet.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local on_sli = 'on (%s, sli)' % promql.list(level);
  local number = promql.number;
  local slis = std.objectFields(config.slis);

  // The last hour is left out: it may be the incident.
  local history(record) = '%(record)s[%(days)dd] offset %(last)s' % {
    record: record,
    days: config.history_days,
    last: promql.duration(config.history_interval_seconds),
  };
  local enough_history(record) = 'count_over_time(%(history)s) >= %(hours)d' % {
    history: history(record),
    hours: config.min_history_hours,
  };
  local quantileOf(quantile, record) = 'quantile_over_time(%(quantile)s, %(history)s)' % {
    quantile: number(quantile),
    history: history(record),
  };
  local ofHistory(quantile, record) =
    '%(figure)s\nand\n%(enough)s' % { figure: quantileOf(quantile, record), enough: enough_history(record) };

  // What was, of the epoch that is. Hours without an epoch are of an older pack, or backfilled: they count until they expire.
  local ofEpoch(figure, services) = '%(figure)s\nand on (%(labels)s, epoch)\n%(epochs)s' % {
    figure: promql.strip(figure),
    labels: promql.list(level),
    epochs: promql.group(source.epoch(long) + '\nor\n' + promql.by('group', level, services)),
  };

  // The slow but usual hour: the slower of two figures. One is a quantile of all hours. The other is of this hour of the day, the
  // peak: the worst hour around it, on the median day. So a daily peak is usual, and an incident on one day is not. `worst` (max
  // or min) tells which figure is slower.
  local slowButUsual(worst, quantile, record, peak, labels) = |||
    %(worst)s by (%(labels)s) (
      label_replace(
        last_over_time(%(peak)s[%(reach)s]),
        "hours", "peak", "", ""
      )
      or
      %(all)s
    )
  ||| % {
    worst: worst,
    labels: promql.list(labels),
    peak: peak,
    reach: promql.duration(2 * config.history_interval_seconds),  // an evaluation may be lost
    all: promql.indent(quantileOf(quantile, record), 2),
  };

  // This hour of the day, where it is `beyond` the quantile of all hours. While a regression lasts, the median of two days may
  // be a day of it: then there is no peak.
  local peakOf(worst, quantile, record, labels, beyond, lasting) =
    local before = config.same_hour_before_seconds;
    local after = config.same_hour_after_seconds;
    local day(n) = promql.withLabel(
      '%(worst)s_over_time(%(record)s[%(window)s] offset %(offset)s)' % {
        worst: worst,
        record: record,
        window: promql.duration(before + after),
        offset: promql.duration(n * 86400 - after),
      }, 'day', '%d' % n
    );
    |||
      quantile by (%(labels)s) (
        0.5,
        %(days)s
      )
      %(beyond)s
      and on (%(labels)s)
      %(aged)s
      unless %(lasting)s
    ||| % {
      labels: promql.list(labels),
      days: promql.indent(std.join('\nor\n', [day(n) for n in std.range(1, config.history_days)])),
      beyond: beyond(quantileOf(quantile, record)),
      aged: 'count_over_time(%(record)s[%(window)s] offset %(days)s)' % {
        record: record,
        window: promql.duration((config.history_days - config.min_same_hour_days) * 86400),
        days: promql.duration(config.min_same_hour_days * 86400),
      },
      lasting: lasting,
    };

  local is_control = 'inference_service=~"%s"' % config.control_service_regex;
  local is_raw_control = [source.serviceMatches(config.control_service_regex)];
  // The control's series, renamed to the service that it controls. None while the control itself drafts.
  local asControlled(expression) = promql.strip(|||
    label_replace(
      %(series)s
      unless %(on)s (%(draft_tokens)s > 0),
      "inference_service", "$1", "inference_service", "%(control)s"
    )
  ||| % {
    series: promql.indent(expression),
    on: on,
    draft_tokens: signals.draft_tokens.record,
    control: config.control_service_regex,
  });
  local enough_requests = '%(requests)s >= %(min_requests)d' % {
    requests: signals.requests.record,
    min_requests: config.min_requests,
  };

  // sum: if replicas have different files, the requests of all files together are the baseline.
  local pinned(sli, suffix, extra=[], operator='sum') =
    promql.by(operator, level + extra, source.family('baseline_' + config.slis[sli].family + '_seconds_' + suffix));
  local pinned_acceptance = source.family('baseline_acceptance_ratio');
  // Where no replica runs what its file was recorded with. Nothing is said of what either does not tell.
  local recorded_with_other(fact) = |||
    group by (%(labels)s, %(fact)s) (%(recorded)s)
    and on (%(labels)s)
    %(runs)s
    unless on (%(labels)s, %(fact)s)
    %(runs)s
  ||| % {
    labels: promql.list(level),
    fact: fact,
    recorded: source.family('baseline_info', [fact + '!=""']),
    runs: source.family('predictor_info', [fact + '!=""']),
  };
  // One expression for every SLI.
  local anySli(expressions) =
    std.join('\nor\n', [promql.withLabel(expressions[sli], 'sli', sli) for sli in slis]);

  // More requests per second than in the recordings of the replicas, and more in flight, each by more than the tolerance.
  // Requests in flight are the seconds of all requests per second (Little's law). More of them alone: the service is slower.
  local busier(tolerance) = |||
    %(requests)s
    > %(on)s
    %(factor)s * %(recorded_rate)s
    and %(on)s
    %(requests)s * %(mean)s
    > %(on)s
    %(factor)s * %(recorded_in_flight)s
  ||| % {
    requests: signals.requests.record + '{sli="e2e"}',
    mean: signals.latency_mean.record + '{sli="e2e"}',
    on: on,
    factor: number(long * (1 + tolerance)),
    recorded_rate: promql.by('sum', level, source.family('baseline_requests_per_second')),
    recorded_in_flight: promql.by('sum', level, source.family('baseline_requests_in_flight')),
  };
  // Where a baseline file is the baseline now, for the given SLI or for any.
  local file_counts(sli='') = name('latency_seconds', 'mean_baseline')
                              + promql.braces(['baseline_source="pinned"', if sli == '' then '' else 'sli="%s"' % sli]);
  // A file that is in use stays in use somewhat longer, or an alert would come and go with a load near the limit.
  local at_like_load(files) = |||
    (
      %(files)s
    )
    unless %(on)s
    (
      %(busier)s
      unless %(on)s
      %(in_use)s
      or
      %(much_busier)s
    )
  ||| % {
    files: promql.indent(files),
    on: on,
    busier: promql.indent(busier(config.policy.latency.traffic_tolerance)),
    in_use: file_counts(),
    much_busier: promql.indent(busier(config.policy.latency.traffic_tolerance + config.like_load_slack)),
  };

  local fromSource(origin, expression) =
    'label_replace(\n  %(expression)s,\n  "baseline_source", "%(origin)s", "", ""\n)' % {
      expression: promql.indent(expression),
      origin: origin,
    };

  // The share of requests within each boundary in the slow hours of history. Its low values are the slow hours.
  local within_in_history(sli) = signals.latency_cdf_hour.record + '{sli="%s"}' % sli;
  local slow_quantile = 1 - config.latency_history_quantile;

  // The share of requests slower than each boundary at baseline, from the best source that the SLI has. `within`: the share
  // within it that history gives.
  local slower_at_baseline(sli, within) =
    local control = '1 - ' + asControlled(
      |||
        %(within)s
        / %(on)s group_left ()
        (%(requests)s >= %(min_requests)d)
      ||| % {
        within: source.histogram('increase', sli, 'bucket', long, ['le'], is_raw_control),
        on: on,
        requests: source.histogram('increase', sli, 'count', long, [], is_raw_control),
        min_requests: config.min_requests,
      }
    );
    local file = '1 - %(within)s / %(on)s group_left () (%(requests)s > 0 and %(on)s %(file_counts)s)' % {
      within: pinned(sli, 'bucket', ['le']),
      on: on,
      requests: pinned(sli, 'count'),
      file_counts: file_counts(sli),
    };
    // min: hours without an epoch are a baseline beside those with one.
    local own = promql.strip(|||
      1 - min without (epoch) (
        %(within)s
        and on (%(labels)s, epoch)
        %(history_counts)s
      )
    ||| % {
      within: promql.indent(within),
      labels: promql.list(level),
      history_counts: name('latency_seconds', 'mean_baseline') + '{baseline_source="history", sli="%s"}' % sli,
    });
    promql.firstOf([control, file] + (if std.member(config.history_tail_slis, sli) then [own] else []), level);

  {
    latency_baseline: {
      record: name('latency_seconds', 'mean_baseline'),
      unit: 's',
      help: 'Mean latency at baseline, by baseline_source; from history with its epoch.',
      expr: promql.firstOf([
        fromSource('control', asControlled('%(mean)s{%(control)s}\nand\n%(enough)s' % {
          mean: signals.latency_mean.record,
          control: is_control,
          enough: enough_requests,
        })),
        fromSource('pinned', at_like_load(anySli(signals.pinned_mean.by_sli))),
        fromSource('history', ofEpoch('%(figure)sand\n%(enough)s' % {
          figure: slowButUsual(
            'max',
            config.latency_history_quantile,
            signals.latency_mean_hour.record,
            name('latency_seconds', 'mean_peak', config.history_interval_seconds),
            level + ['sli', 'epoch']
          ),
          enough: enough_history(signals.latency_mean_hour.record),
        }, signals.requests.record)),
      ], level + ['sli']),
    },

    // Recorded by the hour, as history is. Where this hour of the day is as any, there is no such series.
    mean_peak: {
      record: name('latency_seconds', 'mean_peak', config.history_interval_seconds),
      unit: 's',
      help: 'Mean latency at this hour of the day, by epoch, where it usually is more than that of most hours.',
      expr: peakOf(
        'max',
        config.latency_history_quantile,
        signals.latency_mean_hour.record,
        level + ['sli', 'epoch'],
        function(most) '> on (%(labels)s) %(ratio)s * %(most)s' % {
          labels: promql.list(level + ['sli', 'epoch']),
          ratio: number(config.peak_mean_ratio),
          most: most,
        },
        on_sli + ' ' + signals.lasting.expr
      ),
    },
    cdf_peak: {
      record: name('latency', 'cdf_peak', config.history_interval_seconds),
      unit: 'percentunit',
      help: 'Share of the requests within each bucket boundary at this hour of the day, by epoch, where usually a tenth more '
            + 'requests are slower than in most hours.',
      by_sli: {
        [sli]: peakOf(
          'min',
          slow_quantile,
          within_in_history(sli),
          level + ['le', 'epoch'],
          // 1 - x > ratio * (1 - most)
          function(most) '< on (%(labels)s) (%(ratio)s * %(most)s - %(rest)s)' % {
            labels: promql.list(level + ['le', 'epoch']),
            ratio: number(config.peak_slower_ratio),
            most: most,
            rest: number(config.peak_slower_ratio - 1),
          },
          on + ' ' + signals.lasting.by_sli[sli]
        )
        for sli in config.history_tail_slis
      },
    },

    // Absent for history: it has so many requests that their number does not matter.
    requests_baseline: {
      record: name('latency_requests', 'count_baseline'),
      unit: 'short',
      help: 'Requests in the baseline, for its sampling error.',
      expr: promql.firstOf([
        asControlled('%(requests)s{%(control)s} >= %(min_requests)d' % {
          requests: signals.requests.record,
          control: is_control,
          min_requests: config.min_requests,
        }),
        // max: most replicas have the same file.
        '(\n  %(files)s\n)\nand %(on_sli)s\n%(file_counts)s' % {
          files: promql.indent(anySli({ [sli]: pinned(sli, 'count', operator='max') + ' > 0' for sli in slis })),
          on_sli: on_sli,
          file_counts: file_counts(),
        },
      ], level + ['sli']),
    },

    // From one day to the next, because the shape of the day is no wander. Medians, so that an incident hardly counts: half of
    // the differences of a normal distribution are within 0.6745 * sqrt(2) standard deviations, and half of its values lie
    // within 2 * 0.6745 of them.
    wander: {
      record: name('latency', 'wander', config.history_interval_seconds),
      unit: 'percentunit',
      help: 'How far the mean latency of an hour wanders by itself: the relative standard deviation from the same hour of '
            + 'the day before, by the median. Until there are two days it is the spread of all hours.',
      local hour(offset='') =
        'last_over_time(%(record)s[%(reach)s]%(offset)s)' % {
          record: signals.latency_mean_hour.record,
          reach: promql.duration(2 * config.history_interval_seconds),
          offset: offset,
        },
      // An epoch wanders as the one before, until it has hours of its own.
      expr: |||
        max without (epoch) (
          quantile_over_time(
            0.5,
            abs(ln(%(now)s / %(before)s))[%(days)s:%(hour)s]
          ) / %(differences)s
          and
          count_over_time(%(history)s) >= %(hours)d
          or
          (%(upper)s - %(lower)s)
          / (%(values)s * %(median)s)
          and
          %(enough)s
        )
      ||| % {
        now: hour(),
        before: hour(' offset 1d'),
        days: promql.duration((config.history_days - 1) * 86400),
        hour: promql.duration(config.history_interval_seconds),
        differences: number(0.6745 * std.sqrt(2)),
        history: history(signals.latency_mean_hour.record),
        hours: 2 * config.min_history_hours,
        upper: quantileOf(0.75, signals.latency_mean_hour.record),
        lower: quantileOf(0.25, signals.latency_mean_hour.record),
        median: quantileOf(0.5, signals.latency_mean_hour.record),
        values: number(2 * 0.6745),
        enough: enough_history(signals.latency_mean_hour.record),
      },
    },

    acceptance_baseline: {
      record: name('acceptance', 'ratio_baseline'),
      unit: 'percentunit',
      help: 'Acceptance rate at baseline, by baseline_source; from history with its epoch.',
      expr: promql.firstOf([
        fromSource('pinned', '%(recorded)s\nunless %(on)s\n%(other)s' % {
          recorded: promql.by('avg', level, pinned_acceptance),
          on: on,
          other: promql.group(recorded_with_other('method')),
        }),
        fromSource('history', ofEpoch(
          ofHistory(config.acceptance_history_quantile, signals.acceptance_hour.record), signals.sample.record
        )),
      ], level),
    },

    // Not recorded: an alert needs it. A guess: a name need not say it, and a served name may be any word.
    newly_quantised: {
      help: 'Services whose model has a name of a quantised one, and whose baseline file was recorded with a model without such a name.',
      expr: 'group by (%(labels)s) (%(acceptance)s{model_name=~"%(names)s"})\nand %(on)s\n%(recorded)s' % {
        labels: promql.list(level),
        acceptance: signals.acceptance.record,
        names: config.quantised_models,
        on: on,
        recorded: source.family('baseline_info', ['model!=""', 'model!~"%s"' % config.quantised_models]),
      },
    },

    // Not recorded: the page about low acceptance needs it where the method is unknown.
    acceptance_best: {
      unit: 'percentunit',
      help: 'Acceptance rate of the best hours of the last %(days)d days: %(share)g %% of the hours had less.'
            % { days: config.history_days, share: 100 * config.acceptance_best_quantile },
      // Of any epoch: a page reads it every minute, and to find the epoch takes longer than all else in that group.
      expr: 'max without (epoch) (quantile_over_time(%(quantile)s, %(hours)s[%(days)dd]))' % {
        quantile: number(config.acceptance_best_quantile),
        hours: signals.acceptance_hour.record,
        days: config.history_days,
      },
    },

    // Not recorded: the speed-up needs it at any load.
    pinned_mean: {
      unit: 's',
      help: 'Mean latency in the baseline files, whatever the load.',
      by_sli: {
        [sli]: '%(sum)s / (%(count)s > 0)' % { sum: pinned(sli, 'sum'), count: pinned(sli, 'count') }
        for sli in slis
      },
    },

    // Not recorded: the tail shift needs it.
    slower_baseline: {
      unit: 'percentunit',
      help: 'Share of the requests slower than each bucket boundary at baseline.',
      by_sli: {
        [sli]: slower_at_baseline(
          sli, slowButUsual(
            'min',
            slow_quantile,
            within_in_history(sli),
            name('latency', 'cdf_peak', config.history_interval_seconds) + '{sli="%s"}' % sli,
            level + ['le', 'epoch']
          )
        )
        for sli in slis
      },
    },

    p99_baseline: {
      record: name('latency_seconds', 'p99_baseline'),
      unit: 's',
      help: 'P99 at baseline, for people. It is interpolated within a bucket. Absent where only the mean has a baseline. From '
            + 'history it is that of the slow hours of the week, whatever the hour of the day.',
      // Not of this hour of the day, as the alerts have it: seven more windows of every bucket would cost a tenth of all rules.
      by_sli: {
        [sli]: 'histogram_quantile(\n  0.99,\n  1 - (\n    %s\n  )\n) >= 0' % promql.indent(
          slower_at_baseline(sli, quantileOf(slow_quantile, within_in_history(sli))), 4
        )
        for sli in slis
      },
    },

    // Not recorded: only an alert needs it.
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
      unit: 's',
      help: 'Age of baseline files that are older than %d days, or of another release or method than runs now.'
            % config.baseline_days_max,
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
        seconds: 86400 * config.baseline_days_max,
        on: on,
        release: promql.indent(recorded_with_other('vllm_version')),
        method: promql.indent(recorded_with_other('method')),
      },
    },
  }
