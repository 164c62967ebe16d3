// One alert: name, severity, guards and the six annotations. All texts use the same pieces, so every alert names the service,
// its current numbers and the expected ones.
local promql = import '../promql.libsonnet';

function(config, signals)
  local level = config.level_labels;

  // "prod/chat (llama-3-70b)", without the labels that the alert lacks.
  local where(labels) =
    std.join('', [
      if std.member(labels, 'cluster') then '{{ with $labels.cluster }}{{ . }}/{{ end }}' else '',
      if std.member(labels, 'namespace') then '{{ with $labels.namespace }}{{ . }}/{{ end }}' else '',
      '{{ with $labels.inference_service }}{{ . }}{{ end }}',
      if std.member(labels, 'model_name') then '{{ with $labels.model_name }} ({{ . }}){{ end }}' else '',
    ]);

  local dashboard(uid, labels) =
    config.grafana_url + '/d/' + uid + (
      if labels == [] then ''
      else '?' + std.join('&', ['var-%(label)s={{ $labels.%(label)s | urlquery }}' % { label: label } for label in labels])
    );

  // Template variables for the queries in a description: matchers of the series of the alert's service.
  local variables(labels) =
    local matchers(name, extra='', values='') =
      '{{ $%(name)s := printf "{%(matchers)s%(extra)s}" %(labels)s%(values)s }}' % {
        name: name,
        matchers: std.join(', ', [label + '=%q' for label in labels]),
        extra: extra,
        labels: std.join(' ', ['$labels.' + label for label in labels]),
        values: values,
      };
    {
      service: matchers('service'),
      sli: matchers('sli', ', sli=%q', ' $labels.sli'),
      measured: matchers('measured', ', basis=%q', ' "measured"'),
      known: matchers('known', ', method!=%q', ' ""'),
      low: matchers('low', ', bound=%q', ' "low"'),
      high: matchers('high', ', bound=%q', ' "high"'),
    } + { [sli]: matchers(sli, ', sli=%q', ' "' + sli + '"') for sli in std.objectFields(config.slis) };

  {
    local alert = self,

    // Formats of a value in a template.
    percent:: 'humanizePercentage',
    seconds:: 'humanizeDuration',
    two:: 'printf "%.2f"',
    whole:: 'printf "%.0f"',

    // The value of a record as text: of the service, of the alert's `sli`, of an SLI by its name, or of a bound (`low`, `high`).
    number(record, format, of='service')::
      '{{ with printf "%(record)s%%s" $%(of)s | query }}{{ . | first | value | %(format)s }}{{ else }}unknown{{ end }}' % {
        record: record,
        of: of,
        format: format,
      },
    // The same through an aggregation: max(<record>{...}), or over so many seconds max(max_over_time(<record>{...}[7d])).
    aggregated(operator, record, format, seconds=0)::
      '{{ with printf "%(of)s" $service | query }}{{ . | first | value | %(format)s }}{{ else }}unknown{{ end }}' % {
        of: operator + (
          if seconds == 0 then '(' + record + '%s)'
          else '(' + operator + '_over_time(' + record + '%s[' + promql.duration(seconds) + ']))'
        ),
        format: format,
      },
    // One text if the service has the series, another if it does not. `of`: as above, `measured`, or
    // `known` (with a method). `beyond`: only if its value is so, for example ' > 1.1'.
    ifThereIs(record, text, otherwise, of='service', beyond='')::
      '{{ if printf "%(record)s%%s%(beyond)s" $%(of)s | query }}%(text)s{{ else }}%(otherwise)s{{ end }}' % {
        record: record,
        beyond: beyond,
        of: of,
        text: text,
        otherwise: otherwise,
      },
    // What the record was compared with, in words: a label says which.
    against(record, label, of='service')::
      ('{{ with printf "%(record)s%%s" $%(of)s | query }}{{ with . | first | label "%(label)s" }}{{ if eq . "history" }}its own past'
       + '{{ else if eq . "control" }}its live control{{ else if eq . "like_load" }}a recording without speculation{{ else }}its baseline '
       + 'file{{ end }}{{ end }}{{ else }}nothing{{ end }}') % {
        record: record,
        of: of,
        label: label,
      },
    // A text about acceptance, or another where it is not known: by default why.
    ifAccepted(text, otherwise=alert.ifThereIs(
      signals.acceptance_length.record, signals.partly_verified.help, 'Acceptance is unknown.'
    ))::
      if signals.partly_verified.expr == null then text else alert.ifThereIs(signals.acceptance.record, text, otherwise),
    // A number of the configuration, as text: 0.1 -> '10%'.
    percentOf(ratio):: '%g%%' % (100 * ratio),
    value(format):: '{{ $value | %s }}' % format,
    whereOf:: where,

    // What descriptions say about a service, by name.
    facts:: {
      where: where(level),
      long: promql.duration(config.long_window_seconds),
      short: promql.duration(config.short_window_seconds),
      acceptance: alert.number(signals.acceptance.record, alert.percent),
      acceptance_min: alert.number(signals.acceptance_min.record, alert.percent),
      acceptance_length: alert.number(signals.acceptance_length.record, alert.two),
      acceptance_length_min: alert.number(signals.acceptance_length_min.record, alert.two),
      running: alert.ifThereIs(
        signals.running_lately.record,
        ' (%s running)' % alert.number(signals.running_lately.record, alert.whole),
        ''
      ),
      // Break-even that is not measured is a guess from published services, and is called so.
      basis:
        if config.source == 'exporter'
        then alert.ifThereIs(
          'last_over_time(specdec_break_even_acceptance_ratio',
          'measured',
          'assumed',
          'measured',
          '[%s])' % promql.duration(config.long_window_seconds)
        )
        else 'assumed',
      speedup: alert.ifThereIs(
        signals.speedup.record,
        'The measured speed-up is %(value)s against %(against)s%(bounds)s.' % {
          value: alert.number(signals.speedup.record, alert.two),
          against: alert.against(signals.speedup.record, 'speedup_source'),
          bounds: alert.ifThereIs(
            signals.speedup_bound.record,
            ' (%(low)s to %(high)s within chance)' % {
              low: alert.number(signals.speedup_bound.record, alert.two, 'low'),
              high: alert.number(signals.speedup_bound.record, alert.two, 'high'),
            },
            '',
          ),
        },
        'Whether speculation pays is not measured here.',
      ),
      // All of it in one sentence, and the sample.
      judged: self.paying + ' ' + alert.ifAccepted('Acceptance is %(acceptance)s.' % self)
              + ' The sample is %(drafts)s drafts in %(long)s.' % self,
      // A length needs no k to be read.
      paying: 'A step gives %(acceptance_length)s tokens (mean acceptance length)' % self
              + alert.ifThereIs(
                signals.acceptance_length_min.record,
                '; at this load%(running)s about %(acceptance_length_min)s pay off, %(basis)s' % self,
                '',
              ) + '.',
      drafts: alert.number(signals.sample.record, alert.whole),
      curve: alert.ifThereIs(
        signals.first_acceptance.record,
        'Acceptance at the first position is %s.' % alert.number(signals.first_acceptance.record, alert.percent),
        'The acceptance by position is unknown.',
      ),
      // Of the alert's SLI.
      mean: alert.number(signals.latency_mean.record, alert.seconds, 'tpot'),
      mean_baseline: alert.number(signals.latency_baseline.record, alert.seconds, 'tpot'),
      baseline_source: alert.against(signals.latency_baseline.record, 'baseline_source', 'tpot'),
      requests: alert.number(signals.requests.record, alert.whole, 'sli'),
    },

    // `spec`: alert, severity, expr, for_seconds (0: at once), keep_seconds (0: none), labels, level (labels that the alert
    // has; default all), summary, description, impact, action, dashboard.
    new(spec)::
      local own = { for_seconds: 0, keep_seconds: 0, labels: {}, level: level, dashboard: config.dashboard_uid } + spec;
      local links = [label for label in own.level if std.member(level, label)];
      local description = own.description;
      local uses(variable) = promql.contains(description, '$' + variable + ' |');
      {
        alert: own.alert,
        expr: own.expr,
        [if own.for_seconds > 0 then 'for']: promql.duration(own.for_seconds),
        [if own.keep_seconds > 0 && config.keep_firing_for then 'keep_firing_for']: promql.duration(own.keep_seconds),
        labels: config.alert_labels { severity: own.severity, component: config.component } + own.labels,
        annotations: {
          summary: own.summary,
          description:
            std.join('', [variables(links)[v] for v in std.objectFields(variables(links)) if uses(v)]) + description,
          impact: own.impact,
          action: own.action,
          runbook_url: config.runbook_url_prefix + own.alert + '.md',
          dashboard_url: dashboard(own.dashboard, links),
        },
      },
  }
