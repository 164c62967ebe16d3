// History, by the hour, of which baselines are made.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local hour = config.history_interval_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local min_requests = 50;  // of an hour
  // A whole request is history only where nothing else tells decoding: it takes as long as its answer.
  local unlessBetter(sli) = if sli != 'e2e' then '' else '\nunless %(on)s\n%(requests)s{sli="tpot"}' % {
    on: on,
    requests: signals.requests.record,
  };

  // The bucket boundaries that history keeps: each is one more series per service. +Inf holds every request. vLLM has twenty for
  // time per output token. Most of them are above a fifth of a second: no service with readers has a limit there. Of the rest,
  // each is twice the one before: a tail is longer from half as much again on, and counts at the next one, too.
  local history_bounds(sli) = if sli == 'tpot' then ['le=~"0[.]([01].*|20*)"', 'le!~"0[.](075|15)0*"'] else ['le!="+Inf"'];

  // Hours of history, each with its epoch. Where nothing is known of the predictor, there is none.
  local ofEpoch(hours, services) = '%(hours)s\n* %(on)s group_left (epoch)\n(%(epoch)s or %(on)s %(services)s)' % {
    hours: promql.group(hours),
    on: on,
    epoch: signals.epoch.record,
    services: promql.by('group', level, services),
  };
  local usual(hours) = ofEpoch('%(hours)s\nunless %(on)s\n%(lasting)s' % {
    hours: promql.strip(hours),
    on: on,
    lasting: signals.lasting.record,
  }, name('latency_requests', 'increase', long));

  {
    // Over an hour, as hours of history are. Read by rules that run once an hour, so it is of a group of its own.
    epoch: {
      record: name('epoch', 'info'),
      help: 'What the service ran within the last hour, as the label epoch: k, method, draft model and release.',
      expr: source.epoch(hour),
    },
    acceptance_hour: {
      record: name('acceptance', 'ratio_rate', hour),
      unit: 'percentunit',
      help: 'Acceptance rate of an hour with enough drafts, by epoch. Absent with adaptive verification.',
      // Of the counts of half hours, at each minute of the hour: the logs and old releases are told apart there.
      local counted(signal) = promql.range('avg_over_time', signal.record, hour),
      expr: ofEpoch(signals.whollyVerified('%(accepted)s\n/\n%(drafted)s\nand\n%(drafts)s >= %(min_drafts)d' % {
        accepted: counted(signals.accepted_tokens),
        drafted: counted(signals.draft_tokens),
        drafts: counted(signals.sample),
        min_drafts: 500,
      }, hour), signals.sample.record),
    },
    lasting: {
      record: name('latency', 'lasting'),
      // An hour is no history whose alert fired in this many of the last twice as many hours: a regression that lasts does not
      // become normal before its last good hours are history_days old. Peaks are shorter, or learned day by day.
      local patience = 6,
      help: 'Latency alerts that fired in half of the last %d hours. Such hours are no history.' % (2 * patience),
      // A subquery: the number of samples does not depend on the ruler.
      expr: 'count_over_time(\n  %(alerts)s[%(window)s:%(hour)s]\n) >= %(hours)d' % {
        alerts: promql.by('max', level, 'ALERTS{alertname="SpecDecodeP99Regression", alertstate="firing"}'),
        window: promql.duration(2 * patience * hour),
        hour: promql.duration(hour),
        hours: patience,
      },
    },
    latency_mean_hour: {
      record: name('latency_seconds', 'mean', hour),
      unit: 's',
      help: 'Mean latency of an hour with enough requests, by epoch. Not of one in a regression that lasts.',
      by_sli: {
        [sli]: usual('%(sum)s\n/\n(%(requests)s >= %(min_requests)d)%(unless)s' % {
          sum: source.histogram('increase', sli, 'sum', hour),
          requests: source.histogram('increase', sli, 'count', hour),
          min_requests: min_requests,
          unless: unlessBetter(sli),
        })
        for sli in std.objectFields(config.slis)
      },
    },
    latency_cdf_hour: {
      record: name('latency', 'cdf', hour),
      unit: 'percentunit',
      help: 'Share of the requests of an hour within each bucket boundary, by epoch. Only boundaries that hold at least half of them.',
      by_sli: {
        [sli]: usual('%(within)s\n/ %(on)s group_left ()\n(%(requests)s >= %(min_requests)d)\n>= 0.5%(unless)s' % {
          within: source.commonBuckets('increase', sli, hour, history_bounds(sli)),
          on: on,
          requests: source.histogram('increase', sli, 'count', hour),
          min_requests: min_requests,
          unless: unlessBetter(sli),
        })
        for sli in config.history_tail_slis
      },
    },
  }
