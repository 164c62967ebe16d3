// One alert: name, severity, guards and the six annotations. Texts are made of the same few pieces, so that every alert
// names the service, the numbers that matter now and what they should be.
local promql = import '../promql.libsonnet';

function(config, signals)
  local level = config.level_labels;

  // "prod/chat (llama-3-70b)", without what the alert's labels lack.
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
      else '?' + std.join('&', ['var-%s={{ $labels.%s | urlquery }}' % [label, label] for label in labels])
    );

  // Matchers of the other series of the alert's service, for queries in its description.
  local variables(labels) =
    local matchers(name, extra='', values='') =
      '{{ $%s := printf "{%s%s}" %s%s }}' % [
        name,
        std.join(', ', ['%s=%%q' % label for label in labels]),
        extra,
        std.join(' ', ['$labels.' + label for label in labels]),
        values,
      ];
    {
      service: matchers('service'),
      sli: matchers('sli', ', sli=%q', ' $labels.sli'),
      p99: matchers('p99', ', sli=%q, quantile=%q', ' $labels.sli "0.99"'),
    };

  {
    // Formats of a value in a template.
    percent:: 'humanizePercentage',
    seconds:: 'humanizeDuration',
    two:: 'printf "%.2f"',
    whole:: 'printf "%.0f"',

    // The value of a record of the service (or of its `sli`, or of that SLI's `p99`), as text.
    number(record, format, of='service')::
      '{{ with printf "%s%%s" $%s | query }}{{ . | first | value | %s }}{{ else }}unknown{{ end }}' % [
        record,
        of,
        format,
      ],
    // The same through an aggregation: max(<record>{...}).
    aggregated(operator, record, format)::
      '{{ with printf "%s(%s%%s)" $service | query }}{{ . | first | value | %s }}{{ else }}unknown{{ end }}' % [
        operator,
        record,
        format,
      ],
    // One text where the service has the record, the other where it has not.
    ifThereIs(record, text, otherwise)::
      '{{ if printf "%s%%s" $service | query }}%s{{ else }}%s{{ end }}' % [record, text, otherwise],
    // A label of it.
    label(record, label, of='service')::
      '{{ with printf "%s%%s" $%s | query }}{{ . | first | label "%s" }}{{ else }}none{{ end }}' % [record, of, label],
    // A number of the configuration, as text: 0.1 -> '10%'.
    percentOf(ratio):: '%g%%' % (100 * ratio),
    value(format):: '{{ $value | %s }}' % format,

    whereOf:: where,
    where:: where(level),

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
            std.join('', [variables(links)[v] for v in ['service', 'sli', 'p99'] if uses(v)]) + description,
          impact: own.impact,
          action: own.action,
          runbook_url: config.runbook_url_prefix + own.alert + '.md',
          dashboard_url: dashboard(own.dashboard, links),
        },
      },
  }
