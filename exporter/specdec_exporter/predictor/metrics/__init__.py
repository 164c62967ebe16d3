"""A response of the predictor's ``/metrics`` -> :class:`snapshot.Snapshot`. Use :mod:`fetch`,
:mod:`snapshot` and :mod:`processes`.
"""
