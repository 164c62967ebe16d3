// How to scrape a fleet: which shard takes a target, and which of its series are worth a place in storage. docs/scale.md tells of
// both. Names are read from the rules and dashboards as they are rendered, so they follow every change.

local letters = std.set(std.stringChars('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:'));
local isOfName(character) = std.setMember(character, letters);

// The end of the name that the text begins with.
local rest(text, n=0) = if n < std.length(text) && isOfName(text[n]) then rest(text, n + 1) else text[:n];

// The names in a text that begin so. Within another name it is no beginning.
local namesFrom(start, text) =
  local parts = std.split(text, start);
  std.set([
    start + rest(parts[i][:200])
    for i in std.range(1, std.length(parts) - 1)
    if parts[i - 1] == '' || !isOfName(parts[i - 1][std.length(parts[i - 1]) - 1])
  ]);

// The patterns by which a text of JSON selects names: vLLM's have several spellings.
local patternsIn(text) =
  local matcher = '__name__=~\\"';
  std.set([std.split(part, '\\"')[0] for part in std.split(text, matcher)[1:]]);

{
  local config = $._config,
  local rules(mixin) = mixin.prometheusRules.groups + mixin.prometheusAlerts.groups,
  local json(value) = std.manifestJsonMinified(value),
  local oneOf(names) = std.join('|', names),

  // What all rules, the texts of alerts, and dashboards ask for of what is scraped.
  local read = json([rules($ { _config+:: { layer: 'all' } }), $.grafanaDashboards]),
  local scraped = namesFrom('specdec_', read) + (
    if config.source == 'exporter' then []
    else if config.vllm_prefix == '' then patternsIn(read)
    else patternsIn(read) + namesFrom(config.vllm_prefix, read)
  ),
  // What the global layer asks for of what the shards have recorded.
  local recorded = namesFrom('inference_service:specdec_', json(rules($ { _config+:: { layer: 'global' } }))),

  // A service and its live control have one hash, and all replicas of both: figures of a service are sums over its replicas, and
  // a control apart from its service is no baseline. Only a service with all its replicas can tell one bad replica from a bad
  // service.
  local service = (import 'sources.libsonnet')(config).service,
  local label = if config.source == 'vllm' then config.vllm_service_label else 'inference_service',
  local hashed = [if each == 'inference_service' then '__tmp_service' else each for each in service],
  local copied = { source_labels: [label], target_label: '__tmp_service' },
  local of_the_service = [
    copied,
    copied { regex: config.control_service_regex, replacement: '$1' },
  ],
  local shard(number, of) = of_the_service + [
    { source_labels: hashed, modulus: of, target_label: '__tmp_hash', action: 'hashmod' },
    { source_labels: ['__tmp_hash'], regex: '%d' % number, action: 'keep' },
  ],
  local kept = { source_labels: ['__name__'], regex: oneOf(scraped), action: 'keep' },

  local camel(rule) = { [std.get({ source_labels: 'sourceLabels', target_label: 'targetLabel' }, key, key)]: rule[key] for key in std.objectFields(rule) },

  // A target as discovery finds it, with the labels of a service.
  local target = { [each]: std.get({ cluster: 'eu-1', namespace: 'prod' }, each, 'chat') for each in service if each != 'inference_service' }
                 { [label]: 'chat' },
  local address = 'chat-0.example.com:10409',
  local job = 'specdec-exporter',

  // Alloy's language, in the form that `alloy fmt` gives it.
  local alloy(value) =
    if std.isArray(value) then '[%s]' % std.join(', ', [alloy(each) for each in value])
    else if std.isString(value) then std.escapeStringJson(value)
    else std.toString(value),
  local block(name, fields, inner=[]) =
    local keys = std.objectFields(fields);
    local width = std.foldl(std.max, std.map(std.length, keys), 0);
    local padded(key) = key + std.repeat(' ', width - std.length(key));
    local attributes = std.join('\n', [padded(key) + ' = ' + fields[key] for key in keys]);
    local parts = std.filter(function(part) part != '', [attributes] + inner);
    local lines = std.split(std.join('\n\n', parts), '\n');
    name + ' {\n' + std.join('', [if line == '' then '\n' else '\t' + line + '\n' for line in lines]) + '}',
  local alloyRules(rules) = [block('rule', { [key]: alloy(rule[key]) for key in std.objectFields(rule) }) for rule in rules],

  specdecScraping+:: {
    // For Prometheus, and as it is for vmagent.
    prometheus: {
      scrape_configs: [{
        job_name: job,
        scrape_interval: '30s',
        static_configs: [{ targets: [address], labels: target }],
        relabel_configs: shard(0, 2),
        metric_relabel_configs: [kept],
      }],
    },

    alloy: std.join('\n\n', [
      block(
        'discovery.relabel "specdec"',
        { targets: '[{%s}]' % std.join(', ', [
          key + ' = ' + std.escapeStringJson(target[key])
          for key in std.objectFields(target)
        ] + ['__address__ = ' + std.escapeStringJson(address)]) },
        alloyRules(shard(0, 2))
      ),
      block('prometheus.scrape "specdec"', {
        targets: 'discovery.relabel.specdec.output',
        job_name: alloy(job),
        scrape_interval: alloy('30s'),
        forward_to: '[prometheus.relabel.specdec.receiver]',
      }),
      block(
        'prometheus.relabel "specdec"',
        { forward_to: '[prometheus.remote_write.storage.receiver]' },
        alloyRules([kept])
      ),
      block('prometheus.remote_write "storage"', {}, [block('endpoint', { url: alloy('http://storage.example.com/api/v1/write') })]),
    ]) + '\n',

    // Of a PodMonitor. The operator takes __tmp_hash for the address of the target, if there is one, and shards by it.
    podMonitor: {
      relabelings: [camel(rule) for rule in of_the_service + [{ source_labels: hashed, target_label: '__tmp_hash' }]],
      metricRelabelings: [camel(kept)],
    },

    // What a shard sends to the global layer.
    remoteWrite: {
      remote_write: [{
        url: 'http://global.example.com/api/v1/write',
        write_relabel_configs: [{ source_labels: ['__name__'], regex: oneOf(recorded + ['ALERTS']), action: 'keep' }],
      }],
    },
  },
}
