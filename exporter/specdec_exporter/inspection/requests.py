"""Acceptance per request: records of single requests in, their distribution out. Pure, memory of fixed size.

Long answers dominate the predictor's counters; here each request counts once. Conditional rates are exact here even if
drafts are shorter than k, because the record of each step has the length of its draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from specdec_exporter.predictor.responses import ResponseSpeculation
from specdec_exporter.speculation.acceptance import (
    acceptance_ratio,
    mean_acceptance_length,
    mean_draft_length,
    position_ratios,
)
from specdec_exporter.speculation.spread import SpreadCounter

PERCENTILES = (10, 25, 50, 75, 90)
# Groups are a tenth apart; one group holds this temperature and all above it, which few requests use.
_HIGHEST_TEMPERATURE = 2.0
_MAX_POSITIONS = 1024  # far above any real k


class ExactCurve(msgspec.Struct, frozen=True, kw_only=True):
    """``conditional[i]``: accepted at i / offered at i after all before it were accepted; ``None`` if never offered.

    ``requests`` counts the requests in it: those with details for each step, and those without short drafts.
    """

    requests: int
    offered: tuple[int, ...]
    conditional: tuple[float | None, ...]


class RequestGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Speculation's figures over some requests.

    ``acceptance_ratio`` counts tokens, as the predictor does. ``mean_request_ratio``, ``percentiles`` and ``histogram``
    (ten equal parts of 0..1) count each of the ``drafted_requests`` once; ``percentiles_by_draft`` counts each draft
    once. The ``chance`` pair is what both would be if all drafts of all requests had the same acceptance.
    """

    requests: int
    drafted_requests: int
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    acceptance_ratio: float | None
    mean_acceptance_length: float | None
    mean_draft_length: float | None
    mean_request_ratio: float | None
    percentiles: dict[str, float]  # "p50": 0.71
    percentiles_by_draft: dict[str, float]
    chance_percentiles: dict[str, float]
    chance_percentiles_by_draft: dict[str, float]
    histogram: tuple[int, ...]
    per_position: tuple[float, ...]
    exact: ExactCurve | None


class TemperatureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The requests at one temperature, rounded to a tenth; ``at_least``: at this temperature or above."""

    temperature: float
    at_least: bool
    group: RequestGroup


class RequestsAnalysis(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="responses"):
    """All responses. ``junk`` counts lines that are no response, ``without_record`` responses without a record."""

    all: RequestGroup
    by_temperature: tuple[TemperatureGroup, ...]
    requests_without_temperature: int
    without_record: int
    junk: int
    junk_reason: str | None  # of the first


class _OpenGroup:
    """A :class:`RequestGroup` while it is being summed."""

    def __init__(self) -> None:
        self._requests = self._drafts = self._draft_tokens = self._accepted_tokens = 0
        self._spread = SpreadCounter()
        self._ratio_sum = 0.0
        self._reached: list[int] = []  # accepted at i, over all drafts
        self._exact_requests = 0
        self._offered: list[int] = []  # offered at i after all before it were accepted
        self._accepted: list[int] = []  # accepted among these

    def add(self, record: ResponseSpeculation) -> None:
        self._requests += 1
        self._drafts += record.drafts
        self._draft_tokens += record.draft_tokens
        self._accepted_tokens += record.accepted_tokens
        if (ratio := record.acceptance_ratio) is None:
            return
        self._spread.add(ratio, record.drafts)
        self._ratio_sum += ratio
        k = min(record.num_speculative_tokens, _MAX_POSITIONS)
        for counts in (self._reached, self._offered, self._accepted):
            counts.extend([0] * (k - len(counts)))
        accepted_more = record.drafts
        full = record.draft_tokens == record.drafts * record.num_speculative_tokens
        for position, steps in enumerate(record.steps_by_accepted[:k]):
            before, accepted_more = accepted_more, accepted_more - steps
            self._reached[position] += accepted_more
            if full:
                self._offered[position] += before
                self._accepted[position] += accepted_more
        if full:
            self._exact_requests += 1
        elif record.steps is not None:
            self._exact_requests += 1
            for accepted, drafted in record.steps:
                for position in range(min(accepted + 1, drafted, k)):
                    self._offered[position] += 1
                    self._accepted[position] += position < accepted

    def close(self) -> RequestGroup:
        ratio = acceptance_ratio(self._accepted_tokens, self._draft_tokens)
        draft_length = mean_draft_length(self._draft_tokens, self._drafts)
        per_position = position_ratios(tuple(self._reached), self._drafts)
        spread = self._spread.spread(PERCENTILES, ratio, per_position, draft_length)
        exact = None
        if self._exact_requests:
            exact = ExactCurve(
                requests=self._exact_requests,
                offered=tuple(self._offered),
                conditional=tuple(
                    accepted / offered if offered else None
                    for accepted, offered in zip(self._accepted, self._offered, strict=True)
                ),
            )
        return RequestGroup(
            requests=self._requests,
            drafted_requests=spread.parts,
            drafts=self._drafts,
            draft_tokens=self._draft_tokens,
            accepted_tokens=self._accepted_tokens,
            acceptance_ratio=ratio,
            mean_acceptance_length=mean_acceptance_length(self._accepted_tokens, self._drafts),
            mean_draft_length=draft_length,
            mean_request_ratio=self._ratio_sum / spread.parts if spread.parts else None,
            percentiles=spread.by_part,
            percentiles_by_draft=spread.by_draft,
            chance_percentiles=spread.chance_by_part,
            chance_percentiles_by_draft=spread.chance_by_draft,
            histogram=_tenths(self._spread.parts),
            per_position=per_position,
            exact=exact,
        )


def _tenths(requests: Sequence[int]) -> tuple[int, ...]:
    """Sum the requests at each thousandth of 0..1 by tenths; the last tenth includes 1."""
    edges = (*range(0, 1000, 100), len(requests))
    return tuple(sum(requests[start:end]) for start, end in pairwise(edges))


class RequestStory:
    """The records of one or several files."""

    def __init__(self) -> None:
        self._all = _OpenGroup()
        self._by_temperature: dict[float, _OpenGroup] = {}
        self._unknown = 0
        self.without_record = 0
        self.junk = 0
        self.junk_reason: str | None = None

    def add(self, record: ResponseSpeculation) -> None:
        """Take in one request."""
        self._all.add(record)
        if record.temperature is None:
            self._unknown += 1
            return
        key = min(round(record.temperature, 1), _HIGHEST_TEMPERATURE)
        group = self._by_temperature.get(key)
        if group is None:
            group = self._by_temperature[key] = _OpenGroup()
        group.add(record)

    def reject(self, reason: str) -> None:
        """Count a line that is not a response."""
        self.junk += 1
        self.junk_reason = self.junk_reason or reason

    def analysis(self) -> RequestsAnalysis:
        """Return what was read so far."""
        return RequestsAnalysis(
            all=self._all.close(),
            by_temperature=tuple(
                TemperatureGroup(temperature=key, at_least=key == _HIGHEST_TEMPERATURE, group=group.close())
                for key, group in sorted(self._by_temperature.items())
            ),
            requests_without_temperature=self._unknown,
            without_record=self.without_record,
            junk=self.junk,
            junk_reason=self.junk_reason,
        )
