// Does it stay up?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local service = source.service;
  local up = signals.replica_up.record;
  local window = promql.duration(config.restart_window_seconds);

  local worst(label) = '{{ . | first | label "%s" }}' % label;
  local loop(severity, expr, impact) = {
    alert: 'SpecDecodeRestartLoop',
    severity: severity,
    level: service,
    keep_seconds: 3 * config.minute_seconds,
    expr: expr,
    summary: 'A replica keeps restarting, or its metrics keep vanishing.',
    description: 'A replica of %(where)s keeps restarting, or its metrics keep vanishing.' % { where: alert.whereOf(service) }
                 + '{{ with printf "topk(1, resets(%(up)s%%s[%(window)s]) > 0)" $service | query }} '
                   % { up: up, window: window }
                 + ('The worst is {{ with . | first | label "pod" }}{{ . }}{{ else }}%(instance)s{{ end }}: %(times)s times within '
                    + '%(window)s.{{ end }}') % {
                   instance: worst('instance'),
                   times: '{{ . | first | value | %s }}' % alert.whole,
                   window: window,
                 },
    impact: impact,
    action: 'Read what ended the last container: its exit reason and the end of its previous log. If it began with a change of '
            + 'arguments, image or model, roll back.',
  };

  [
    loop(
      'critical',
      signals.restart_loop.expr + 'and\n' + promql.group(signals.hardly_readable.expr),
      'For more than %s of the time, the metrics of the replicas cannot be read. Every restart of a predictor drops the requests that ran.'
      % alert.percentOf(signals.hardly_readable.lost),
    ),
    loop(
      'warning',
      signals.restart_loop.expr,
      'Every restart of a predictor drops the requests that ran, and the first requests after it are slow.'
    ),
  ]
