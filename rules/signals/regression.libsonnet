// How far the latency of a service is from its baseline, and how far chance and wander alone may bring it.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local on_sli = 'on (%s, sli)' % promql.list(level);
  local number = promql.number;
  local slis = std.objectFields(config.slis);

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

  {
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
          baseline: promql.indent(promql.group(signals.slower_baseline.by_sli[sli]), 8),
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

    // The verdict has a z-score of its own.
    meanMargin:: margin,
    tailMargin:: tailMargin,
  }
