// The texts of alerts: a summary that names the service and the number, at most three sentences, one first step.
local promql = import 'promql.libsonnet';

{
  local text = self,

  // "prod/chat (llama)", without the labels that the series lack.
  service: '{{ with $labels.cluster }}{{ . }}/{{ end }}{{ with $labels.namespace }}{{ . }}/{{ end }}{{ $labels.inference_service }}',
  model: text.service + '{{ with $labels.model_name }} ({{ . }}){{ end }}',
  pod: '{{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }}',

  // Formats of a value.
  percent: 'humanizePercentage',
  seconds: 'humanizeDuration',
  two: 'printf "%.2f"',
  whole: 'printf "%.0f"',
  value(format): '{{ $value | %s }}' % format,

  // The result of a query as text. `query`: with %s where matchers of the alert's service go: $s of a service with its model,
  // $p of all its models.
  number(query, format, of='s'):
    '{{ with printf "%s" $%s | query }}{{ . | first | value | %s }}{{ else }}?{{ end }}' % [std.strReplace(query, '"', '\\"'), of, format],
  // A text only where a query has a result. `otherwise`: where not.
  where(query, yes, otherwise='', of='s'):
    '{{ if printf "%s" $%s | query }}%s%s{{ end }}' % [
      std.strReplace(query, '"', '\\"'),
      of,
      yes,
      if otherwise == '' then '' else '{{ else }}' + otherwise,
    ],
  // A label of the first result.
  label(query, label, of='s'):
    '{{ with printf "%s" $%s | query }}{{ . | first | label "%s" }}{{ end }}' % [std.strReplace(query, '"', '\\"'), of, label],

  // `spec`: alert, severity, reason, expr, wait and keep (minutes), summary, description, impact, action; by_model:
  // false where the alert is of a service, whatever model it serves.
  alert(config, spec)::
    local own = { wait: 0, keep: 0, labels: {} } + spec;
    local matchers(labels) = std.join(', ', [label + '=%q' for label in labels]);
    local values(labels) = std.join(' ', ['$labels.' + label for label in labels]);
    local variable(name, labels) =
      if std.length(std.findSubstr('$%s | query' % name, own.summary + own.description)) == 0 then ''
      else '{{ $%s := printf "%s" %s }}' % [name, matchers(labels), values(labels)];
    local service = promql.names(config.service);
    local variables = { p: variable('p', service), s: variable('s', service + ['model_name']) };
    local withVariables(t) = std.join('', [variables[v] for v in std.objectFields(variables) if std.length(std.findSubstr('$%s | query' % v, t)) > 0]) + t;
    {
      alert: own.alert,
      expr: promql.strip(own.expr),
      [if own.wait > 0 then 'for']: config.minutes(own.wait),
      [if own.keep > 0 && config.keep_firing_for then 'keep_firing_for']: config.minutes(own.keep),
      labels: config.alert_labels { severity: own.severity, component: config.component } + own.labels
              + (if 'reason' in own then { reason: own.reason } else {}),
      annotations: {
        summary: withVariables(own.summary),
        description: withVariables(own.description),
        impact: own.impact,
        action: own.action,
        runbook_url: config.runbook_url_prefix + own.alert + '.md',
        dashboard_url: config.grafana_url + '/d/specdec-service?' + std.join('&', [
          'var-%s={{ $labels.%s | urlquery }}' % [label, label]
          for label in service + (if std.get(own, 'by_model', true) then ['model_name'] else [])
        ]),
      },
    },
}
