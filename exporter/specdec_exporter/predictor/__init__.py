"""The only place that knows how vLLM spells things: bytes in, snapshots and events out.

Each folder says what other rooms may use; the modules beside the folders are public.
"""
