// Alertmanager's side of the mixin, from its _config.
{
  local config = $._config,
  local own = config.alertmanager,
  local matchers = import 'matchers.libsonnet',
  local routing = (import 'routing.libsonnet')(config),
  local inhibition = (import 'inhibition.libsonnet')(config),
  local receivers = (import 'receivers.libsonnet')(config),

  local texts(list) = [matchers.text(m) for m in list],
  local route(node) = node {
    [if 'matchers' in node then 'matchers']: texts(node.matchers),
    [if 'routes' in node then 'routes']: [route(child) for child in node.routes],
  },

  // Append each list to the list of the same name in your configuration.
  local fragment = {
    route: { routes: [route(routing.root)] },
    inhibit_rules: [
      { source_matchers: texts(rule.source), target_matchers: texts(rule.target), equal: rule.equal }
      for rule in inhibition
    ],
    time_intervals: [{ name: routing.business_hours, time_intervals: [own.business_hours] }],
    receivers: [
      receivers.receiver(routing.chat, own.chat),
      receivers.receiver(routing.pager, own.pager),
      receivers.receiver(routing.nobody, []),
    ],
    templates: own.templates,
  },

  // The receiver of all other alerts. In the example it tells nobody.
  local rest = 'everything-else',

  specdecAlertmanager+:: {
    fragment: fragment,
    example: fragment {
      route+: { receiver: rest },
      receivers+: [{ name: rest }],
    },
    object: (import 'operator.libsonnet')(config, routing, inhibition, receivers.texts),
  },
}
