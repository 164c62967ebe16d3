// Can the other alerts be believed?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local level = config.level_labels;
  local generating = '%(tokens)s >= %(min_tokens)s' % {
    tokens: signals.generation_tokens_now.record,
    min_tokens: number(signals.generation_tokens_now.least),
  };
  local facts = alert.facts { tokens: alert.value(alert.whole) };

  // Each reason has its own text. Nothing is wrong with the service, but what the others say of it may be.
  local untrusted(reason, spec) = {
    alert: 'SpecDecodeDataUntrusted',
    severity: 'warning',
    labels: { reason: reason },
    dashboard: config.pack_dashboard_uid,
  } + spec;
  // For three days: Alertmanager keeps context back over a weekend.
  local remembered = 3 * 86400;
  local partly = signals.partlyVerified(remembered);
  local counted = 'max without (epoch) (%s)' % promql.range('last_over_time', signals.acceptance_hour.record, remembered);

  [
    untrusted('counters_missing', {
      severity: 'info',
      for_seconds: minutes(30),
      expr: |||
        %(generating)s
        and
        %(has_drafted)s
        unless
        %(draft_tokens)s
      ||| % {
        generating: generating,
        has_drafted: if partly == null then counted else promql.group(counted + '\nor\n' + partly),
        draft_tokens: signals.draft_tokens.record,
      },
      summary: 'A service drafted within three days, but its draft counters are gone.',
      description: '%(where)s generates %(tokens)s tokens/s. It drafted within three days and has no draft counters now.' % facts,
      impact: 'Speculation was switched off, or its metrics have new names. In the second case no alert about it can fire.',
      action: 'If somebody switched speculation off on purpose, silence this alert: it ends within three days. If not, '
              + 'compare arguments and release with those of before.',
    }),
    untrusted('histograms_missing', {
      for_seconds: minutes(30),
      expr: signals.buckets_missing.expr,
      summary: 'A service generates tokens, but its latency histograms or their buckets are missing.',
      description: '%(where)s generates tokens. Its latency histograms, or their buckets, do not arrive.' % facts,
      impact: 'No alert about its latency can fire, and quantiles are missing.',
      action: 'Look at the scrape. With convert_classic_histograms_to_nhcb, also set always_scrape_classic_histograms (in a '
              + 'PodMonitor: scrapeClassicHistograms). No relabelling may drop _bucket.',
    }),
    untrusted('inconsistent', {
      for_seconds: minutes(15),
      expr: |||
        %(inconsistency)s
        and
        %(drafts)s >= %(min_drafts)d
      ||| % {
        inconsistency: signals.inconsistency.expr,
        drafts: signals.drafts.record,
        min_drafts: config.alert_min_drafts,
      },
      summary: 'Accepted tokens by position do not add up to all accepted tokens.',
      description: 'On %(where)s the sum over all positions differs from the total by %(value)s.'
                   % alert.facts { value: alert.value(alert.percent) },
      impact: 'The acceptance rate, the acceptance length or the curve is wrong.',
      action: 'Compare the raw counters of one replica. The cause is a bug of the exporter or of vLLM, or two releases run '
              + 'under one name.',
    }),
    untrusted('baselines_differ', {
      for_seconds: minutes(30),
      expr: signals.baselines_differ.expr,
      summary: 'Replicas of one service have different baseline files.',
      description: 'Replicas of %(where)s have different baseline files, or some have none.' % alert.facts,
      impact: 'The service is compared with the requests of all files together. Without a file on every replica, the load seems '
              + 'to be higher than in the recordings, and the files may not count.',
      action: 'Give every replica the same file, and reload the exporters. If the replicas differ in hardware, give each kind a '
              + 'service name of its own.',
    }),
    untrusted('baseline_old', {
      severity: 'info',
      for_seconds: minutes(60),
      expr: signals.baselines_old.expr,
      summary: 'A baseline file is old, or was recorded with another release or method.',
      description: ('The baseline file of %(where)s was recorded %(age)s ago. It is older than %(days)d days, or it was recorded with '
                    + 'another release or method than runs now.') % alert.facts {
        age: alert.value(alert.seconds),
        days: signals.baselines_old.days,
      },
      impact: 'The service is compared with an outdated recording. Acceptance with another method is not compared.',
      action: 'Record the baseline again, as before: with or without speculation, and at the load of busy hours.',
    }),
    untrusted('buckets_mixed', {
      for_seconds: minutes(30),
      level: level + ['sli'],
      expr: '%s > 0' % signals.buckets_mixed.record,
      summary: 'Replicas of one service have different histogram buckets.',
      description: 'Replicas of %(where)s have different buckets ({{ $labels.sli }}).' % alert.facts,
      impact: 'Quantiles and tail shift of the service are missing until all replicas have the same buckets.',
      action: 'Finish the rollout of --custom-histogram-buckets, or of the release that changed the buckets.',
    }),
  ] + (if config.source == 'vllm' then [] else [
         untrusted('prompts_longer', {
           dashboard: config.dashboard_uid,
           for_seconds: minutes(60),
           keep_seconds: config.long_window_seconds,
           expr: signals.prompts_longer.expr,
           summary: 'Prompts are longer than those that the baseline was recorded with.',
           description: ('Over %(long)s, the mean prompt of %(where)s has %(value)s tokens. In the recording of its baseline file '
                         + 'it had %(recorded)s. ') % alert.facts {
             value: alert.value(alert.whole),
             recorded: alert.aggregated('max', 'specdec_baseline_prompt_tokens_mean', alert.whole),
           } + alert.facts.speedup,
           impact: 'Drafts gain less on long contexts, and may lose well before the limit of the model. Requests are compared with '
                   + 'those of shorter prompts.',
           action: 'Record the baseline again with the prompts of now, and compare (specdec-exporter compare). If drafts lose, give '
                   + 'long prompts a service without speculation.',
         }),
         untrusted('several_processes', {
           level: source.sidecar,
           // Longer than a rollout with both pods behind one name takes, and the 10 minutes that the exporter remembers.
           for_seconds: minutes(15),
           // By chance, a balancer may choose one pod for longer than the exporter remembers the other.
           keep_seconds: minutes(15),
           expr: signals.several_processes.expr,
           summary: 'Several processes answer at one URL of a predictor.',
           description: ('%(number)s processes answer at one URL of %(where)s (exporter {{ with $labels.pod }}{{ . }}{{ else }}'
                         + '{{ $labels.instance }}{{ end }}). Counts add up all of them; gauges show one at a time.') % {
             where: alert.whereOf(source.service),
             number: alert.value(alert.whole),
           },
           impact: 'Running and waiting requests and the KV cache jump between the processes, so alerts about them can be wrong. '
                   + 'Nothing tells the replicas apart.',
           action: 'Point each exporter at one pod, as a sidecar does: --predictor.url must not be a Service or another balancer.',
         }),
       ]) + [
    {
      alert: 'SpecDecodeRulesLagging',
      severity: 'warning',
      dashboard: config.pack_dashboard_uid,
      level: ['rule_group'],
      for_seconds: minutes(15),
      expr: '%(busy)s\n> %(busy_max)s\nor\n%(missed)s > 0\nor\n%(failed)s > 0\nor\n%(stale)s' % {
        busy: signals.rules_busy.expr,
        busy_max: number(signals.rules_busy.most),
        missed: signals.rules_missed.expr,
        failed: signals.rules_failed.expr,
        stale: signals.rules_stale.expr,
      },
      summary: 'Rules of this pack fail, or take too long.',
      // The metrics of a ruler name the group. Where the ruler has none, the age of the records tells.
      description: ('{{ with $labels.rule_group }}In the rule group {{ . }}, rules fail, evaluations are missed, or an evaluation takes '
                    + 'more than %(most)s of the interval.{{ else }}%(number)s services have counters, but no record younger than '
                    + '%(age)s.{{ end }}') % {
        most: alert.percentOf(signals.rules_busy.most),
        number: alert.value(alert.whole),
        age: promql.duration(3 * config.evaluation_interval_seconds),
      },
      impact: 'Records have gaps. Alerts come late or not at all.',
      action: "Open the ruler's page of rules: a rule that fails says why. If none fails, give the ruler more CPU, split the services "
              + 'between rulers, or remove SLIs from history_tail_slis.',
    },
  ]
