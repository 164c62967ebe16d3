"""What is known of one predictor: snapshots and events of its log in; figures, families and a status out.

:mod:`record` holds it, :mod:`observing` alone changes it, :mod:`view` and :mod:`report` read it.
"""
