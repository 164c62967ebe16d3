"""Which source the served counts of drafts come from: the predictor's metrics, or its log where they have none.

All counts of an engine come from one source. Once its metrics have counted drafts, only they do, and a failed fetch
leaves a gap. Before 0.8.5 and on V0 engines they never do. If the log was served before, the metrics go on from its
counts: nothing counts twice, and what happened before the exporter looked is no jump.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from specdec_exporter import bounds
from specdec_exporter.predictor.log.totals import EngineLogTotals
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.figures import counts_of, logged_counts_of

Drafted = dict[tuple[str, str], Counts]  # by model and engine


class DraftSources:
    """The sources of one predictor's engines."""

    def __init__(self) -> None:
        self._in_metrics: set[str] = set()  # engines whose metrics have counted drafts
        self._unserved: Drafted = {}  # of the metrics' counts; negative where the log had more

    def are_metrics(self, engine: str) -> bool:
        """Whether the metrics of this engine have counted drafts."""
        return engine in self._in_metrics

    def have_metrics(self) -> bool:
        """Whether the metrics of any engine have counted drafts."""
        return bool(self._in_metrics)

    def take(self, engines: Iterable[EngineSnapshot], logged: Drafted, *, restarted: bool) -> None:
        """Take in an answer; ``logged`` was served of the log until now. ``restarted``: all counts begin anew."""
        if restarted:
            self._unserved.clear()
        counting = [engine for engine in engines if None not in (engine.drafts, engine.accepted_tokens)]
        for engine in counting:
            key = engine.model_name, engine.engine
            if engine.engine not in self._in_metrics and key in logged:
                self._unserved[key] = counts_of(engine) - logged[key]
        # Names may change with every answer.
        known = self._in_metrics if len(self._in_metrics) <= bounds.ENGINES else set()
        self._in_metrics = known | {engine.engine for engine in counting}

    def served(self, engine: EngineSnapshot) -> Counts:
        """Return what to serve of an engine by its metrics."""
        counts, unserved = counts_of(engine), self._unserved.get((engine.model_name, engine.engine))
        return counts if unserved is None else counts - unserved


def drafts_of_log(totals: EngineLogTotals) -> Counts:
    """Return the counts of drafts in a log: without drafts or positions where its lines do not tell them."""
    counts = logged_counts_of(totals)
    if counts.draft_tokens and not counts.drafts:  # 0.8.3 and 0.8.4
        counts = msgspec.structs.replace(counts, drafts=None)
    if sum(counts.accepted_per_position) != counts.accepted_tokens:  # a line had no list
        counts = msgspec.structs.replace(counts, accepted_per_position=())
    return counts
