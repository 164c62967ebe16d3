"""What lives as long as ``serve`` runs.

Bytes arrive through :mod:`runtime`, :mod:`state` changes, :mod:`collector` renders.
"""
