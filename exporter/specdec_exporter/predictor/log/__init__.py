"""A log's bytes -> events.

Use :class:`scan.LogScanner` and the types of :mod:`events` and :mod:`counters`; the rest serves them.
"""
