"""What is known of one predictor: snapshots and events of its log in; figures and a status out.

:mod:`record` holds it, :mod:`observing` alone changes it; the others compute what it says.
"""
