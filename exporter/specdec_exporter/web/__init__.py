"""HTTP: endpoints, negotiation, authentication, TLS and the status page. It knows no predictor."""
