"""Baselines: what a predictor did over a span of time, recorded into a file and compared with what runs now.

Other rooms use :mod:`file`, :mod:`reading`, :mod:`writing`, :mod:`remarks`, :mod:`live`, :mod:`prometheus` and
:mod:`pinned`; :mod:`schema`, :mod:`recording` and :mod:`prometheusapi` serve them.
"""
