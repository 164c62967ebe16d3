// All alerts, in the order of the questions that a person on call asks: Is the service up? Does it stay up? Does it draft? Are
// the drafts accepted? Are the replicas alike? Is it slow? Does the load fit? Can the pack be believed?
function(config, signals)
  local alert = (import 'alert.libsonnet')(config, signals);
  local fleet = (import 'fleet.libsonnet')(config, signals, alert);
  // The global layer has the records of all shards and no raw series: it tells of many services and watches itself.
  local everywhere = ['SpecDecodeManyServices', 'SpecDecodeRulesLagging'];
  local here(rule) = {
    all: true,
    shard: rule.alert != 'SpecDecodeManyServices',
    global: std.member(everywhere, rule.alert),
  }[config.layer];
  local group(name, interval_seconds, rules) = {
    name: 'specdec-' + name,
    interval_seconds:: interval_seconds,
    rules: [alert.new(rule) for rule in rules if here(rule)],
  };
  local now = config.evaluation_interval_seconds;
  local slow = config.slow_interval_seconds;
  std.filter(function(group) group.rules != [], [
    group('alerts-presence', now, [fleet.down] + (import 'presence.libsonnet')(config, signals, alert)),
    group('alerts-restarts', now, (import 'restarts.libsonnet')(config, signals, alert)),
    group('alerts-drafting', slow, (import 'drafting.libsonnet')(config, signals, alert)),
    group('alerts-acceptance', now, (import 'acceptance.libsonnet')(config, signals, alert)),
    group('alerts-replicas', slow, (import 'replicas.libsonnet')(config, signals, alert)),
    // Harm silences P99Regression, so both are evaluated at the same time: a bad rollout is one page.
    group(
      'alerts-latency',
      2 * now,
      [fleet.slower]
      + (import 'benefit.libsonnet')(config, signals, alert)
      + (import 'latency.libsonnet')(config, signals, alert)
    ),
    group('alerts-load', slow, (import 'load.libsonnet')(config, signals, alert)),
    group('alerts-pack', slow, (import 'pack.libsonnet')(config, signals, alert)),
  ])
