// One acceptance rate hides a mix of traffic that gains and traffic that loses. Only the exporter's short windows tell.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local seconds = config.uneven_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;
  local minimum = signals.acceptance_min.record;

  local increase(suffix, labels=level) =
    promql.by('sum', labels, promql.range('increase', source.family('window_acceptance_ratio_' + suffix), seconds));

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
  ||| % {
    lowest: promql.indent(promql.quantile(config.uneven_share, increase('bucket', level + ['le']))),
    on: on,
    minimum: minimum,
    count: increase('count'),
    min_windows: config.uneven_windows_min,
    mean: '(%(sum)s / %(count)s)' % {
      sum: increase('sum'),
      count: increase('count'),
    },
    z: number(config.uneven_z_score),
    drafts: increase('by_draft_count'),
    sample: signals.sample.record,
    effective: signals.effective_drafts.record,
  };

  {
    // Recorded by the hour, because its windows are long. Absent nearly always, so it costs no series.
    acceptance_uneven: {
      record: name('acceptance_uneven', 'quantile', seconds),
      unit: 'percentunit',
      help: ('Where at least %(share)g %% of the traffic loses although the mean is fine: what this share of the short windows '
             + 'accepts at most, beyond chance.') % {
        share: 100 * config.uneven_share,
      },
      expr: '%(windows)s\nand %(on)s\n%(acceptance)s >= %(minimum)s' % {
        windows: promql.group(promql.strip(windows)),
        on: on,
        acceptance: signals.acceptance.record,
        minimum: minimum,
      },
    },
  }
