// Can the figures be believed?
local promql = import '../promql.libsonnet';
local text = import '../text.libsonnet';

function(config, s, series)
  local level = config.level;
  local problems = {
    baseline_old: 'the baseline file is old',
    baseline_other_method: 'the baseline file is of another method',
    baseline_other_release: 'the baseline file is of another release of vLLM',
    baselines_differ: 'its replicas have different baseline files',
    engine_left: 'an engine left the metrics',
    positions_differ: 'accepted tokens by position do not add up',
    prompts_longer: 'prompts are longer than in the baseline file',
    several_processes: 'several processes answer at one URL',
  };
  local untrusted = { alert: 'SpecDecodeDataUntrusted', severity: 'warning', wait: 30 };

  [
    untrusted {
      reason: 'histograms_missing',
      // A step comes with the first token. Releases before 0.11.0 have no time per output token.
      // Other engines than vLLM may have none.
      expr: series.without_engines(|||
        (
          %(tokens)s >= %(least)s
          unless on (%(level)s) %(steps)s
          or %(latency)s{sli="tpot", stat="mean"}
          unless on (%(level)s) %(latency)s{stat="p99"}
        )
      ||| % {
        tokens: s.tokens.record,
        least: promql.number(config.min_tokens),
        level: level,
        steps: series.by('count', level, promql.range('last_over_time', series.of('step', '_count'), config.minutes(5))),
        latency: s.latency.record,
      }, '!~"|vllm"'),
      summary: 'No latency histograms of %s arrive.' % text.model,
      description: 'For %s, tokens were generated, and their latency was missing, or had no buckets.' % config.minutes(30),
      impact: 'Alerts about latency cannot fire.',
      action: 'Look at the scrape: set always_scrape_classic_histograms, and keep all _bucket series.',
    },
  ] + (if config.source == 'vllm' then [] else [
         untrusted {
           by_model: false,
           expr: |||
             max by (%(service)s, reason) (%(problem)s) > 0
             or label_replace(stddev by (%(service)s) (%(recorded)s) > 0, "reason", "baselines_differ", "", "")
           ||| % {
             service: config.service,
             problem: series.family('specdec_data_problem'),
             recorded: series.family('specdec_baseline_recorded_timestamp_seconds'),
           },
           summary: 'Some figures of %s cannot be trusted: %s.' % [
             text.service,
             '{{ if ' + std.join('{{ else if ', ['eq $labels.reason "%s" }}%s' % [reason, problems[reason]] for reason in std.objectFields(problems)]) + '{{ end }}',
           ],
           description: 'For %s, the reason has been {{ $labels.reason }}.' % config.minutes(30),
           impact: 'Alerts and verdicts that use these figures may be wrong or missing.',
           action: 'Find this reason in the runbook, and do what its row says.',
         },
       ])
