// The pack's signals, narrowed to what a dashboard's variables select. A panel names a signal and gets its expression, its
// unit and its definition; no dashboard spells a query.
local promql = import '../rules/promql.libsonnet';
local signalsOf = import '../rules/signals.libsonnet';

function(config)
  // Evaluated once, for a name that no service has; dashboards put their own matcher in its place.
  local placeholder = '="PLACEHOLDER"';
  local raw_service_label = if config.source == 'vllm' then config.vllm_service_label else 'inference_service';
  local where(labels, service_label='inference_service') = std.join(', ', [
    if label == 'inference_service' then service_label + placeholder else '%s=~"$%s"' % [label, label]
    for label in labels
  ]);
  local both(one, other) = std.join(', ', std.filter(function(matcher) matcher != '', [one, other]));
  local without_model = [label for label in config.level_labels if label != 'model_name'];
  local place = [label for label in without_model if label != 'inference_service'];

  local level = where(config.level_labels);
  local signals = signalsOf(
    config { selector: both(where(config.level_labels, raw_service_label), super.selector) },
    {
      target: both(where(without_model, raw_service_label), config.selector),
      place: both(where(place), config.selector),
      alerts: where(without_model),
    },
  );
  local plain = signals + signals.views;
  local records = [plain[name].record for name in std.objectFields(plain) if 'record' in plain[name]];
  assert std.all([
    !std.startsWith(other, record) || other == record
    for record in records
    for other in records
  ]) : 'the name of a record is the beginning of another';

  // A record is read with the level's matchers, too, before those that it is read with already. All texts at once, as JSON:
  // one by one they would take ten times as long.
  local merged(text) = std.strReplace(text, '}{', ', ');
  local in_json(text) = std.strReplace(text, '"', '\\"');
  local all = std.parseJson(merged(std.foldl(
    function(text, record) std.strReplace(text, record, record + in_json('{' + level + '}')),
    std.set(records),
    std.toString(plain)
  )));

  local labelled(labels) =
    promql.braces(['%s="%s"' % [label, labels[label]] for label in std.objectFields(labels)]);
  local expression(name, labels) =
    local signal = all[name];
    if 'record' in signal then merged(signal.record + labelled(labels))
    else if 'by' in signal then signal.by[labels[signal.label]]
    else if 'by_sli' in signal && 'sli' in labels then
      local own = signal.by_sli[labels.sli];
      if std.isObject(own) then own[labels.quantile] else own
    else signal.expr;

  // `service`: the matcher of inference_service, for example '="$inference_service"'.
  function(service) {
    signal(name):: all[name],
    record(name):: plain[name].record,
    // Of the signal of this name, or of one of its parts: the SLI, quantile or other label that it is split by.
    expr(name, labels={}):: std.strReplace(expression(name, labels), placeholder, service),
    // The values that a signal is split by.
    parts(name):: std.objectFields(all[name].by),
  }
