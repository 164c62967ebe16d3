// Acceptance by kind of request, where `specdec-exporter tap` reads saved responses. Views are never recorded.
local promql = import 'promql.libsonnet';

function(config, narrow)
  local long = config.long_window_seconds;
  local kind = std.filter(function(label) label != 'model_name', config.level_labels) + ['by', 'group'];
  // The series of tap have no model.
  local target = (import 'sources.libsonnet')(config { selector: narrow.target });

  local sum(operation, name, labels=kind) =
    promql.by('sum', labels, promql.range(operation, target.family('tap_' + name), long));
  local quantile(at) = promql.quantile(at, sum('rate', 'request_acceptance_ratio_bucket', kind + ['le']));

  {
    kind_requests: {
      unit: 'short',
      help: 'Requests with a record of speculation, by kind. Each is in one group of each kind: sum over groups, never over kinds.',
      expr: sum('increase', 'requests_total') + ' > 0',
    },
    kind_acceptance: {
      unit: 'percentunit',
      help: 'Acceptance rate by kind of request: accepted draft tokens / draft tokens.',
      expr: '%(accepted)s\n/\n(%(drafted)s > 0)' % {
        accepted: sum('increase', 'accepted_tokens_total'),
        drafted: sum('increase', 'draft_tokens_total'),
      },
    },
    kind_acceptance_quantile: {
      unit: 'percentunit',
      help: 'Acceptance rate of requests, by kind and quantile: each request counts once.',
      label: 'quantile',
      by: { [promql.number(at)]: quantile(at) for at in [0.1, 0.5, 0.9] },
    },
  }
