// One acceptance rate hides a mix. Is it a mix of requests that gain and requests that lose? Only the exporter can tell.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local seconds = config.uneven_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;
  local minimum = signals.acceptance_min.record;

  local increase(family, labels, matchers=[]) =
    promql.by('sum', labels, promql.range('increase', source.family(family, matchers), seconds));
  local lowest(family, labels, matchers=[]) =
    promql.quantile(config.uneven_share, increase(family + '_bucket', labels + ['le'], matchers));

  local service = source.service;
  local enough_requests = '%(count)s >= %(min_requests)d' % {
    count: increase('tap_request_acceptance_ratio_count', service, source.tap_requests),
    min_requests: config.min_requests,
  };
  // Each request, from saved responses. They do not tell the model; and each request is in one group of each grouping.
  local requests = |||
    (
      0 * %(minimum)s
      + on (%(service)s) group_left ()
      (
        %(lowest)s
        and
        %(enough_requests)s
      )
    )
    < %(on)s
    %(minimum)s
  ||| % {
    minimum: minimum,
    service: promql.list(service),
    lowest: promql.indent(lowest('tap_request_acceptance_ratio', service, source.tap_requests), 4),
    enough_requests: enough_requests,
    on: on,
  };
  // By chance, a window is below break-even if its drafts happen to be of worse requests. The variance of a window's
  // acceptance is p * (1 - p) / its effective drafts.
  local windows = |||
    (
      %(lowest)s
    )
    < %(on)s
    %(minimum)s
    and
    %(count)s >= %(min_windows)d
    and
    %(mean)s
    - %(z)s * sqrt(
      %(mean)s
      * (1 - %(mean)s)
      * %(count)s
      / %(drafts)s
      * (%(sample)s / %(effective)s)
    )
    > %(minimum)s
    unless on (%(service)s)
    %(enough_requests)s
  ||| % {
    service: promql.list(service),
    enough_requests: promql.group(enough_requests),
    lowest: promql.indent(lowest('window_acceptance_ratio', level)),
    on: on,
    minimum: minimum,
    count: increase('window_acceptance_ratio_count', level),
    min_windows: config.uneven_windows_min,
    mean: '(%(sum)s / %(count)s)' % {
      sum: increase('window_acceptance_ratio_sum', level),
      count: increase('window_acceptance_ratio_count', level),
    },
    z: number(config.uneven_z_score),
    drafts: increase('window_acceptance_ratio_by_draft_count', level),
    sample: signals.sample.record,
    effective: signals.effective_drafts.record,
  };

  local of(what, expression) = 'label_replace(\n  %(expression)s,\n  "of", "%(what)s", "", ""\n)' % {
    expression: promql.indent(expression),
    what: what,
  };

  {
    // Recorded by the hour, because its windows are long. Absent nearly always, so it costs no series.
    acceptance_uneven: {
      record: name('acceptance_uneven', 'quantile', seconds),
      unit: 'percentunit',
      help: ('Where at least %(share)g %% of the traffic loses although the mean is fine: what this share of the traffic accepts at '
             + 'most. By `of`: of requests, where their responses are read; otherwise of short windows, beyond chance.') % {
        share: 100 * config.uneven_share,
      },
      expr: '%(either)s\nand %(on)s\n%(acceptance)s >= %(minimum)s' % {
        either: promql.group(promql.firstOf([
          of('requests', requests),
          of('windows', windows),
        ], level)),
        on: on,
        acceptance: signals.acceptance.record,
        minimum: minimum,
      },
    },
  }
