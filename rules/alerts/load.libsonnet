// Does the load fit? Batch, queue and KV cache limit what speculation can save.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local big_batch = signals.running_lately.record + ' > 32';
  local facts = alert.facts { before: promql.duration(2 * 3600) };
  local number(signal, format) = alert.number(signal.record, format);

  // Context: a draft model, or another start, may have left less memory for the cache.
  local capacity =
    if config.source == 'vllm' then ''
    else alert.ifThereIs(
      'specdec_kv_cache_capacity_tokens',
      'The smallest cache of an engine holds %(now)s tokens; within %(days)dd, the largest held %(most)s. ' % {
        now: alert.aggregated('min', 'specdec_kv_cache_capacity_tokens', alert.whole),
        days: config.history_days,
        most: alert.aggregated('max', 'specdec_kv_cache_capacity_tokens', alert.whole, 86400 * config.history_days),
      },
      ''
    );

  [
    {
      alert: 'SpecDecodeLoadTooHigh',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(10),
      // Verifying drafts is free only while the accelerator waits for memory: in a big batch it takes time from others, the more
      // the less is accepted. Good acceptance hides that, so a queue that grows must come with slow tokens or, where nobody
      // knows which tokens are slow, with a big batch. One expression: an alert must not come and go with what is seen.
      expr: |||
        (
          (
            %(big_batch)s
            and
            %(waiting)s > 1
            and
            %(acceptance)s
            unless
            %(good)s
            or
            %(queue_grows)s
            and
            (
              max without (sli) (%(slower)s{sli="tpot"})
              unless %(on)s
              %(unsettled)s
              or
              %(big_batch)s
              unless %(on)s
              %(baseline)s{sli="tpot"}
            )
          )
          unless %(on)s
          %(pays)s
          or
          %(squeezed)s
        )
        and %(on)s
        %(drafts)s >= %(min_drafts)d
      ||| % {
        big_batch: big_batch,
        waiting: signals.waiting_lately.record,
        acceptance: signals.acceptance.record,
        good: signals.acceptance_good.record,
        queue_grows: signals.queue_grows.record,
        slower: signals.slower.record,
        on: on,
        unsettled: signals.unsettled.record,
        baseline: signals.latency_baseline.record,
        pays: signals.speedup_pays.record,
        squeezed: signals.kv_cache_squeezed.record,
        drafts: signals.sample.record,
        min_drafts: config.alert_min_drafts,
      },
      summary: 'Requests wait, or the KV cache runs out, while speculation runs.',
      description: 'Over %(long)s, each engine of %(where)s ran ' % facts
                   + number(signals.running_lately, alert.whole) + ' requests at a time, '
                   + number(signals.waiting_lately, alert.whole) + ' waited, and the KV cache was '
                   + number(signals.kv_cache_lately, alert.percent) + ' full. '
                   + alert.ifThereIs(signals.queue_grows.record, 'The queue did not empty, and is longer than %(before)s ago. ' % facts, '')
                   + alert.ifThereIs(signals.kv_cache_squeezed.record, 'The KV cache fills up. ', '')
                   + alert.ifThereIs(
                     signals.acceptance_fell_from.record,
                     'Acceptance fell: %(before)s ago it was ' % facts
                     + alert.number(signals.acceptance_fell_from.record, alert.percent) + '. ',
                     ''
                   )
                   + capacity + facts.speedup + ' ' + facts.judged,
      impact: 'New requests wait for their first token, and preempted ones begin again. In a full batch, a draft token takes time '
              + 'from other requests whether it is accepted or not, so throughput may fall when it is needed most.',
      action: 'Add replicas, or let fewer requests in (--max-num-seqs). If the cache is full, use a smaller draft head or more memory: '
              + 'draft model and cache take it from the target. If acceptance fell too, look for requests of a new kind, such as '
              + 'long prompts. Then measure at this load whether drafts pay (specdec-exporter compare).',
    },
  ]
