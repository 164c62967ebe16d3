"""What lives as long as ``serve`` runs: :mod:`predictorruntime` reads, :mod:`collector` renders.

The commands start :mod:`serve`, and the docs use :mod:`families`. The room ``state`` knows a predictor.
"""
