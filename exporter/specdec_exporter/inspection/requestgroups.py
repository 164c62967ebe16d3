"""Acceptance per request, all requests together and by kind of request. Pure, memory of fixed size.

Long answers dominate the predictor's counters; here each request counts once. Conditional rates are exact here even if
drafts are shorter than k, where the record of each step has the length of its draft (``detailed``).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from specdec_exporter import bounds
from specdec_exporter.inspection.spread import SpreadCounter
from specdec_exporter.predictor.responses import ResponseSpeculation
from specdec_exporter.speculation.acceptance import (
    acceptance_ratio,
    mean_acceptance_length,
    mean_draft_length,
    position_ratios,
    ratio,
)
from specdec_exporter.speculation.chance import Z
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.verdict import Finding

PERCENTILES = (10, 25, 50, 75, 90)
UNKNOWN, OTHER = "unknown", "other"
_LONG_PROMPTS = (
    "A comparison tells whether they lose: record a baseline without speculation and one with it, of such prompts "
    "only. If they lose, serve them without speculation."
)
_STRUCTURED = {True: "yes", False: "no", None: UNKNOWN}


class ExactCurve(msgspec.Struct, frozen=True, kw_only=True):
    """``conditional[i]``: accepted at i / offered at i after all before it were accepted; ``None`` if never offered.

    ``requests`` counts the requests in it: those with details for each step, and those without short drafts.
    """

    requests: int
    offered: tuple[int, ...]
    conditional: tuple[float | None, ...]


class RequestGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Speculation's figures over some requests.

    ``acceptance_ratio`` counts tokens, as the predictor does. ``time_per_output_token_seconds`` is the mean over the
    requests whose responses have times. ``mean_given_length``: tokens per draft without those past the end of an
    answer, which vLLM counts (vllm#56101); ``None`` where a response does not tell its tokens. ``mean_request_ratio``,
    ``percentiles`` and ``histogram`` (ten equal parts of 0..1) count each of the ``drafted_requests`` once;
    ``percentiles_by_draft`` counts each draft once.
    """

    requests: int
    drafted_requests: int
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    acceptance_ratio: float | None
    mean_acceptance_length: float | None
    mean_given_length: float | None
    mean_draft_length: float | None
    time_per_output_token_seconds: float | None
    mean_request_ratio: float | None
    percentiles: dict[str, float]  # "p50": 0.71
    percentiles_by_draft: dict[str, float]
    histogram: tuple[int, ...]
    per_position: tuple[float, ...]
    exact: ExactCurve | None


class KindGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one kind, see :class:`RequestGroups`."""

    by: str
    value: str
    group: RequestGroup


class RequestCounter:
    """A :class:`RequestGroup` while it is being summed. Its memory does not grow."""

    def __init__(self) -> None:
        self.requests = self.drafts = self.draft_tokens = self.accepted_tokens = 0
        self._accepted_per_position: list[int] = []  # at most bounds.POSITIONS
        self._spread = SpreadCounter()
        self._ratio_sum = self._ratio_squares = 0.0
        self._given: int | None = 0  # tokens of steps that drafted, within the answers
        self._timed = [0.0, 0.0]  # requests, and the sum of their times per output token
        self._exact_requests = 0
        self._offered: list[int] = []  # offered at i after all before it were accepted
        self._accepted: list[int] = []  # accepted among these

    def add(self, record: ResponseSpeculation) -> None:
        """Count one request."""
        self.requests += 1
        self.drafts += record.drafts
        self.draft_tokens += record.draft_tokens
        self.accepted_tokens += record.accepted_tokens
        if self._given is not None:
            counted, given = record.accepted_tokens + record.drafts, record.given_tokens
            self._given = None if given is None else self._given + min(counted, given)
        if record.time_per_output_token_seconds is not None:
            self._timed[0] += 1.0
            self._timed[1] += record.time_per_output_token_seconds
        if (accepted := record.acceptance_ratio) is None:
            return
        self._spread.add(accepted, record.drafts)
        self._ratio_sum += accepted
        self._ratio_squares += accepted * accepted
        k = min(record.num_speculative_tokens, bounds.POSITIONS)
        for counts in (self._accepted_per_position, self._offered, self._accepted):
            counts.extend([0] * (k - len(counts)))
        accepted_more = record.drafts
        full = record.draft_tokens == record.drafts * record.num_speculative_tokens
        for position, steps in enumerate(record.steps_by_accepted[:k]):
            before, accepted_more = accepted_more, accepted_more - steps
            self._accepted_per_position[position] += accepted_more
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

    def mean_ratio(self, min_requests: float) -> tuple[float, float] | None:
        """Return the mean acceptance of the requests and its squared standard error; ``None`` with too few."""
        requests = sum(self._spread.parts)
        if requests < max(min_requests, 2.0):
            return None
        mean = self._ratio_sum / requests
        return mean, max(self._ratio_squares / requests - mean * mean, 0.0) / (requests - 1.0)

    def close(self) -> RequestGroup:
        """Return the figures of the requests so far."""
        accepted = acceptance_ratio(self.accepted_tokens, self.draft_tokens)
        draft_length = mean_draft_length(self.draft_tokens, self.drafts)
        per_position = position_ratios(tuple(self._accepted_per_position), self.drafts)
        spread = self._spread.spread(PERCENTILES)
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
            requests=self.requests,
            drafted_requests=spread.parts,
            drafts=self.drafts,
            draft_tokens=self.draft_tokens,
            accepted_tokens=self.accepted_tokens,
            acceptance_ratio=accepted,
            mean_acceptance_length=mean_acceptance_length(self.accepted_tokens, self.drafts),
            mean_given_length=None if self._given is None else ratio(self._given, self.drafts),
            mean_draft_length=draft_length,
            time_per_output_token_seconds=ratio(self._timed[1], self._timed[0]),
            mean_request_ratio=self._ratio_sum / spread.parts if spread.parts else None,
            percentiles=spread.by_part,
            percentiles_by_draft=spread.by_draft,
            histogram=_tenths(self._spread.parts),
            per_position=per_position,
            exact=exact,
        )


def _tenths(requests: Sequence[int]) -> tuple[int, ...]:
    """Sum the requests at each thousandth of 0..1 by tenths; the last tenth includes 1."""
    edges = (*range(0, 1000, 100), len(requests))
    return tuple(sum(requests[start:end]) for start, end in pairwise(edges))


class RequestGroups:
    """Requests by kind. Each request is in one group of each grouping, so the groups of a grouping sum to all requests.

    Groupings are not crossed, because the number of groups would be the product of theirs. ``with_header``: whether an
    operator named a header to group by.
    """

    def __init__(self, *, with_header: bool = False) -> None:
        policy = load_policy()
        self._bands, self._lengths = policy.temperature_bands, policy.prompt_length_bands
        self._names, self._length_names = band_names(self._bands), length_names(self._lengths)
        self._by: dict[str, dict[str, RequestCounter]] = {
            "adapter": {},
            "temperature": {name: RequestCounter() for name in (*self._names, UNKNOWN)},
            "prompt_length": {name: RequestCounter() for name in (*self._length_names, UNKNOWN)},
            "structured": {name: RequestCounter() for name in _STRUCTURED.values()},
            **({"header": {}} if with_header else {}),
        }

    def add(self, record: ResponseSpeculation) -> None:
        """Count one request in each grouping."""
        for by, groups in self._by.items():
            name = self._group(by, record)
            if name not in groups and len(groups) >= bounds.REQUEST_GROUPS:
                name = OTHER
            groups.setdefault(name, RequestCounter()).add(record)

    def closed(self) -> tuple[KindGroup, ...]:
        """Return the figures of the groups that have requests."""
        return tuple(
            KindGroup(by=by, value=name, group=counter.close())
            for by, groups in self._by.items()
            for name, counter in groups.items()
            if counter.requests
        )

    def findings(self) -> tuple[Finding, ...]:
        """Return whether the longest prompts accept less than the shortest, of the bands with enough requests."""
        counters, policy = self._by["prompt_length"], load_policy()
        known = {
            name: mean
            for name in self._length_names
            if (mean := counters[name].mean_ratio(policy.min_effective_drafts)) is not None
        }
        if len(known) < 2:
            return ()
        (short, (usual, one)), *_, (long, (less, other)) = known.items()
        fall = usual - less
        if fall < policy.acceptance_drop_min or fall <= Z * math.sqrt(one + other):
            return ()
        words = (
            f"long prompts gain less: requests with {long} prompt tokens accept {less:.0%} of their draft tokens on "
            f"average, those with {short} accept {usual:.0%}"
        )
        return (Finding("WARN", "Prompt length", words, _LONG_PROMPTS),)

    def _group(self, by: str, record: ResponseSpeculation) -> str:
        if by == "structured":
            return _STRUCTURED[record.structured]
        if by == "temperature":
            known = record.temperature
            return UNKNOWN if known is None else self._names[bisect_left(self._bands, known)]
        if by == "prompt_length":
            tokens = record.prompt_tokens
            return UNKNOWN if tokens is None else self._length_names[bisect_left(self._lengths, tokens)]
        return (record.model if by == "adapter" else record.header) or UNKNOWN


def band_names(upper: Sequence[float]) -> list[str]:
    """Return the names of the temperature bands: ``0``, ``(0,0.5]`` ... ``>1``. The lowest temperature is 0."""
    return [f"{upper[0]:g}", *(f"({low:g},{high:g}]" for low, high in pairwise(upper)), f">{upper[-1]:g}"]


def length_names(longest: Sequence[int]) -> list[str]:
    """Return the names of the bands of prompt lengths: ``1 to 256``, ``257 to 1,024`` ... ``above 65,536``."""
    return [*(f"{low + 1:,} to {high:,}" for low, high in pairwise((0, *longest))), f"above {longest[-1]:,}"]
