// What is normal for a service, and how far it is from normal now. Part of the signals. Normal comes from the best of three
// sources:
//   control: a twin of the service without speculation, now. It shares load, time of day and mix of prompts.
//   pinned: a baseline file that the exporter was given, unless the service has more load than the file's recording had.
//   history: the last days of the service itself, hour by hour. Only the hours of its epoch: see sources.libsonnet.
local promql = import 'promql.libsonnet';

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
  local pinned_mean(sli) = '%(sum)s / (%(count)s > 0)' % { sum: pinned(sli, 'sum'), count: pinned(sli, 'count') };
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

  // max: when a better source appears, the old one may stay for some minutes.
  local slowdown(matchers='') =
    '%(mean)s%(matchers)s / %(on_sli)s max without (baseline_source, epoch) (%(baseline)s%(matchers)s)' % {
      mean: signals.latency_mean.record,
      matchers: matchers,
      on_sli: on_sli,
      baseline: name('latency_seconds', 'mean_baseline'),
    };

  // 1 / n + 1 / n at baseline: every sampling error is a multiple of its root.
  local sampling(sli) = |||
    1 / %(requests)s{sli="%(sli)s"}
    + (1 / %(baseline)s{sli="%(sli)s"} or 0 * %(requests)s{sli="%(sli)s"})
  ||| % { sli: sli, requests: signals.requests.record, baseline: name('latency_requests', 'count_baseline') };

  // The variance that the service's own wander gives to the ratio to its baseline. A live control wanders with its service.
  // A recording has wandered itself, the more the shorter it was: by its requests, up to twice the variance.
  local wandering(sli) = |||
    last_over_time(%(wander)s{sli="%(sli)s"}[%(reach)s]) ^ 2
    * (1 + (clamp_max(%(requests)s{sli="%(sli)s"} / %(at_baseline)s{sli="%(sli)s"}, 1) or 0 * %(requests)s{sli="%(sli)s"}))
    unless %(on)s
    %(baseline)s{baseline_source="control", sli="%(sli)s"}
    or
    0 * %(requests)s{sli="%(sli)s"}
  ||| % {
    wander: name('latency', 'wander', config.history_interval_seconds),
    sli: sli,
    reach: promql.duration(3 * config.history_interval_seconds),  // an evaluation may be lost
    requests: signals.requests.record,
    at_baseline: name('latency_requests', 'count_baseline'),
    on: on,
    baseline: name('latency_seconds', 'mean_baseline'),
  };

  local margin(sli, z_score) = |||
    sqrt(
      %(chance)s * (
        %(sampling)s
      )
      + %(slow_hours)s * (
        %(wandering)s
      )
    )
  ||| % {
    chance: number(std.pow(z_score * config.slis[sli].cv, 2)),
    sampling: promql.indent(sampling(sli), 4),
    slow_hours: number(std.pow(config.wander_z_score, 2)),
    wandering: promql.indent(wandering(sli), 4),
  };

  // The tail shift is s - g * b: s is the slow share now, b the slow share at baseline, g the growth. Let
  // v = 1 / n + 1 / n at baseline. The square root of any share has the sampling error sqrt(1 / n) / 2. So chance raises s
  // above b by less than z * sqrt(b * v) + z^2 * v / 4. The shift already allows b * (g - 1) of this. For every b, the rest
  // is at most z^2 * v * g / (4 * (g - 1)).
  local tailMargin(sli, z_score) = '%(factor)s * (\n  %(sampling)s\n)' % {
    factor: number(std.pow(z_score, 2) * config.tail_growth / (4 * (config.tail_growth - 1))),
    sampling: promql.indent(sampling(sli)),
  };

  // Wander moves the tail, too. When all latencies of a lognormal distribution grow by a factor, the share b above a limit grows
  // to about b ^ exp(-0.7 * k), where k is the logarithm of the factor / the spread of the logarithm of the latencies.
  local tail_exponent = 0.7 * config.wander_z_score / config.log_spread;

  // The measured speed-up and what chance leaves of it.
  local gain(matchers) = name('speedup', 'ratio', long) + promql.braces(matchers);
  local bound(which) = '%(record)s{bound="%(which)s"}' % { record: name('speedup', 'bound', long), which: which };
  local like_load = 'speedup_source="like_load"';
  local not_like_load = 'speedup_source!="like_load"';
  local decoding = 'sli="tpot"';

  // `certain`: which speed-ups are decided by their bounds. Without a like load, min_requests are enough, too, as they are for
  // the exporter's verdict: no alert contradicts it.
  local decided(certain, comparison, uncertain, matchers) = |||
    %(certain)s %(comparison)s unless %(on)s %(uncertain)s
    or
    %(counted)s %(comparison)s and %(on_sli)s %(requests)s >= %(min_requests)d
  ||| % {
    certain: gain(certain + matchers),
    comparison: comparison,
    on: on,
    uncertain: uncertain,
    counted: gain([not_like_load] + matchers),
    on_sli: on_sli,
    requests: signals.requests.record,
    min_requests: config.min_requests,
  };
  local pays(certain, matchers) =
    decided(certain, '>= ' + number(config.speedup_min), bound('low') + ' <= 1', matchers);
  local pays_not(matchers) =
    local limit = number(config.speedup_min);
    decided([like_load], '< ' + limit, bound('high') + ' >= ' + limit, matchers);
  // Not against a pinned baseline: in a busy hour, a service is slower than that with good drafts, too.
  local harms(matchers) = '%(gain)s < %(limit)s\nunless %(on)s %(high)s >= 1' % {
    gain: gain(['speedup_source=~"like_load|control"'] + matchers),
    limit: number(config.speedup_harmful),
    on: on,
    high: bound('high'),
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
        fromSource('pinned', at_like_load(anySli({ [sli]: pinned_mean(sli) for sli in slis }))),
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

    tail_shift: {
      record: name('latency', 'tail_shift', long),
      unit: 'percentunit',
      help: ('The share of requests above a latency limit, minus %(growth)g times the share above it at baseline. Limits are '
             + 'the bucket boundaries that held %(held)g %% of the requests at baseline; the limit with the largest '
             + 'difference counts. 0: the tail has not grown. Not interpolated. A service that wanders by itself may exceed '
             + 'more: its share at baseline counts as a power of it.') % {
        growth: config.tail_growth,
        held: 100 * config.tail_limit_share,
      },
      by_sli: {
        [sli]: |||
          clamp_min(
            max by (%(labels)s) (
              (
                1 - %(now)s
                / %(on)s group_left () (%(requests)s > 0)
              )
              - on (%(labels)s, le)
              clamp_min(
                %(growth)s * (
                  %(baseline)s
                  <= %(share)s
                ),
                0
              )
              ^ %(on)s group_left ()
              exp(
                -%(exponent)s * sqrt(
                  %(wandering)s
                )
              )
            ),
            0
          )
        ||| % {
          labels: promql.list(level),
          on: on,
          sli: sli,
          // Not +Inf: it holds every request, so it would report an unchanged tail when no other boundary is common to both.
          now: source.histogram('increase', sli, 'bucket', long, ['le'], ['le!="+Inf"']),
          requests: source.histogram('increase', sli, 'count', long),
          growth: number(config.tail_growth),
          baseline: promql.indent(promql.group(slower_at_baseline(
            sli, slowButUsual(
              'min',
              slow_quantile,
              within_in_history(sli),
              name('latency', 'cdf_peak', config.history_interval_seconds) + '{sli="%s"}' % sli,
              level + ['le', 'epoch']
            )
          )), 8),
          share: number(1 - config.tail_limit_share),
          exponent: number(tail_exponent),
          wandering: promql.indent(wandering(sli), 8),
        }
        for sli in slis
      },
    },

    // Not recorded: a quotient of records.
    latency_ratio: {
      unit: 'percentunit',
      help: 'Mean latency / mean latency at baseline.',
      expr: slowdown(),
      by_sli: { [sli]: slowdown('{sli="%s"}' % sli) for sli in slis },
    },

    // --- Does speculation pay? Measured, never guessed -----------------------------------------------------------------
    // From the first of these that there is, by speedup_source:
    //   like_load: the exporter compares decoding steps with those of its baseline without speculation, at like load. Only
    //     with source 'exporter'.
    //   control: time per output token of the live control / of the service. They share load and time.
    //   pinned: the same against a baseline file without speculation, unless more load explains why the service is slower.
    // Releases before 0.11.0 have no time per output token. There control and pinned compare end-to-end latency (sli="e2e").
    speedup: {
      record: name('speedup', 'ratio', long),
      unit: 'percentunit',
      help: 'Measured speed-up: decoding speed with speculation / without it. By speedup_source: like_load (by the exporter, '
            + 'at like load), control (against the live control), pinned (against a baseline file).',
      local from(origin, expression) = 'label_replace(\n  %(expression)s,\n  "speedup_source", "%(origin)s", "", ""\n)' % {
        expression: promql.indent(expression),
        origin: origin,
      },
      local against(origin, sli) =
        |||
          max without (baseline_source, epoch) (%(baseline)s{baseline_source="%(origin)s", sli="%(sli)s"})
          / (%(mean)s{sli="%(sli)s"} > 0)
        ||| % {
          baseline: name('latency_seconds', 'mean_baseline'),
          origin: origin,
          sli: sli,
          mean: signals.latency_mean.record,
        },
      // A pinned baseline with an acceptance rate was recorded with speculation.
      local plain = 'unless %(on)s\n%(with)s' % { on: on, with: promql.by('group', level, pinned_acceptance) },
      // At any load: more load makes no service faster.
      local faster_than_file(sli) = '(%(file)s) / %(mean)s >= %(limit)s\n' % {
        file: promql.withLabel(pinned_mean(sli), 'sli', sli),
        mean: signals.latency_mean.record,
        limit: number(config.speedup_min),
      },
      local of(sli) = [
        from('control', against('control', sli)),
        from('pinned', against('pinned', sli) + plain),
        from('pinned', faster_than_file(sli) + plain),
      ],
      local by_exporter = from('like_load', promql.withLabel(source.measured('avg', 'speedup_ratio'), 'sli', 'tpot')),
      expr: promql.firstOf((if config.source == 'exporter' then [by_exporter] else []) + of('tpot') + of('e2e'), level),
    },

    // A speed-up without bounds counts as certain.
    speedup_bound: {
      record: name('speedup', 'bound', long),
      unit: 'percentunit',
      help: 'How far chance alone may move the measured speed-up, by bound: low and high. At like load it is the interval of '
            + 'the exporter. Otherwise it is the speed-up divided and multiplied by 1 + the margin of the mean.',
      local by_requests(sli, operator) = |||
        max by (%(labels)s) (%(speedup)s{sli="%(sli)s", speedup_source!="like_load"})
        %(operator)s %(on)s
        (
          1 + %(margin)s
        )
      ||| % {
        labels: promql.list(level),
        speedup: name('speedup', 'ratio', long),
        sli: sli,
        operator: operator,
        on: on,
        margin: promql.indent(margin(sli, config.alert_z_score)),
      },
      local of(bound, operator) = promql.firstOf(
        (if config.source == 'exporter'
         then [source.measured('avg', 'speedup_bound_ratio', ['bound="%s"' % bound])]
         else [])
        + [by_requests(sli, operator) for sli in ['tpot', 'e2e']],
        level
      ),
      by_bound: { low: of('low', '/'), high: of('high', '*') },
    },

    // Conditions, not recorded. The verdict asks the same of time per output token alone.
    speedup_pays: {
      help: 'The measured speed-up is worth its cost. Then no estimate by acceptance may alert.',
      // Against any baseline, few requests are enough for a gain that is larger than chance explains.
      expr: pays([], []),
    },
    speedup_pays_not: {
      help: 'The measured speed-up is not worth its cost.',
      expr: pays_not([]),
    },
    speedup_harms: {
      help: 'Speculation slows the service down at the load that it has, by more than chance. Acceptance does not matter.',
      expr: harms([]),
    },
    speedup_at_like_load: {
      help: 'The measured speed-up, where the exporter measures it at like load.',
      expr: gain([like_load]),
    },

    // Not recorded: alert and dashboard read it.
    mean_limit: {
      unit: 'percentunit',
      help: 'The mean ratio above which the alert fires: %g, or 1 + the margin if that is more.' % config.latency_mean_ratio,
      by_sli: {
        // Without a request the margin is endless.
        [sli]: 'clamp_min(\n  1 + %(margin)s,\n  %(limit)s\n) < Inf' % {
          margin: promql.indent(margin(sli, config.alert_z_score)),
          limit: number(config.latency_mean_ratio),
        }
        for sli in slis
      },
    },

    mean_margin: {
      help: 'Chance and the wander of the service may raise the mean ratio above 1 by this much: '
            + 'sqrt(z^2 * cv^2 * (1 / n + 1 / n at baseline) + z^2 * wander^2), with a z of its own for wander.',
      by_sli: { [sli]: margin(sli, config.alert_z_score) for sli in slis },
    },

    tail_margin: {
      help: 'Chance alone may shift the tail by this much.',
      by_sli: { [sli]: tailMargin(sli, config.alert_z_score) for sli in slis },
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

    // Not recorded: only alerts need it.
    unsettled: {
      help: 'Half of the replicas or more started so recently that the long window still holds their slow first requests. Not '
            + 'where they start again and again: there, slow requests are what users have.',
      // Each start holds the record at 1 for the warm-up time.
      expr: '%(lately)s >= 0.5\nunless\n%(minutes)s > %(few)s' % {
        lately: promql.range('max_over_time', signals.warming.record, config.settling_seconds),
        minutes: promql.range('sum_over_time', signals.warming.record, config.restart_window_seconds),
        few: number((config.restarts_min - 0.5) * config.warm_up_seconds / config.evaluation_interval_seconds),
      },
    },

    // --- Verdict -----------------------------------------------------------------------------------------------------
    // The exporter judges by the same policy in the same order: what is measured, and only without a measurement acceptance.
    verdict: {
      record: name('verdict', 'enum'),
      unit: 'short',
      values: { idle: 0, healthy: 1, watch: 2, not_paying: 3, harmful: 4, broken: 5, slower: 6 },
      help: '0 idle, 1 healthy, 2 watch (may or may not pay, or nothing is drafted), 3 does not pay off (measured, or by '
            + 'acceptance), 4 does harm (certainly slower than baseline), 5 broken (almost nothing is accepted), '
            + '6 slower (than baseline, but not because of drafts: better than 3 to 5). Absent without speculation, and while drafts are too few to tell.',
      local below(limit) = '(' + signals.acceptance.record + ' < ' + limit + ')',
      // Also slower by more than chance explains. The page and the record judge by one look each, at the same z-score.
      local slowerThan(ratio) = |||
        %(slowdown)s
        > clamp_min(
          1 + %(margin)s,
          %(ratio)s
        )
      ||| % {
        slowdown: slowdown('{%s}' % decoding),
        margin: promql.indent(margin('tpot', config.policy.latency.z_score)),
        ratio: number(ratio),
      },
      local longer_tail = |||
        %(shift)s{%(decoding)s}
        > clamp_min(
          %(margin)s,
          %(limit)s
        )
      ||| % {
        shift: name('latency', 'tail_shift', long),
        decoding: decoding,
        margin: promql.indent(tailMargin('tpot', config.policy.latency.z_score)),
        limit: number(config.tail_shift_critical),
      },
      local facts = {
        harms: promql.group(harms([decoding])),
        pays: promql.group(pays([like_load], [decoding])),
        pays_not: promql.group(pays_not([decoding])),
        on: on,
        acceptance: signals.acceptance.record,
        drafts: signals.sample.record,
        tokens: signals.generation_tokens_now.record,
        enough: '%(drafts)s >= %(min_drafts)d' % { drafts: facts.drafts, min_drafts: config.policy.min_drafts },
        // A measurement counts its own sample. Acceptance needs drafts of enough requests.
        enough_requests: '%(effective)s >= %(min_effective)s and %(enough)s' % facts {
          effective: signals.effective_drafts.record,
          min_effective: number(config.policy.min_effective_drafts),
        },
        broken: below(number(config.policy.acceptance_ratio_broken)),
        rejected: below(signals.acceptance_min.record),
        watch: promql.group(signals.acceptance_watch.expr),
        much_slower: promql.group(slowerThan(config.harmful_ratio)),
        slower: promql.group(slowerThan(config.latency_mean_ratio) + 'or\n' + longer_tail),
        measured: gain([decoding]),
        like_load: gain([like_load]),
        plain: gain([not_like_load, decoding]),
      },
      local values = self.values,
      local verdict(code, condition) = '0 * (' + condition % facts + ') + ' + values[code],
      expr: promql.firstOf([
        verdict('harmful', '%(enough)s and %(on)s %(harms)s'),
        verdict(
          'harmful',
          '%(enough)s and %(on)s %(much_slower)s and %(on)s (%(rejected)s or %(on)s %(plain)s) unless %(on)s %(like_load)s'
        ),
        // Drafts are not why: a measurement shows that they pay, or nothing is measured and enough of them are accepted.
        verdict(
          'slower',
          '%(enough)s and %(on)s %(slower)s unless %(on)s ((%(rejected)s or %(on)s %(measured)s) unless %(on)s %(pays)s)'
        ),
        verdict('healthy', '%(enough)s and %(on)s %(pays)s'),
        verdict('not_paying', '%(enough)s and %(on)s %(pays_not)s'),
        verdict('broken', '%(broken)s and %(enough_requests)s'),
        verdict('not_paying', '%(rejected)s and %(enough_requests)s'),
        verdict('watch', '%(acceptance)s < %(watch)s and %(enough_requests)s'),
        verdict('healthy', '%(acceptance)s and %(enough_requests)s'),
        verdict('watch', '%(drafts)s == 0 and %(tokens)s > 0'),
        verdict('idle', '%(drafts)s == 0'),
      ], level),
    },

    // --- Error budget: numerator and denominator, to compute any window from ------------------------------------------
    slo_requests: {
      record: name('slo_requests', 'rate', config.short_window_seconds),
      unit: 'reqps',
      help: 'Requests per second that the objective counts.',
      by_slo: {
        [slo]: source.histogram('rate', config.slos[slo].sli, 'count', config.short_window_seconds)
        for slo in std.objectFields(config.slos)
      },
    },
    slo_slow_requests: {
      record: name('slo_slow_requests', 'rate', config.short_window_seconds),
      unit: 'reqps',
      help: 'Requests per second slower than the bound of the objective. Absent where the bound is no bucket boundary.',
      by_slo: {
        [slo]: '%(all)s{slo="%(slo)s"}\n- %(on)s\n%(within)s' % {
          all: name('slo_requests', 'rate', config.short_window_seconds),
          slo: slo,
          on: on,
          within: source.histogram(
            'rate',
            config.slos[slo].sli,
            'bucket',
            config.short_window_seconds,
            [],
            [source.bound(config.slos[slo].le)]
          ),
        }
        for slo in std.objectFields(config.slos)
      },
    },
  }
