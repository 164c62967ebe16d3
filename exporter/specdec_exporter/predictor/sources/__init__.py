"""Where a log's bytes come from: files that rotate, stdin, the Kubernetes API, or files read once.

Use the followers (:mod:`tail`, :mod:`stdin`, :mod:`kubelog`) and :mod:`stream`; the rest serves them.
"""
