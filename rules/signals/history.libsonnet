// History, by the hour, of which baselines are made.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local hour = config.history_interval_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);

  // The bucket boundaries that history keeps. vLLM has twenty for time per output token. Nine of them are above half a second
  // per token: no service with readers has a limit there, and each boundary is one more series per service.
  local history_bounds(sli) = if sli == 'tpot' then ['le=~"0[.]([0-4].*|50*)|[+]Inf"'] else [];

  // Hours of history, each with its epoch. Where nothing is known of the predictor, there is none.
  local ofEpoch(hours, services) = '%(hours)s\n* %(on)s group_left (epoch)\n%(epoch)s' % {
    hours: promql.group(hours),
    on: on,
    epoch: promql.group(promql.firstOf([source.epoch(hour), promql.by('group', level, services)], level)),
  };
  local lasting(matchers) = 'count_over_time(ALERTS%(matchers)s[%(window)s:%(hour)s]) >= %(hours)d' % {
    matchers: promql.braces(['alertname=~"SpecDecode(P99|LatencyMean)Regression"', 'alertstate="firing"'] + matchers),
    window: promql.duration(2 * config.history_patience_hours * hour),
    hour: promql.duration(hour),
    hours: config.history_patience_hours,
  };
  local usual(sli, hours) = ofEpoch('%(hours)s\nunless %(on)s\n%(lasting)s' % {
    hours: promql.strip(hours),
    on: on,
    lasting: lasting(['sli="%s"' % sli]),
  }, name('latency_requests', 'increase', long));

  {
    acceptance_hour: {
      record: name('acceptance', 'ratio_rate', hour),
      unit: 'percentunit',
      help: 'Acceptance rate of an hour with enough drafts, by epoch. Absent with adaptive verification.',
      local draft_tokens = promql.group(source.counter('increase', 'draft_tokens', hour)),
      expr: ofEpoch(signals.whollyVerified(|||
        %(accepted)s
        /
        %(drafted)s
        and %(on)s
        (%(drafts)s >= %(min_drafts)d)
      ||| % {
        accepted: promql.group(source.counter('increase', 'accepted_tokens', hour)),
        drafted: draft_tokens,
        on: on,
        drafts: promql.group(promql.firstOf([
          source.counter('increase', 'drafts', hour),
          '%(draft_tokens)s\n/ %(assumed)d' % { draft_tokens: draft_tokens, assumed: config.assumed_draft_tokens },
        ], level)),
        min_drafts: config.min_history_drafts,
      }, hour), signals.sample.record),
    },
    // Not recorded. Such hours are no history, or a regression that nobody mends would become normal.
    lasting: {
      help: 'Latency alerts that fired in half of the last %d hours.' % (2 * config.history_patience_hours),
      // A subquery: the number of samples does not depend on the ruler.
      expr: lasting([]),
      by_sli: { [sli]: lasting(['sli="%s"' % sli]) for sli in std.objectFields(config.slis) },
    },
    latency_mean_hour: {
      record: name('latency_seconds', 'mean', hour),
      unit: 's',
      help: 'Mean latency of an hour with enough requests, by epoch. Not of one in a regression that lasts.',
      by_sli: {
        [sli]: usual(sli, '%(sum)s\n/\n(%(requests)s >= %(min_requests)d)' % {
          sum: source.histogram('increase', sli, 'sum', hour),
          requests: source.histogram('increase', sli, 'count', hour),
          min_requests: config.min_history_requests,
        })
        for sli in std.objectFields(config.slis)
      },
    },
    latency_cdf_hour: {
      record: name('latency', 'cdf', hour),
      unit: 'percentunit',
      help: 'Share of the requests of an hour within each bucket boundary, by epoch. Only boundaries that hold at least half of them.',
      local share(sli, better_slis) =
        usual(sli, '%(within)s\n/ %(on)s group_left ()\n(%(requests)s >= %(min_requests)d)\n>= 0.5%(unless)s' % {
          within: source.histogram('increase', sli, 'bucket', hour, ['le'], history_bounds(sli)),
          on: on,
          requests: source.histogram('increase', sli, 'count', hour),
          min_requests: config.min_history_requests,
          unless: std.join('', [
            '\nunless %(on)s\n%(requests)s{sli="%(sli)s"}' % { on: on, requests: signals.requests.record, sli: better }
            for better in better_slis
          ]),
        }),
      by_sli: {
        [config.history_tail_slis[i]]: share(config.history_tail_slis[i], config.history_tail_slis[:i])
        for i in std.range(0, std.length(config.history_tail_slis) - 1)
      },
    },
  }
