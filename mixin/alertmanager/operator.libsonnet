// The same as an AlertmanagerConfig, monitoring.coreos.com/v1alpha1: the version that the operator installs and stores
// (v1beta1 needs the conversion webhook). The operator adds a matcher for the object's namespace to the route and to both
// sides of every inhibition. The object has no time zone. Its secrets are keys of a Secret, not files.
function(config, routing, inhibition, texts)
  local own = config.alertmanager;

  local secret(key) = { name: own.object.name + '-alertmanager', key: key };
  local pairs(object) = [{ key: key, value: object[key] } for key in std.objectFields(object)];

  // group_by -> groupBy.
  local camel(name) =
    local words = std.split(name, '_');
    words[0] + std.join('', [std.asciiUpper(word[0]) + word[1:] for word in words[1:]]);
  local renamed(object) = { [camel(key)]: object[key] for key in std.objectFields(object) };

  local route(node) = renamed(node) {
    [if 'routes' in node then 'routes']: [route(child) for child in node.routes],
  };

  local integrations = {
    slack: {
      slackConfigs: [renamed(texts.slack) {
        apiURL: secret('slack-webhook-url'),
        channel: own.slack_channel,
        sendResolved: true,
      }],
    },
    email: {
      emailConfigs: [renamed(texts.email + own.email) {
        headers: pairs(texts.email.headers),
        authPassword: secret('smtp-password'),
        sendResolved: true,
      }],
    },
    pagerduty: {
      pagerdutyConfigs: [
        {
          [if key == 'client_url' then 'clientURL' else key]: texts.pagerduty[key]
          for key in std.objectFields(texts.pagerduty)
          if key != 'links'
        } {
          details: pairs(texts.pagerduty.details),
          pagerDutyLinkConfigs: [{ alt: link.text, href: link.href } for link in texts.pagerduty.links],
          routingKey: secret('pagerduty-routing-key'),
          sendResolved: true,
        },
      ],
    },
    webhook: {
      webhookConfigs: [{
        url: own.webhook_url,
        httpConfig: { authorization: { credentials: secret('webhook-token') } },
        sendResolved: true,
      }],
    },
  };
  local receiver(name, kinds) =
    { name: name } + std.foldl(function(all, kind) all + integrations[kind], kinds, {});

  {
    apiVersion: 'monitoring.coreos.com/v1alpha1',
    kind: 'AlertmanagerConfig',
    metadata: own.object,
    spec: {
      route: route(routing.root),
      receivers: [
        receiver(routing.chat, own.chat),
        receiver(routing.pager, own.pager),
        receiver(routing.nobody, []),
      ],
      inhibitRules: [
        { sourceMatch: rule.source, targetMatch: rule.target, equal: rule.equal }
        for rule in inhibition
      ],
      muteTimeIntervals: [{
        name: routing.business_hours,
        timeIntervals: [{
          times: [{ startTime: span.start_time, endTime: span.end_time } for span in own.business_hours.times],
          weekdays: own.business_hours.weekdays,
        }],
      }],
    },
  }
