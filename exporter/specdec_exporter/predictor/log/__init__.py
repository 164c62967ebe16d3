"""A log's bytes -> events.

Use :class:`scan.LogScanner`, what :mod:`start` and :mod:`totals` make of its events, and the types of :mod:`events`,
:mod:`speculator` and :mod:`counters`; the rest serves them.
"""
