// Do the requests fit? Batch, queue and KV cache. Not recorded, but for the fall of acceptance: that is rare.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local before = config.change_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local number = promql.number;

  // A gauge jumps from scrape to scrape, so alerts go by its mean, or by its least value.
  local lately(operation, operator, gauge, ago=0) =
    '%(operation)s(%(gauge)s[%(window)s:%(step)s]%(offset)s)' % {
      operation: operation,
      gauge: source.gauge(operator, gauge),
      window: promql.duration(long),
      step: promql.duration(config.slow_interval_seconds),
      offset: promql.offset(ago),
    };

  {
    running_lately: {
      unit: 'short',
      help: 'Requests running per engine: the mean of %s.' % promql.duration(long),
      expr: lately('avg_over_time', 'avg', 'requests_running'),
    },
    waiting_lately: {
      unit: 'short',
      help: 'Requests waiting: the mean of %s.' % promql.duration(long),
      expr: lately('avg_over_time', 'sum', 'requests_waiting'),
    },
    queue_grows: {
      unit: 'short',
      help: ('Requests waiting, where the queue did not empty within %(long)s, is at least %(share)g %% of the batch, and '
             + '%(ratio)g times as long as %(before)s ago.') % {
        long: promql.duration(long),
        share: 100 * config.saturated_queue_share,
        ratio: config.saturated_growth_ratio,
        before: promql.duration(before),
      },
      expr: promql.strip(|||
        %(waiting)s
        > %(ratio)s * %(waiting_before)s
        and
        %(least_waiting)s >= %(min_waiting)d
        and
        %(waiting)s
        > %(share)s * %(running)s
      ||| % {
        waiting: signals.waiting_lately.expr,
        ratio: number(config.saturated_growth_ratio),
        waiting_before: lately('avg_over_time', 'sum', 'requests_waiting', before),
        least_waiting: lately('min_over_time', 'sum', 'requests_waiting'),
        min_waiting: config.saturated_requests_waiting,
        share: number(config.saturated_queue_share),
        running: lately('avg_over_time', 'sum', 'requests_running'),
      }),
    },
    kv_cache_lately: {
      unit: 'percentunit',
      help: 'Share of the KV cache in use, of the fullest engine: the mean of %s.' % promql.duration(long),
      expr: lately('avg_over_time', 'max', 'kv_cache_usage'),
    },
    kv_cache_climbs: {
      unit: 'percentunit',
      help: 'The same, where it is above %(min)g and at least %(climb)g above that of %(before)s ago.' % {
        min: config.kv_cache_climbed_min,
        climb: config.kv_cache_climb_min,
        before: promql.duration(before),
      },
      expr: '%(usage)s > %(min)s\nand\n%(usage)s\n> %(climb)s + %(usage_before)s' % {
        usage: signals.kv_cache_lately.expr,
        min: number(config.kv_cache_climbed_min),
        climb: number(config.kv_cache_climb_min),
        usage_before: lately('avg_over_time', 'max', 'kv_cache_usage', before),
      },
    },
    preemptions: {
      unit: 'short',
      help: 'Requests preempted within %s. A preempted request loses its place in the KV cache and starts again.'
            % promql.duration(long),
      expr: source.counter('increase', 'preemptions', long),
    },
    preemptions_rise: {
      unit: 'short',
      help: 'The same, where they are more than %(ratio)g times those of %(before)s ago.' % {
        ratio: config.preemptions_rise_ratio,
        before: promql.duration(before),
      },
      expr: '%(preemptions)s\n> %(ratio)s * %(preemptions_before)s' % {
        preemptions: signals.preemptions.expr,
        ratio: number(config.preemptions_rise_ratio),
        preemptions_before: source.counter('increase', 'preemptions', long, ago=before),
      },
    },
    kv_cache_capacity: {
      unit: 'short',
      help: 'Tokens that the smallest KV cache of an engine holds. A draft model leaves less memory for it.',
      expr: source.cacheTokens,
    },
    prefix_cache_hits: {
      unit: 'percentunit',
      help: 'Prefix cache: prompt tokens that were found in it / prompt tokens that were looked up, within %s.' % promql.duration(long),
      expr: '%(hits)s\n/ %(on)s\n(%(queries)s > 0)' % {
        hits: promql.group(source.counter('increase', 'prefix_cache_hits', long)),
        on: on,
        queries: promql.group(source.counter('increase', 'prefix_cache_queries', long)),
      },
    },
    prompt_length: {
      unit: 'short',
      help: 'Mean prompt length in tokens. Prompts longer than usual delay the first token.',
      expr: '%(tokens)s\n/ %(on)s\n%(requests)s' % {
        tokens: promql.group(source.counter('increase', 'prompt_tokens', long)),
        on: on,
        requests: promql.group(source.histogram('increase', 'ttft', 'count', long) + ' > 0'),
      },
    },
    // max: replicas may have different files.
    prompts_longer: {
      unit: 'short',
      help: 'The same, where it is more than %g times that of the baseline file.' % config.prompt_length_ratio,
      expr: |||
        %(length)s
        > %(on)s
        %(ratio)s * max by (%(labels)s) (%(recorded)s)
        and %(on)s
        %(requests)s{sli="ttft"} >= %(min_requests)d
      ||| % {
        length: signals.prompt_length.expr,
        on: on,
        ratio: number(config.prompt_length_ratio),
        labels: promql.list(config.level_labels),
        recorded: source.family('baseline_prompt_tokens_mean'),
        requests: signals.requests.record,
        min_requests: config.min_requests,
      },
    },
    // Absent nearly always, so it costs no series.
    acceptance_fell_from: {
      record: name('acceptance', 'fell_from', before),
      unit: 'percentunit',
      help: 'Acceptance rate of %(before)s ago, where it has fallen since by at least %(fall)g, and by more than chance explains.' % {
        before: promql.duration(before),
        fall: config.acceptance_fall_min,
      },
      expr: |||
        %(acceptance)s offset %(before)s
        > %(on)s
        %(acceptance)s
        + clamp_min(
          %(z)s * sqrt(1 / %(drafts)s + 1 / (%(drafts)s offset %(before)s)),
          %(fall)s
        )
      ||| % {
        acceptance: signals.acceptance.record,
        before: promql.duration(before),
        on: on,
        z: number(config.alert_z_score / 2),  // the error of a share is at most sqrt(1/4 / n)
        drafts: signals.effective_drafts.record,
        fall: number(config.acceptance_fall_min),
      },
    },
  }
