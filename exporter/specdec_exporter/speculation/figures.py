"""Counts of a span -> the figures that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from specdec_exporter.predictor.log.totals import EngineLogTotals
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from specdec_exporter.speculation import acceptance
from specdec_exporter.speculation.acceptance import Counts

# Why figures are withheld: with adaptive verification, vLLM trims drafts on the GPU and counts all of them as drafted.
PARTLY_VERIFIED: Final = "vLLM verifies only part of each draft; it does not count which."


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Speculation's figures over one span of time, summed over engines before dividing.

    Where vLLM verifies only part of each draft, the figures that would need to know which part are withheld: the rate,
    unless the verified tokens are counted, the positions above 0, and the mean draft length.
    """

    source: Literal["metrics", "log"]
    seconds: float | None  # the span; null for a lifetime
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    generation_tokens: float | None
    acceptance_ratio: float | None
    mean_acceptance_length: float | None
    mean_draft_length: float | None
    tokens_per_step: float | None
    per_position: tuple[float, ...]  # unconditional: accepted at i / drafts
    conditional: tuple[float | None, ...]  # accepted at i / accepted at i-1
    short_drafts: bool  # some drafts are shorter than k: the curve's tail reads too low
    time_per_output_token_seconds: float | None = None  # mean over finished requests
    timed_requests: float | None = None  # the number of these requests
    timed_within: tuple[tuple[float, float], ...] = ()  # upper bounds in seconds, and how many of them are within
    mean_prompt_tokens: float | None = None  # of the requests with a first token in the span
    cached_prompt_ratio: float | None = None  # of the prompt tokens, those that a cache held
    requests: float | None = None  # that decoded in the span: those that began in it, and those in decode before
    concurrency: float | None = None  # requests in decode at a time, per engine, as the steps of the span met them
    verified_tokens: float | None = None  # of the draft tokens; null where vLLM does not count them

    @property
    def counted(self) -> float | None:
        """Drafts; draft tokens where the release counts no drafts."""
        return self.draft_tokens if self.drafts is None else self.drafts

    def counted_ratio(self, num_speculative_tokens: int | None) -> float | None:
        """Accepted / draft tokens as the engine counts them: too low if it verifies only part of each draft.

        Where no draft tokens are counted, each draft is taken for one of k tokens.
        """
        drafted = self.draft_tokens
        if drafted is None and self.drafts is not None:
            drafted = self.drafts * (num_speculative_tokens or 0)
        found = self.acceptance_ratio
        return acceptance.acceptance_ratio(self.accepted_tokens, drafted) if found is None else found

    @property
    def partly_verified(self) -> bool:
        """Whether draft tokens are counted, but not those of them that the target verified."""
        return self.acceptance_ratio is None and self.draft_tokens is not None

    @property
    def one_token_each(self) -> bool:
        """Whether requests were answered, each with the one token that its prompt gives: there is nothing to draft."""
        return bool(self.seconds and self.requests) and 0 < (self.generation_tokens or 0.0) <= (self.requests or 0.0)

    @property
    def drafted(self) -> bool:
        """Whether anything was drafted. A V0 engine tells no more than a rate."""
        return bool(self.draft_tokens or self.drafts) or self.acceptance_ratio is not None


def counts_of(engine: EngineSnapshot) -> Counts:
    """Return a snapshot's counters as counts since the predictor started."""
    return Counts(
        drafts=engine.drafts,
        draft_tokens=engine.draft_tokens,
        accepted_tokens=engine.accepted_tokens,
        accepted_per_position=_in_order(engine.accepted_tokens_per_position),
        verified_tokens=engine.verified_tokens,
        drafted_per_position=_in_order(engine.draft_tokens_per_position),
        prompt_tokens=engine.prompt_tokens,
        cached_prompt_tokens=engine.cached_prompt_tokens,
        generation_tokens=engine.generation_tokens,
        first_tokens=engine.time_to_first_token.count if engine.time_to_first_token else None,
        steps=engine.step_latency.count if engine.step_latency else None,
        step_seconds=engine.step_latency.sum if engine.step_latency else None,
        preemptions=engine.preemptions,
    )


def _in_order(positions: Mapping[int, float] | None) -> tuple[float, ...]:
    return tuple((positions or {}).get(i, 0.0) for i in range(max(positions or (), default=-1) + 1))


