// Does the load fit? Batch, queue and KV cache limit what speculation can save.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local drafting = '%(drafts)s >= %(min_drafts)d' % {
    drafts: signals.sample.record,
    min_drafts: config.alert_min_drafts,
  };
  local facts = alert.facts { value: alert.value(alert.whole), before: promql.duration(config.change_seconds) };

  // Context: a draft model, or another start, may have left less memory for the cache.
  local capacity =
    if config.source == 'vllm' then ''
    else alert.ifThereIs(
      'specdec_kv_cache_capacity_tokens',
      ' The smallest cache of an engine holds %(now)s tokens; within %(days)dd, the largest held %(most)s.' % {
        now: alert.aggregated('min', 'specdec_kv_cache_capacity_tokens', alert.whole),
        days: config.history_days,
        most: alert.aggregated('max', 'specdec_kv_cache_capacity_tokens', alert.whole, 86400 * config.history_days),
      },
      ''
    );
  local fell = 'acceptance fell: %(before)s ago it was %(fell_from)s.' % facts {
    fell_from: alert.number(signals.acceptance_fell_from.record, alert.percent),
  };

  // One alert for two sights, or it would come and go with them. The second sight has a negative value.
  local sights(first, second) = '%(first)s\nor on (%(labels)s)\n-1 * %(second)s' % {
    first: promql.strip(first),
    labels: promql.list(config.level_labels),
    second: promql.group(second),
  };
  local seen(first, second) = '{{ if ge $value 0.0 }}' + first + '{{ else }}' + second + '{{ end }} ';
  local amount(format) = '{{ $value | %s | reReplaceAll "^-" "" }}' % format;

  [
    {
      alert: 'SpecDecodeSaturated',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(10),
      local modest = |||
        %(running)s > %(max_running)d
        and
        %(waiting)s > %(max_waiting)d
        and
        %(acceptance)s < %(watch)s
        and
        %(drafting)s
        unless %(on)s
        %(pays)s
      ||| % {
        running: signals.running_lately.expr,
        max_running: config.saturated_requests_running,
        waiting: signals.waiting_lately.expr,
        max_waiting: config.saturated_requests_waiting,
        acceptance: signals.acceptance.record,
        watch: promql.group(signals.acceptance_watch.expr),
        drafting: drafting,
        on: on,
        pays: promql.group(signals.speedup_pays.expr),
      },
      // Good acceptance hides what verifying costs. So a queue that grows must come with slow tokens or, where nobody knows
      // which tokens are slow, with a big batch.
      local growing = |||
        %(queue_grows)s
        and
        (
          max without (sli) (
            %(ratio)s
            > %(limit)s
            and
            %(requests)s >= %(min_requests)d
          )
          unless %(on)s
          (%(unsettled)s)
          or
          %(running)s > %(max_running)d
          unless %(on)s
          %(baseline)s{sli="tpot"}
        )
        and
        %(drafting)s
        unless %(on)s
        %(pays)s
      ||| % {
        queue_grows: signals.queue_grows.expr,
        ratio: signals.latency_ratio.by_sli.tpot,
        limit: promql.indent(signals.mean_limit.by_sli.tpot, 4),
        requests: signals.requests.record,
        min_requests: config.min_requests,
        on: on,
        unsettled: signals.unsettled.expr,
        running: signals.running_lately.expr,
        max_running: config.saturated_requests_running,
        baseline: signals.latency_baseline.record,
        drafting: drafting,
        pays: promql.group(signals.speedup_pays.expr),
      },
      expr: sights(modest, growing),
      summary: 'Requests wait while speculation runs in big batches.',
      description: seen(
        'Acceptance is modest, and over %(long)s each engine of %(where)s ran %(value)s requests at a time while others waited.'
        % facts { value: alert.value(alert.whole) },
        '%(value)s requests wait for %(where)s: the queue did not empty within %(long)s and is longer than %(before)s ago.'
        % facts { value: amount(alert.whole) },
      ) + facts.speedup + ' ' + facts.judged,
      impact: 'New requests wait for their first token. In a full batch, a draft token takes time from other requests whether it '
              + 'is accepted or not. So throughput may fall when it is needed most.',
      action: 'Add replicas, or let fewer requests in. Then measure at this load: record a baseline without speculation, and '
              + 'compare (specdec-exporter compare). It tells up to which batch size drafts pay.',
    },
    {
      alert: 'SpecDecodeKVCacheSqueeze',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(10),
      local preempted = |||
        %(usage)s
        and
        (
          %(usage)s > %(max_usage)s
          or
          %(preemptions_rise)s
          and
          %(fell_from)s
        )
        and
        %(preemptions)s > 0
        and
        %(drafting)s
      ||| % {
        usage: signals.kv_cache_lately.expr,
        max_usage: number(config.kv_cache_usage_max),
        preemptions_rise: promql.indent(signals.preemptions_rise.expr),
        fell_from: signals.acceptance_fell_from.record,
        preemptions: signals.preemptions.expr,
        drafting: drafting,
      },
      local filling = |||
        %(climbs)s
        and
        %(fell_from)s
        and
        %(drafting)s
      ||| % {
        climbs: signals.kv_cache_climbs.expr,
        fell_from: signals.acceptance_fell_from.record,
        drafting: drafting,
      },
      expr: sights(preempted, filling),
      summary: 'The KV cache is full or fills up while speculation runs.',
      description: 'Over %(long)s, the KV cache of %(where)s was %(value)s full' % facts { value: amount(alert.percent) } + seen(
        ', and vLLM preempted requests. ' + alert.ifThereIs(
          signals.acceptance_fell_from.record, 'Meanwhile ' + fell, alert.ifAccepted('Acceptance did not fall meanwhile.', '')
        ),
        ', much more than %(before)s ago, and ' % facts + fell + ' Requests are not preempted yet.',
      ) + facts.judged + capacity,
      impact: 'A preempted request starts again, so its latency multiplies.',
      action: 'The draft model and its cache take memory from the target. Lower the number of sequences (--max-num-seqs), use '
              + 'a smaller draft head, or add memory. If acceptance fell too, look for requests of a new kind: long prompts fill '
              + 'the cache and may draft badly.',
    },
  ]
