"""Every family of ours that is served, once: ``/metrics`` and the tables of ``docs/metrics.md`` come from here.

No name is one of the predictor's own, so that a proxy in the pod may concatenate both expositions.
"""
