"""HTTP: endpoints, a bound on requests, authentication, TLS and the status page. Nothing here knows a predictor."""