def timed_counts_of(engine: EngineSnapshot) -> Counts:
    """Return :func:`counts_of`, and the time per output token of finished requests."""
    counts = counts_of(engine)
    if (timed := engine.time_per_output_token) is None:
        return counts
    return msgspec.structs.replace(
        counts,
        timed_requests=timed.count,
        output_token_seconds=timed.sum,
        timed_bounds=timed.bounds,
        timed_within=timed.counts,
    )


def logged_counts_of(engine: EngineLogTotals) -> Counts:
    """Return what an engine's log lines add up to as counts."""
    return Counts(
        drafts=engine.drafts,
        draft_tokens=engine.draft_tokens,
        accepted_tokens=engine.accepted_tokens,
        accepted_per_position=tuple(engine.accepted_per_position),
    )


def figures(
    counts: Counts,
    num_speculative_tokens: int | None,
    source: Literal["metrics", "log"],
    seconds: float | None,
    *,
    acceptance_ratio: float | None = None,
    adaptive_verification: bool | None = None,
    concurrency: float | None = None,
) -> Figures:
    """Derive all figures of a span. Pass ``acceptance_ratio`` if the predictor gives a ratio without counts.

    ``adaptive_verification``: vLLM verified only part of each draft and counted all of it as drafted. Where it counts
    the part too, the rate is known.
    """
    if source == "log" and sum(counts.accepted_per_position) != counts.accepted_tokens:
        # Some lines had no list (Rust frontend, V0), so the positions do not cover all drafts.
        counts = msgspec.structs.replace(counts, accepted_per_position=())
    found = Figures(
        source=source,
        seconds=seconds,
        drafts=counts.drafts,
        draft_tokens=counts.draft_tokens,
        accepted_tokens=counts.accepted_tokens,
        generation_tokens=counts.generation_tokens,
        acceptance_ratio=(
            acceptance.acceptance_ratio(counts.accepted_tokens, counts.judged_tokens)
            if acceptance_ratio is None
            else acceptance_ratio
        ),
        mean_acceptance_length=acceptance.mean_acceptance_length(counts.accepted_tokens, counts.drafts),
        mean_draft_length=acceptance.mean_draft_length(counts.draft_tokens, counts.drafts),
        tokens_per_step=acceptance.tokens_per_step(counts.generation_tokens, counts.first_tokens, counts.steps),
        per_position=acceptance.position_ratios(
            counts.accepted_per_position, counts.drafts, counts.drafted_per_position
        ),
        conditional=acceptance.conditional_ratios(counts.accepted_per_position, counts.drafts),
        short_drafts=(
            not counts.drafted_per_position
            and acceptance.has_short_drafts(counts.draft_tokens, counts.drafts, num_speculative_tokens)
        ),
        time_per_output_token_seconds=acceptance.ratio(counts.output_token_seconds, counts.timed_requests),
        timed_requests=counts.timed_requests,
        timed_within=tuple(zip(counts.timed_bounds, counts.timed_within, strict=True))[:-1],  # without +Inf
        mean_prompt_tokens=acceptance.ratio(counts.prompt_tokens, counts.first_tokens),
        cached_prompt_ratio=counts.cached_prompt_ratio,
        requests=_requests(counts, seconds),
        concurrency=concurrency,
        verified_tokens=counts.verified_tokens,
    )
    if not adaptive_verification:
        return found
    return _partly_verified(found, found.acceptance_ratio if counts.verified_tokens is not None else None)


def _partly_verified(figures: Figures, acceptance_ratio: float | None) -> Figures:
    """Withhold what needs the verified tokens by position. A draft's first token is verified if any of it is."""
    return msgspec.structs.replace(
        figures,
        acceptance_ratio=acceptance_ratio,
        mean_draft_length=None,
        per_position=figures.per_position[:1],
        conditional=figures.conditional[:1],
        short_drafts=False,
    )


def _requests(counts: Counts, seconds: float | None) -> float | None:
    """Requests with a first token in the span, and those in decode at its start: as many as at any time (Little)."""
    if counts.first_tokens is None or not counts.step_seconds or not seconds:
        return counts.first_tokens
    return counts.first_tokens + counts.step_seconds / seconds


def without_length(v0: Figures) -> Figures:
    """Return a V0 engine's figures without a length: V0 also counts tokens accepted after a rejected one."""
    return msgspec.structs.replace(v0, mean_acceptance_length=None)
