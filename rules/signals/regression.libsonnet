// How far the latency of a service is from its baseline, and how far chance and wander alone may bring it.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local short = config.short_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local on_sli = 'on (%s, sli)' % promql.list(level);
  local number = promql.number;
  local slis = std.objectFields(config.slis);
  local z = config.policy.latency.z_score;
  local cv_squared(sli) = std.pow(config.slis[sli].cv, 2);

  // max: when a better source appears, the old one may stay for some minutes.
  local baseline = 'max without (baseline_source, epoch) (%s)' % signals.latency_baseline.record;
  local ofSli(record, sli) = record + '{sli="%s"}' % sli;

  local aboveLimit = '\n> ' + on_sli + '\n' + signals.mean_limit.expr;

  // When all latencies of a lognormal distribution grow by a factor, the share b above a limit grows to about
  // b ^ exp(-0.7 * k), where k is the logarithm of the factor / the spread of the logarithm of the latencies, 0.6. The margin
  // of the mean is such a factor - 1.
  local tail_exponent = 0.7 / 0.6;
  // The tail shift is s - g * b: s is the slow share now, b the slow share at baseline, g the growth. Let
  // v = 1 / n + 1 / n at baseline. The square root of any share has the sampling error sqrt(1 / n) / 2. So chance raises s
  // above b by less than z * sqrt(b * v) + z^2 * v / 4. The shift already allows b * (g - 1) of this. For every b, the rest
  // is at most z^2 * v * g / (4 * (g - 1)).
  local tail_factor = z * z * config.policy.latency.tail_growth / (4 * (config.policy.latency.tail_growth - 1));

  {
    // One rule for all SLIs.
    latency_ratio: {
      record: name('latency', 'mean_ratio', long),
      unit: 'percentunit',
      help: 'Mean latency / mean latency at baseline.',
      expr: signals.latency_mean.record + ' / ' + on_sli + '\n' + baseline,
    },
    latency_ratio_now: {
      record: name('latency', 'mean_ratio', short),
      unit: 'percentunit',
      help: 'Mean latency of the last minutes / mean latency at baseline.',
      by_sli: {
        [sli]: '%(sum)s\n/\n(%(count)s > 0)\n/ %(on)s\n%(baseline)s' % {
          sum: source.histogram('increase', sli, 'sum', short),
          count: source.histogram('increase', sli, 'count', short),
          on: on,
          baseline: 'max without (baseline_source, epoch, sli) (%s)' % ofSli(signals.latency_baseline.record, sli),
        }
        for sli in slis
      },
    },

    // The two terms of every margin: chance among the requests, and the wander of the service.
    sampling: {
      record: name('latency_sampling', 'variance', long),
      help: 'What chance among the requests does to the mean ratio, as a variance: cv^2 * (1 / requests + 1 / requests at baseline).',
      by_sli: {
        [sli]: '%(cv_squared)s / (%(requests)s > 0)\n+ (\n  %(cv_squared)s / %(baseline)s\n  or\n  0 * %(requests)s\n)' % {
          cv_squared: number(cv_squared(sli)),
          requests: ofSli(signals.requests.record, sli),
          baseline: promql.indent(promql.group(signals.requestsAtBaseline(sli))),
        }
        for sli in slis
      },
    },
    wander_now: {
      record: name('latency', 'wander', long),
      help: 'What the service wanders by itself, as a standard deviation of the mean ratio. A live control wanders with its '
            + 'service. A recording has wandered itself, the more the shorter it was: by its requests, up to twice the variance.',
      by_sli: {
        [sli]: |||
          last_over_time(%(wander)s[%(reach)s])
          * sqrt(clamp_max(%(requests)s * %(sampling)s / %(cv_squared)s, 2))
          unless
          max without (baseline_source, epoch) (%(baseline)s{baseline_source="control"})
          or
          0 * %(sampling)s
        ||| % {
          wander: ofSli(signals.wander.record, sli),
          reach: promql.duration(3 * config.history_interval_seconds),  // an evaluation may be lost
          requests: ofSli(signals.requests.record, sli),
          sampling: ofSli(signals.sampling.record, sli),
          cv_squared: number(cv_squared(sli)),
          baseline: signals.latency_baseline.record,
        }
        for sli in slis
      },
    },
    // Not recorded, as the limit: one number from two records.
    mean_margin: {
      unit: 'percentunit',
      help: 'Chance and the wander of the service may raise the mean ratio above 1 by this much.',
      of(matchers='')::
        '%(z)s * sqrt(%(sampling)s + %(wander)s ^ 2)' % {
          z: number(z),
          sampling: signals.sampling.record + matchers,
          wander: signals.wander_now.record + matchers,
        },
    },
    mean_limit: {
      unit: 'percentunit',
      help: 'The mean ratio above which the alert fires: %g, or 1 + the margin if that is more.' % config.policy.latency.slower_ratio,
      local of(matchers) =
        'clamp_min(1 + %(margin)s, %(limit)s)' % {
          margin: signals.mean_margin.of(matchers),
          limit: number(config.policy.latency.slower_ratio),
        },
      expr: of(''),
      by_sli: { [sli]: of('{sli="%s"}' % sli) for sli in slis },
    },

    tail_shift: {
      record: name('latency', 'tail_shift', long),
      unit: 'percentunit',
      help: ('The share of requests above a latency limit, minus %(growth)g times the share above it at baseline. Limits are '
             + 'the bucket boundaries that held %(held)g %% of the requests at baseline; the limit with the largest '
             + 'difference counts. Below 0: the tail has not grown. Not interpolated. A service that wanders by itself may exceed '
             + 'more: its share at baseline counts as a power of it.') % {
        growth: config.policy.latency.tail_growth,
        held: 100 * config.policy.latency.tail_limit_share,
      },
      // Where chance alone explains less, and all replicas have the same boundaries.
      beyond(sli, limit)::
        '%(shift)s > clamp_min(%(factor)s * %(sampling)s, %(limit)s)\nunless %(on)s\n%(mixed)s' % {
          shift: ofSli(signals.tail_shift.record, sli),
          factor: number(tail_factor / cv_squared(sli)),
          sampling: ofSli(signals.sampling.record, sli),
          limit: number(limit),
          on: on,
          mixed: source.mixedWithin(sli, long),
        },
      by_sli: {
        [sli]: |||
          max without (le) (
            1 - %(now)s
            / ignoring (le) group_left ()
            (%(requests)s > 0)
            - on (%(labels)s, le)
            (%(growth)s * (1 - %(baseline)s))
            ^ %(on)s group_left ()
            exp(-%(exponent)s * %(wander)s)
          )
        ||| % {
          labels: promql.list(level),
          on: on,
          // Not +Inf: it holds every request, so it would report an unchanged tail when no other boundary is common to both.
          now: source.histogram('increase', sli, 'bucket', long, ['le!="+Inf"']),
          requests: source.histogram('increase', sli, 'count', long),
          growth: number(config.policy.latency.tail_growth),
          baseline: promql.indent(promql.group(signals.cdf_baseline.by_sli[sli])),
          exponent: '%.4g' % (tail_exponent * z),
          wander: ofSli(signals.wander_now.record, sli),
        }
        for sli in slis
      },
    },

    // Absent nearly always, so it costs no series.
    slower: {
      record: name('latency', 'mean_slower', long),
      unit: 'percentunit',
      help: 'The mean ratio, where it is surely above its limit. A big effect needs few requests.',
      expr: |||
        %(ratio)s%(above_limit)s
        and %(on_sli)s
        (%(requests)s >= %(min_requests)d or %(requests)s >= 30 and %(on_sli)s %(ratio)s > 2)
      ||| % {
        ratio: signals.latency_ratio.record,
        above_limit: aboveLimit,
        on_sli: on_sli,
        requests: signals.requests.record,
        min_requests: config.min_requests,
      },
    },
    // Absent nearly always, too.
    tail_longer: {
      record: name('latency', 'tail_longer', long),
      unit: 'percentunit',
      help: 'The tail shift, where it is surely above the limit of a ticket.',
      by_sli: {
        [sli]: |||
          %(beyond)s
          and
          %(requests)s >= %(min_requests)d
        ||| % {
          beyond: signals.tail_shift.beyond(sli, config.policy.latency.tail_shift_min),
          requests: ofSli(signals.requests.record, sli),
          min_requests: config.min_requests,
        }
        for sli in slis
      },
    },
    // Absent nearly always, too.
    tail_lasting: {
      record: name('latency', 'tail_lasting', long),
      unit: 'percentunit',
      help: 'The same, unless the last ten minutes are clearly faster than the whole window, or tokens are hardly slower: answers or '
            + 'prompts may be longer.',
      expr: '%(longer)s\nunless %(on_sli)s\n%(faster)s\nunless %(on)s\n%(shift)s <= %(critical)s' % {
        longer: signals.tail_longer.record,
        on_sli: on_sli,
        faster: promql.group(signals.faster_lately.expr),
        on: on,
        shift: ofSli(signals.tail_shift.record, 'tpot'),
        critical: number(config.policy.latency.tail_shift_critical),
      },
    },
    // Not recorded. Half an hour remembers a blip of minutes that is long over: nobody is woken by that. Not against 1: where most
    // requests are faster and some slower, the mean is below it.
    faster_lately: {
      unit: 'percentunit',
      help: 'The mean ratio of a good quarter of the last ten minutes, where it is clearly below that of the whole window.',
      local of(matchers) = '%(now)s\n< %(on_sli)s\n%(about)s * %(ratio)s' % {
        // A blip is not three quarters of them, even while it lasts.
        now: promql.range('quantile_over_time', '0.25, ' + signals.latency_ratio_now.record + matchers, 10 * config.minute_seconds),
        on_sli: on_sli,
        about: number(0.85),
        ratio: signals.latency_ratio.record,
      },
      expr: of(''),
      by_sli: { [sli]: of('{sli="%s"}' % sli) for sli in slis },
    },
    // Not recorded: only records of the verdict read it.
    much_slower: {
      unit: 'percentunit',
      help: 'The mean ratio of decoding, where it is so far above 1 that low acceptance does harm. Decoding is the time per output '
            + 'token, or a whole request where the release has no such time.',
      expr: |||
        (%(ratio)s{sli="tpot"} or %(ratio)s{sli="e2e"} unless %(on)s %(mean)s{sli="tpot"})
        > %(on_sli)s clamp_min(1 + %(margin)s, %(limit)s)
        and %(on_sli)s %(requests)s >= %(min_requests)d
      ||| % {
        ratio: signals.latency_ratio.record,
        on: on,
        mean: signals.latency_mean.record,
        on_sli: on_sli,
        margin: signals.mean_margin.of(),
        limit: number(config.policy.latency.harmful_ratio),
        requests: signals.requests.record,
        min_requests: config.min_requests,
      },
    },
    // Not recorded: one alert reads it.
    slower_lately: {
      help: 'The mean ratio of the last minutes, where its mean over a quarter of an hour is above the limit.',
      expr: promql.range('avg_over_time', signals.latency_ratio_now.record, 15 * config.minute_seconds) + aboveLimit,
    },
  }
