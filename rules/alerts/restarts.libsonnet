// Does it stay up?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local number = promql.number;
  local service = source.service;
  local ofService = 'on (%s)' % promql.list(service);
  local where = alert.whereOf(service);
  local window = promql.duration(config.restart_window_seconds);

  // Of a replica that dies before its first token, the counters never begin again: they stay at 0. But again and again it
  // cannot be read. The last of these times also counts while the replica has not come back.
  local stops(seconds) =
    promql.by('max', service, promql.range('changes', signals.replica_up.record, seconds) + ' / 2%(silent)s') % {
      silent: if seconds < config.restart_window_seconds then '' else '\nand %(readable)s < %(limit)s' % {
        readable: promql.range('avg_over_time', signals.replica_up.record, seconds),
        limit: number(1 - config.restart_loss_min),
      },
    };
  // It ends an hour after the last restart.
  local looping = |||
    (
      %(restarts)s >= %(restarts_min)d
      or
      %(stops)s >= %(restarts_min)d
    )
    and %(of)s
    (%(lately)s > 0 or %(stopped)s > 0)
  ||| % {
    restarts: source.restarts(config.restart_window_seconds),
    restarts_min: config.restarts_min,
    stops: promql.indent(stops(config.restart_window_seconds)),
    of: ofService,
    lately: source.restarts(3600),
    stopped: stops(3600),
  };
  local lossy = |||
    and %(of)s
    (%(readable)s < %(limit)s)
  ||| % {
    of: ofService,
    readable: promql.by('avg', service, promql.range('avg_over_time', signals.replica_up.record, 3600)),
    limit: number(1 - config.restart_loss_critical),
  };

  local loop(severity, expr, impact) = {
    alert: 'SpecDecodeRestartLoop',
    severity: severity,
    level: service,
    keep_seconds: 45 * config.minute_seconds,
    expr: expr,
    summary: 'Again and again, a replica restarts or its metrics cannot be read.',
    description: 'A replica of %(where)s restarted, or its metrics could no longer be read, %(times)s times within %(window)s.'
                 % { where: where, times: alert.value(alert.whole), window: window },
    impact: impact,
    action: 'Read what ended the last container: its exit reason and the end of its previous log. If it began with a change of '
            + 'arguments, image or model, roll back.',
  };

  [
    loop(
      'critical',
      looping + lossy,
      'For more than %s of the time, the metrics of the replicas cannot be read, and every restart drops the requests that ran.'
      % alert.percentOf(config.restart_loss_critical),
    ),
    loop('warning', looping, 'Every restart drops the requests that ran, and the first requests after it are slow.'),
  ]
