"""HTTP: endpoints, negotiation, authentication, TLS and the status page. Nothing here knows a predictor."""
