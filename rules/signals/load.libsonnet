// Do the requests fit? Batch, queue and KV cache. What climbs or falls is compared with two hours ago: longer than a peak of
// minutes, shorter than a day.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local before = 2 * 3600;
  local ago = promql.offset(before);
  local on = 'on (%s)' % promql.list(config.level_labels);
  local number = promql.number;

  // A gauge jumps from scrape to scrape, so alerts go by its mean, or by its least value.
  local lately(operation, operator, gauge) =
    '%(operation)s(%(gauge)s[%(window)s:%(step)s])' % {
      operation: operation,
      gauge: source.gauge(operator, gauge),
      window: promql.duration(long),
      step: promql.duration(config.slow_interval_seconds),
    };

  {
    running_lately: {
      record: name('requests_running', 'avg', long),
      unit: 'short',
      help: 'Requests running per engine: the mean of %s.' % promql.duration(long),
      expr: lately('avg_over_time', 'avg', 'requests_running'),
    },
    waiting_lately: {
      record: name('requests_waiting', 'avg', long),
      unit: 'short',
      help: 'Requests waiting per engine: the mean of %s.' % promql.duration(long),
      expr: lately('avg_over_time', 'avg', 'requests_waiting'),
    },
    kv_cache_lately: {
      record: name('kv_cache_usage', 'avg', long),
      unit: 'percentunit',
      help: 'Share of the KV cache in use, of the fullest engine: the mean of %s.' % promql.duration(long),
      expr: lately('avg_over_time', 'max', 'kv_cache_usage'),
    },
    // Conditions of the alert. Absent nearly always, so they cost no series.
    queue_grows: {
      record: name('requests_waiting', 'growing', long),
      unit: 'short',
      help: 'Requests waiting, where the queue did not empty within %(long)s, is at least a quarter of the batch, and half as long again '
            % { long: promql.duration(long) } + 'as %s ago.' % promql.duration(before),
      expr: |||
        %(waiting)s > 1.5 * (%(waiting)s%(ago)s)
        and
        %(least_waiting)s >= 1
        and
        %(waiting)s > 0.25 * %(running)s
      ||| % {
        waiting: signals.waiting_lately.record,
        ago: ago,
        least_waiting: lately('min_over_time', 'sum', 'requests_waiting'),
        running: signals.running_lately.record,
      },
    },
    kv_cache_squeezed: {
      record: name('kv_cache_usage', 'squeezed', long),
      unit: 'percentunit',
      help: ('Share of the KV cache in use, where memory runs out: it is above 0.9 and requests are preempted; acceptance fell and '
             + 'preemptions doubled since %(before)s ago; or acceptance fell and it climbed by 0.2 to above 0.8.') % {
        before: promql.duration(before),
      },
      expr: |||
        %(usage)s
        and
        (
          %(usage)s > 0.9
          and
          %(preemptions)s > 0
          or
          %(fell)s
          and
          (
            %(preemptions)s > 2 * %(preempted_before)s
            or
            %(usage)s > clamp_min(0.2 + %(usage)s%(ago)s, 0.8)
          )
        )
      ||| % {
        usage: signals.kv_cache_lately.record,
        preemptions: signals.preemptions.expr,
        preempted_before: source.counter('increase', 'preemptions', long, ago=before),
        fell: signals.acceptance_fell_from.record,
        ago: ago,
      },
    },
    preemptions: {
      unit: 'short',
      help: 'Requests preempted within %s. A preempted request loses its place in the KV cache and starts again.'
            % promql.duration(long),
      expr: source.counter('increase', 'preemptions', long),
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
      help: 'The same, where it is more than %g times that of the baseline file.' % config.policy.latency.prompt_length_ratio,
      expr: |||
        %(length)s
        > %(on)s
        %(ratio)s * max by (%(labels)s) (%(recorded)s)
        and %(on)s
        %(requests)s{sli="ttft"} >= %(min_requests)d
      ||| % {
        length: signals.prompt_length.expr,
        on: on,
        ratio: number(config.policy.latency.prompt_length_ratio),
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
        fall: 0.1,
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
        fall: '0.1',
      },
    },
  }
