"""Recordings beside each other: what differs beyond chance, and with three or more what to run at which load.

Other rooms call :func:`compare.compare` and :func:`several.compare_several` and read the results; the other modules
serve these two.
"""
