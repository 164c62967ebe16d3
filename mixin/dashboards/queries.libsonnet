// The pack's signals, narrowed to the services that a dashboard's variables select. A panel names a signal and gets its
// expression, unit and definition. No dashboard spells a query.
local promql = import '../rules/promql.libsonnet';
local signalsOf = import '../rules/signals.libsonnet';

function(config)
  // The signals are rendered once, for a service name that does not exist. Dashboards replace it by their own matcher.
  local placeholder = '="PLACEHOLDER"';
  local raw_service_label = if config.source == 'vllm' then config.vllm_service_label else 'inference_service';
  local where(labels, service_label='inference_service') = std.join(', ', [
    if label == 'inference_service' then service_label + placeholder else '%(label)s=~"$%(label)s"' % { label: label }
    for label in labels
  ]);
  local both(one, other) = std.join(', ', std.filter(function(matcher) matcher != '', [one, other]));
  local without_model = [label for label in config.level_labels if label != 'model_name'];
  local place = [label for label in without_model if label != 'inference_service'];

  local level = where(config.level_labels);
  local service = where(without_model);
  local signals = signalsOf(
    config { selector: both(where(config.level_labels, raw_service_label), super.selector) },
    {
      target: both(where(without_model, raw_service_label), config.selector),
      place: both(where(place), config.selector),
      alerts: where(without_model),
    },
  );
  local plain = signals + signals.views;
  local records = std.set([plain[name].record for name in std.objectFields(plain) if 'record' in plain[name]]);
  assert std.all([
    !std.startsWith(other, record) || other == record
    for record in records
    for other in records
  ]) : 'the name of a record is the beginning of another';

  // Every record in the text also gets the matchers of the level, before its own. Replicas that cannot be read have no model.
  local matchers(record) = if record == plain.replica_up.record then service else level;
  local narrowed(text) =
    std.strReplace(
      std.foldl(
        function(text, record) std.strReplace(text, record, record + '{' + matchers(record) + '}'),
        records,
        text
      ),
      '}{',
      ', '
    );

  local labelled(labels) =
    promql.braces(['%(label)s="%(value)s"' % { label: label, value: labels[label] } for label in std.objectFields(labels)]);
  local expression(name, labels) =
    local signal = plain[name];
    if 'record' in signal then signal.record + labelled(labels)
    else if 'by' in signal then
      if signal.label in labels then signal.by[labels[signal.label]]
      else std.join('\nor\n', [promql.withLabel(signal.by[value], signal.label, value) for value in std.objectFields(signal.by)])
    else if 'by_sli' in signal && 'sli' in labels then
      local own = signal.by_sli[labels.sli];
      if std.isObject(own) then own[labels.quantile] else own
    else signal.expr;

  // `service`: the matcher of inference_service, for example '="$inference_service"'.
  function(service) {
    signal(name):: plain[name],
    record(name):: plain[name].record,
    // The expression of a signal, or of one of its parts: an SLI, a quantile, or another label that splits it. Without that
    // label, it has all parts.
    expr(name, labels={}):: std.strReplace(narrowed(expression(name, labels)), placeholder, service),
    // The values of the label that splits a signal.
    parts(name):: std.objectFields(plain[name].by),
  }
