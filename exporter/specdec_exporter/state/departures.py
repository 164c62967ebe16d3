"""Which engines worked and then left the predictor's metrics."""

from __future__ import annotations

from specdec_exporter import bounds
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot


class Departures:
    """Engines by name, whatever models they serve: served models and adapters come and go."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._worked: dict[str, float] = {}  # the longest idle first -> when it last did, monotonic

    def worked(self, engine: str, now: float) -> None:
        """Take note that an engine generated or drafted."""
        self._worked.pop(engine, None)
        self._worked[engine] = now
        if len(self._worked) > bounds.ENGINES:
            del self._worked[next(iter(self._worked))]

    def forget(self) -> None:
        """Forget all engines: another process answers."""
        self._worked.clear()

    def left(self, shown: tuple[str, ...], now: float) -> tuple[str, ...]:
        """Return the engines that worked lately and are not among those ``shown``."""
        return tuple(engine for engine, at in self._worked.items() if now - at <= self._seconds and engine not in shown)


def has_worked(before: EngineSnapshot, now: EngineSnapshot) -> bool:
    """Whether an engine generated or drafted between two answers of one process."""
    pairs = ((before.generation_tokens, now.generation_tokens), (before.draft_tokens, now.draft_tokens))
    return any(one is not None and other is not None and other > one for one, other in pairs)
