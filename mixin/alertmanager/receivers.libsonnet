// What each integration shows. The texts come from the pack's templates, addresses and secrets from the configuration.
function(config)
  local own = config.alertmanager;
  local template(name) = '{{ template "specdec.%s" . }}' % name;
  local secret(key) = own.secrets_directory + '/' + key;

  {
    // The texts, by Alertmanager's field names.
    texts:: {
      slack: {
        title: template('title'),
        title_link: template('link'),
        text: template('slack.text'),
        fallback: template('title'),
        color: template('slack.color'),
      },
      email: {
        headers: { Subject: template('title') },
        html: template('email.html'),
        text: template('text'),
      },
      pagerduty: {
        description: template('title'),
        client: 'Alertmanager',
        client_url: template('link'),
        severity: 'critical',
        component: template('where'),
        class: template('names'),
        details: {
          firing: template('text.firing'),
          resolved: template('text.resolved'),
        },
        links: [{ text: 'Runbook', href: template('runbook') }]
               + (if config.grafana_url == '' then [] else [{ text: 'Dashboard', href: template('dashboard') }]),
      },
    },

    integrations:: {
      slack: {
        slack_configs: [$.texts.slack {
          api_url_file: secret('slack-webhook-url'),
          channel: own.slack_channel,
          send_resolved: true,
        }],
      },
      email: {
        email_configs: [$.texts.email + own.email {
          auth_password_file: secret('smtp-password'),
          send_resolved: true,
        }],
      },
      pagerduty: {
        pagerduty_configs: [$.texts.pagerduty {
          routing_key_file: secret('pagerduty-routing-key'),
          send_resolved: true,
        }],
      },
      // Alertmanager's own JSON, with every label and annotation. Templates apply only since 0.32 (README.md).
      webhook: {
        webhook_configs: [{
          url: own.webhook_url,
          http_config: { authorization: { credentials_file: secret('webhook-token') } },
          send_resolved: true,
        }],
      },
    },

    receiver(name, kinds):: { name: name } + std.foldl(function(all, kind) all + $.integrations[kind], kinds, {}),
  }
