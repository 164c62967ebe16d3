"""What lives as long as ``serve`` runs: :mod:`runtime` reads, :mod:`state` changes, :mod:`collector` renders.

The commands start :mod:`serve`; ``check`` also uses :mod:`state`, and the docs use :mod:`families`.
"""
