"""Where a log's bytes come from: files that rotate, stdin, the Kubernetes API, or files read once.

Use the followers (:mod:`follow`, :mod:`stdin`, :mod:`kubelog`) and :mod:`inputs`; the rest serves them.
"""
