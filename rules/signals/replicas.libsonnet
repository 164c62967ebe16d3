// How the replicas of a service draft, each against the others.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;

  {
    replica_drafts: {
      record: name('replica_drafts', 'increase', long),
      unit: 'short',
      help: 'Drafts by replica.',
      expr: source.replicaCounter('increase', 'drafts', long),
    },
    // Not recorded. The replicas of a service share its requests, so they have about as many drafts per request as it.
    replica_effective_drafts: {
      unit: 'short',
      help: 'How many independent drafts the drafts of a replica are worth.',
      expr: '%(drafts)s * %(on)s group_left () (%(effective)s / %(sample)s)' % {
        drafts: signals.replica_drafts.record,
        on: on,
        effective: signals.effective_drafts.record,
        sample: signals.sample.record,
      },
    },
    replica_acceptance: {
      record: name('replica_acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Acceptance rate by replica. Compare the replicas; do not average them. Absent with adaptive verification.',
      expr: signals.whollyVerified('%(accepted)s\n/\n(%(drafted)s > 0)' % {
        accepted: source.replicaCounter('increase', 'accepted_tokens', long),
        drafted: source.replicaCounter('increase', 'draft_tokens', long),
      }),
    },
    // Not recorded: this and the next three. Each replica is held against all others together, so two are enough.
    others_drafts: {
      unit: 'short',
      help: 'Drafts of the other replicas of the service.',
      expr: '(sum by (%(labels)s) (%(drafts)s) - %(on)s group_right () %(drafts)s) > 0' % {
        labels: promql.list(level),
        drafts: signals.replica_drafts.record,
        on: on,
      },
    },
    others_acceptance: {
      unit: 'percentunit',
      help: 'Acceptance rate of the other replicas of the service, each weighted by its drafts.',
      expr: |||
        (sum by (%(labels)s) (%(weighted)s) - %(on)s group_right () (%(weighted)s))
        /
        (%(drafts)s)
      ||| % {
        labels: promql.list(level),
        weighted: signals.replica_acceptance.record + ' * ' + signals.replica_drafts.record,
        on: on,
        drafts: signals.others_drafts.expr,
      },
    },
    // The error of a share is at most sqrt(1/4 / n).
    others_margin: {
      help: 'Chance may put the acceptance of a replica this far below that of the others.',
      expr: |||
        %(z)s * sqrt(
          (1 / %(own)s + 1 / (%(others)s))
          * %(on)s group_left ()
          (%(sample)s / %(effective)s)
        )
      ||| % {
        z: number(config.alert_z_score / 2),
        own: signals.replica_drafts.record,
        others: signals.others_drafts.expr,
        on: on,
        sample: signals.sample.record,
        effective: signals.effective_drafts.record,
      },
    },
    // The rate by draft token falls with k by itself. Absent nearly always.
    replica_shorter: {
      record: name('replica', 'shorter', long),
      unit: 'short',
      help: 'Accepted tokens per draft by replica, where they are a tenth fewer than those of the other replicas, and it is there now.',
      expr: |||
        %(accepted)s / %(drafts)s
        < 0.9 *
        (sum by (%(labels)s) (%(accepted)s) - %(on)s group_right () %(accepted)s)
        / (%(others)s)
        and on (%(replica)s)
        %(there)s
      ||| % {
        accepted: source.replicaCounter('increase', 'accepted_tokens', long),
        drafts: signals.replica_drafts.record,
        labels: promql.list(level),
        on: on,
        others: signals.others_drafts.expr,
        replica: promql.list(level + config.replica_labels),
        there: source.engines,
      },
    },
    replica_generation_tokens: {
      unit: 'suffix:/s',
      help: 'Tokens generated per second by replica.',
      expr: source.replicaCounter('rate', 'generation_tokens', long),
    },
  }
