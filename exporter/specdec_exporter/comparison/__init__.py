"""Two recordings beside each other: what differs beyond chance, and whether they can be compared at all.

Other rooms call :func:`compare.compare` and read its result; the other modules serve it.
"""
