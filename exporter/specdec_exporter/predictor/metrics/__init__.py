"""A response of the predictor's ``/metrics`` -> :class:`snapshot.Snapshot`. Use :mod:`fetch` and :mod:`snapshot`."""
