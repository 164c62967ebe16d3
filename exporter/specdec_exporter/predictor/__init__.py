"""The only place that knows how vLLM spells things: bytes in, snapshots and events out.

Each folder says what other rooms may use; :mod:`versions` and :mod:`responses` are public.
"""
