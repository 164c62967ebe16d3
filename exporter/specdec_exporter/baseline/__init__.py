"""Baselines: what a predictor did over a span of time, recorded into a file and compared with what runs now.

Other rooms use :mod:`file`, :mod:`reading`, :mod:`remarks`, :mod:`live`, :mod:`prometheus` and :mod:`pinned`;
:mod:`recording` and :mod:`prometheusapi` serve them.
"""
