// What is normal for a service. Normal comes from the best of three sources:
//   control: a twin of the service without speculation, now. It shares load, time of day and mix of prompts.
//   pinned: a baseline file that the exporter was given, unless the service has more load than the file's recording had.
//   history: the last days of the service itself, hour by hour. Only the hours of its epoch: see sources.libsonnet.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;
  local slis = std.objectFields(config.slis);
  local least_share = number(config.policy.latency.tail_limit_share);

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
  local ofEpoch(figure, services) = '%(figure)s\nand on (%(labels)s, epoch)\n(%(epoch)s or %(services)s)' % {
    figure: promql.strip(figure),
    labels: promql.list(level),
    epoch: signals.epoch.record,
    services: promql.by('group', level, services),
  };

  // The slow but usual hour, the slowest of three: three of four hours were faster; this hour of the day, with those around it,
  // on the median day of seven, of which five are working days; this hour of the weekday, in the better of the last two weeks. So
  // a daily peak is usual after some days and a weekly one once it was seen twice, and an incident is not. While a regression
  // lasts, it would be most of the days. `slower`: max, and for a share within a boundary min.
  local usual(slower, quantile, record) =
    // An hour is looked up once an hour and kept for two, and peaks do not begin on the minute.
    local around(days) = promql.range(slower + '_over_time', record, 5 * 3600, days * 86400 - 4 * 3600);
    |||
      %(slower)s without (day) (
        %(all)s
        or
        (
          label_replace(
            quantile without (day) (0.5,
              %(days)s
            )
            and
            %(aged)s,
            "day", "usual", "", ""
          )
          or
          label_replace(
            %(week)s - %(clamp)s(%(week)s - %(two_weeks)s, 0),
            "day", "week", "", ""
          )
        )
        unless %(on)s %(lasting)s
      )
    ||| % {
      slower: slower,
      all: quantileOf(quantile, record),
      days: promql.indent(std.join('\nor\n', [promql.withLabel(around(n), 'day', '%d' % n) for n in std.range(1, config.history_days)]), 8),
      aged: 'last_over_time(%s[4d] offset 3d)' % record,  // the first days of a service may not be usual
      on: on,
      lasting: signals.lasting.record,
      week: around(7),
      two_weeks: around(14),
      clamp: if slower == 'max' then 'clamp_min' else 'clamp_max',
    };

  local is_control = 'inference_service=~"%s"' % config.control_service_regex;
  local is_raw_control = [source.serviceMatches(config.control_service_regex)];
  // The control's series, renamed to the service that it controls.
  local renamed(series) = promql.strip(|||
    label_replace(
      %(series)s,
      "inference_service", "$1", "inference_service", "%(control)s"
    )
  ||| % { series: promql.indent(series), control: config.control_service_regex });
  // None while the control itself drafts, or has so little load that it is faster for that.
  local asControlled(expression) =
    renamed('%s\nunless %s (%s > 0)' % [promql.strip(expression), on, signals.draft_tokens.record])
    + '\nunless %s\n%s' % [on, signals.control_lighter.record];
  local enough_requests = '%(requests)s >= %(min_requests)d' % {
    requests: signals.requests.record,
    min_requests: config.min_requests,
  };

  // avg: most replicas have the same file. Where files differ, each is as much of the baseline as its replica is of the service.
  local pinnedOf(sli, suffix) = source.family('baseline_' + config.slis[sli].family + '_seconds_' + suffix);
  local pinned_acceptance = source.family('baseline_acceptance_ratio');
  local fromSource(origin, expression) =
    'label_replace(\n  %(expression)s,\n  "baseline_source", "%(origin)s", "", ""\n)' % {
      expression: promql.indent(expression),
      origin: origin,
    };

  // The share of requests within each boundary at baseline, from each source that may be the baseline, first things first.
  local within_baseline(sli) = {
    control: '%s{sli="%s"}' % [signals.cdf_control.record, sli],
    pinned: '%(within)s\n>= %(least)s\nunless %(on)s\n%(busier)s' % {
      within: promql.by(
        'avg', level + ['le'], '%s / ignoring (le) group_left () %s' % [pinnedOf(sli, 'bucket'), pinnedOf(sli, 'count')]
      ),
      least: least_share,
      on: on,
      busier: signals.busier.record,
    },
    // min: hours without an epoch are a baseline beside those with one.
    [if std.member(config.history_tail_slis, sli) then 'usual']: promql.strip(|||
      min without (epoch) (
        last_over_time(%(within)s{sli="%(sli)s"}[2h])
        and on (%(labels)s, epoch)
        %(mean)s{baseline_source="history", sli="%(sli)s"}
      )
    ||| % {
      within: signals.cdf_usual.record,
      sli: sli,
      labels: promql.list(level),
      mean: name('latency_seconds', 'mean_baseline'),
    }),
  };

  {
    latency_baseline: {
      record: name('latency_seconds', 'mean_baseline'),
      unit: 's',
      help: 'Mean latency at baseline, by baseline_source; from history with its epoch.',
      by_sli: {
        [sli]: promql.firstOf([
          fromSource('control', asControlled('%(mean)s{%(control)s, sli="%(sli)s"}\nand\n%(enough)s' % {
            mean: signals.latency_mean.record,
            control: is_control,
            sli: sli,
            enough: enough_requests,
          })),
          fromSource('pinned', '%s\nunless %s\n%s' % [signals.pinned_mean.by_sli[sli], on, signals.busier.record]),
          fromSource('history', ofEpoch(
            'last_over_time(%s{sli="%s"}[2h])' % [signals.mean_usual.record, sli], signals.requests.record
          )),
        ], level)
        for sli in slis
      },
    },
    // Read once an hour: a week of hours is the dearest that there is.
    mean_usual: {
      record: name('latency_seconds', 'mean_usual', config.history_interval_seconds),
      unit: 's',
      help: 'Mean latency of a slow but usual hour, by epoch.',
      expr: usual('max', 0.75, signals.latency_mean_hour.record) + 'and\n' + enough_history(signals.latency_mean_hour.record),
    },
    cdf_usual: {
      record: name('latency', 'cdf_usual', config.history_interval_seconds),
      unit: 'percentunit',
      help: 'Share of the requests of a slow but usual hour within each bucket boundary, by epoch. Only boundaries that hold '
            + 'enough of them for a limit of the tail.',
      expr: usual('min', 1 - 0.75, signals.latency_cdf_hour.record) + '>= ' + least_share,
    },
    // Of services with a control only.
    cdf_control: {
      record: name('latency', 'cdf_control', long),
      unit: 'percentunit',
      help: 'Share of the requests of the control within each bucket boundary, by the service that it controls. Only boundaries that '
            + 'hold enough of them for a limit of the tail.',
      by_sli: {
        [sli]: asControlled(|||
          clamp_max(
            %(within)s
            / ignoring (le) group_left ()
            (%(requests)s >= %(min_requests)d),
            1
          ) >= %(least)s
        ||| % {
          // Of counters that began in the window, a share may be above 1: each is extrapolated on its own.
          within: promql.indent(source.commonBuckets('increase', sli, long, is_raw_control)),
          requests: source.histogram('increase', sli, 'count', long, is_raw_control),
          min_requests: config.min_requests,
          least: least_share,
        })
        for sli in slis
      },
    },
    // The smaller of two ratios: more requests in flight alone means that the service is slower. Requests in flight are the
    // seconds of all requests per second (Little's law). Absent nearly always, so it costs no series.
    busier: {
      record: name('baseline_load', 'higher'),
      unit: 'percentunit',
      local limit = 1 + config.policy.latency.traffic_tolerance,
      local longer = 0.1,
      help: ('How many times the load of its baseline file a service has, where that is more than %g: requests per second, or in '
             + 'flight if that is less. Then it stays so down to %g, or an alert would come and go with the load.')
            % [limit + longer, limit],
      local requests = signals.requests.record + '{sli="e2e"}',
      local over(now, recorded) = now + ' / ' + on + ' ' + promql.by('sum', level, source.family('baseline_requests_' + recorded)),
      local rate = over('%s / %d' % [requests, long], 'per_second'),
      local in_flight = over('%s / %d * %s{sli="e2e"}' % [requests, long, signals.latency_mean.record], 'in_flight'),
      expr: |||
        (
          %(rate)s < %(in_flight)s
          or
          %(in_flight)s
        )
        > %(on)s
        (
          %(limit)s - %(longer)s * (%(already)s > bool 0)
          or %(on)s
          0 * %(requests)s + %(limit)s
        )
      ||| % {
        rate: rate,
        in_flight: in_flight,
        on: on,
        limit: number(limit + longer),
        longer: number(longer),
        already: signals.busier.record,
        requests: requests,
      },
    },

    // Not by requests running: a service that is slow has more of them for that. Below two, batches hardly matter. Absent nearly
    // always, too.
    control_lighter: {
      record: name('control', 'lighter'),
      unit: 'suffix:/s',
      help: 'Tokens per second and engine, where those of its live control are less than half as many: that is faster for its load.',
      local tokens(matchers='') =
        promql.range('avg_over_time', signals.generation_tokens_now.record + matchers, long) + ' / ' + source.replicas,
      expr: '%s\n> 2 * %s\nand\n%s > 2' % [tokens(), renamed(tokens('{%s}' % is_control)), signals.running_lately.record],
    },

    // Absent for history: it has so many requests that their number does not matter.
    requestsAtBaseline(sli):: promql.firstOf([
      asControlled('%(requests)s{%(control)s, sli="%(sli)s"} >= %(min_requests)d' % {
        requests: signals.requests.record,
        control: is_control,
        sli: sli,
        min_requests: config.min_requests,
      }),
      // max: most replicas have the same file.
      '%(files)s > 0\nand %(on)s\n%(mean)s{baseline_source="pinned", sli="%(sli)s"}' % {
        files: promql.withLabel(promql.by('max', level, pinnedOf(sli, 'count')), 'sli', sli),
        on: on,
        mean: name('latency_seconds', 'mean_baseline'),
        sli: sli,
      },
    ], level),
    // Not recorded: panels ask for one service.
    requests_baseline: {
      unit: 'short',
      help: 'Requests in the baseline. Absent for history: there are so many that their number does not matter.',
      expr: std.join('\nor\n', [
        '1 / (%(sampling)s{sli="%(sli)s"} / %(cv_squared)s - 1 / %(requests)s > 1e-9)' % {
          sampling: signals.sampling.record,
          sli: sli,
          cv_squared: number(std.pow(config.slis[sli].cv, 2)),
          requests: signals.requests.record,
        }
        for sli in slis
      ]),
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
        // Not of another method or k: the rate by draft token falls with k by itself. The k of the file is its draft length.
        fromSource('pinned', '%(recorded)s\nunless %(on)s\n(\n  %(other)s\n  or\n  %(other_k)s\n)' % {
          recorded: promql.by('avg', level, pinned_acceptance),
          on: on,
          other: promql.indent(source.recordedWithOther('method')),
          other_k: 'abs(%(recorded)s - %(on)s (%(drafted)s / (%(drafts)s > 0))) > 0.5' % {
            recorded: promql.by('avg', level, '(%s - 1) / %s' % [source.family('baseline_mean_acceptance_length'), pinned_acceptance]),
            on: on,
            drafted: signals.draft_tokens.record,
            drafts: signals.drafts.record,
          },
        }),
        fromSource('history', ofEpoch(
          ofHistory(0.5, signals.acceptance_hour.record), signals.sample.record
        )),
      ], level),
    },

    // Not recorded: an alert needs it. A guess: a name need not say it, and a served name may be any word.
    newly_quantised: {
      help: 'Services whose model has a name of a quantised one, and whose baseline file was recorded with a model without such a name.',
      expr: '%(acceptance)s{model_name=~"%(names)s"}\nand %(on)s\n%(recorded)s' % {
        acceptance: signals.acceptance.record,
        names: config.quantised_models,
        on: on,
        recorded: source.family('baseline_info', ['model!=""', 'model!~"%s"' % config.quantised_models]),
      },
    },

    // Not recorded: the quotient of two counts.
    pinned_mean: {
      unit: 's',
      help: 'Mean latency in the baseline files, whatever the load.',
      by_sli: {
        [sli]: promql.by('avg', level, '%s / (%s > 0)' % [pinnedOf(sli, 'sum'), pinnedOf(sli, 'count')])
        for sli in slis
      },
    },

    // Not recorded: the tail shift needs it.
    cdf_baseline: {
      unit: 'percentunit',
      help: 'Share of the requests within each bucket boundary at baseline. Only boundaries that hold enough of them for a limit of '
            + 'the tail.',
      by_sli: { [sli]: promql.firstOf(std.objectValues(within_baseline(sli)), level) for sli in slis },
    },

    // Not recorded: panels ask for one service.
    p99_baseline: {
      unit: 's',
      help: 'P99 at baseline, for people. It is interpolated within a bucket. Absent where only the mean has a baseline.',
      local shares(sli) =
        local all = within_baseline(sli);
        // Only the exporter reads files.
        [all[origin] for origin in std.objectFields(all) if origin != 'pinned' || config.source == 'exporter'],
      by_sli: {
        [sli]: |||
          histogram_quantile(
            0.99,
            (
              %(shares)s
            )
            or
            label_replace(1 + 0 * max by (%(labels)s) (%(mean)s), "le", "+Inf", "", "")
          ) >= 0
        ||| % {
          shares: promql.indent(promql.firstOf(shares(sli), level), 4),
          labels: promql.list(level),
          mean: name('latency_seconds', 'mean_baseline') + '{sli="%s"}' % sli,
        }
        for sli in slis
      },
    },
  }
