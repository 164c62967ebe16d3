"""Totals of a log's spec-decode lines: exact where vLLM prints counts, reconstructed where it prints ratios."""

from __future__ import annotations

import functools
from collections import Counter

from specdec_exporter import bounds
from specdec_exporter.predictor.log.events import AGGREGATED, SpecDecoding
from specdec_exporter.predictor.log.rounding import reconstruct_window

OTHER = "other"  # the sum of the engines beyond the bound


class EngineLogTotals:
    """Totals of one engine. ``drafts`` and ``accepted_per_position`` are reconstructed; the others are exact."""

    def __init__(self) -> None:
        self.windows = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        self.drafts = 0
        self.accepted_per_position: list[int] = []
        self.num_positions = 0  # of the last line that tells k: in its list, or as a V0 engine says
        # Of the lines beside a number of running requests: their draft tokens, and these times the requests.
        self.loaded_tokens = 0
        self.loads = 0
        # Accepted and draft tokens of the last line, if it printed lifetime totals (V0).
        self.lifetime: tuple[int, int] | None = None

    def since_last(self, event: SpecDecoding) -> tuple[int, int] | None:
        """Return the line's accepted and draft tokens; of lifetime totals (V0) the increase since the last line.

        ``None`` for the first lifetime line after a beginning that was not seen.
        """
        accepted, drafted = event.accepted_tokens, event.draft_tokens
        if event.cumulative is not True:
            return accepted, drafted
        before, self.lifetime = self.lifetime, (accepted, drafted)
        if before is None:
            return None
        if accepted >= before[0] and drafted >= before[1]:  # else restarted: all of it is new
            return accepted - before[0], drafted - before[1]
        return accepted, drafted

    def add_load(self, requests_running: int | None, drafted: int) -> None:
        """Add the draft tokens of a line, and how many requests ran.

        None may run at the moment of the line, but a request ran while its tokens were drafted.
        """
        if requests_running is not None:
            self.loaded_tokens += drafted
            self.loads += drafted * max(requests_running, 1)

    def add_positions(self, accepted: list[int]) -> None:
        """Add the accepted tokens of one line by position."""
        missing = len(accepted) - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        for position, count in enumerate(accepted):
            self.accepted_per_position[position] += count


class LogTotals:
    """Sums spec-decode lines per engine, under the engine's name as :func:`engine_label` writes it.

    Beyond ``most_engines``, the lines of new engines are summed as :data:`OTHER`. ``dropped`` counts these lines, and
    the positions that are left out.
    """

    def __init__(self) -> None:
        self.engines: dict[str, EngineLogTotals] = {}
        self.most_engines = bounds.LOG_ENGINES
        self.dropped: Counter[str] = Counter()

    @property
    def num_positions(self) -> int:
        """The most positions that an engine's last line tells; 0 if none does."""
        return max((totals.num_positions for totals in self.engines.values()), default=0)

    @property
    def requests_running(self) -> float | None:
        """Mean number of requests running on the engine that drafted, over draft tokens; ``None`` if not printed.

        Over draft tokens, not over lines: idle lines say nothing of the load at which drafts had to pay.
        """
        loaded = sum(totals.loaded_tokens for totals in self.engines.values())
        return sum(totals.loads for totals in self.engines.values()) / loaded if loaded else None

    def engine(self, label: str) -> EngineLogTotals:
        """Return the totals of an engine; a new one starts at zero."""
        return self.engines.get(label) or self.engines.setdefault(label, EngineLogTotals())

    def predictor_started(self) -> None:
        """Take note of an engine's init line: lifetime totals start from zero."""
        for totals in self.engines.values():
            totals.lifetime = (0, 0)
        if not self.engines:
            self.engine("0").lifetime = (0, 0)

    def add(
        self, event: SpecDecoding, label: str, num_speculative_tokens: int | None = None
    ) -> tuple[int, int, int] | None:
        """Add one line; return the drafts, draft tokens and accepted tokens that it adds, ``None`` if not known.

        ``num_speculative_tokens`` is k from another source, for lines with a mean length but no list (the Rust
        frontend). Lines without a length do not use it: the metrics of 0.8.3 and 0.8.4 count no drafts either. If the
        log's beginning was not seen, the first lifetime line only says where to count from.
        """
        if label not in self.engines and len(self.engines) >= self.most_engines:
            self.dropped["log_engines"] += 1
            label = OTHER
        totals = self.engine(label)
        totals.windows += 1
        k = event.num_speculative_tokens
        totals.num_positions = k or totals.num_positions
        tokens = totals.since_last(event)
        if tokens is None:
            return None
        accepted, drafted = tokens
        totals.add_load(event.requests_running, drafted)
        length = event.mean_acceptance_length
        if length is not None:
            k = k or num_speculative_tokens
            if event.bonus_included is not False and event.cumulative is not True:
                length -= 1.0
        drafts, reached = reconstruct_window(accepted, drafted, event.per_position or (), length, k)
        totals.accepted_tokens += accepted
        totals.draft_tokens += drafted
        totals.drafts += drafts
        if len(reached) > bounds.POSITIONS:
            self.dropped["log_positions"] += len(reached) - bounds.POSITIONS
        totals.add_positions(reached[: bounds.POSITIONS])
        return drafts, drafted, accepted


@functools.lru_cache(maxsize=1024)
def engine_label(printed: str | None, known: tuple[str, ...] = ()) -> str:
    """Return the ``engine`` label for an engine as the log prints it: ``"000"`` -> ``"0"``.

    A line without an engine belongs to the only engine. If the metrics show several (``known``), the line is a sum over
    them, as the Rust frontend prints it.
    """
    if printed is None:
        if len(known) > 1:
            return AGGREGATED
        return known[0] if known else "0"
    return str(int(printed)) if printed.isdecimal() else printed
