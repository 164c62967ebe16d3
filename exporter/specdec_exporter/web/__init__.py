"""HTTP: endpoints, negotiation, authentication, TLS and the status page. Nothing here knows a predictor.

``serve`` uses :mod:`server`, :mod:`webconfig` and :mod:`basicauth`; the other modules serve them.
"""
