"""The only place that knows how vLLM spells things: bytes in, :mod:`snapshot` and :mod:`events` out."""
