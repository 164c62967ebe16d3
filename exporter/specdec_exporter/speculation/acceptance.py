"""The arithmetic of speculative decoding: pure functions on counts, no I/O, nothing of ours imported.

Counts are numbers of events over any span (a window, a lifetime). Sum them before dividing; never average ratios. An
undefined ratio (nothing drafted, no steps) is ``None``: never 0, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec


class Counts(msgspec.Struct, frozen=True):
    """What happened over a span, one engine or several. ``None``: not exposed by this predictor.

    ``accepted_per_position[i]`` counts the drafts whose token ``i`` (0-based) was accepted, ``drafted_per_position[i]``
    those that had one. ``verified_tokens``: those of ``draft_tokens`` that the target verified. ``first_tokens`` counts
    the requests with a first token (the sample count of time to first token): prefill gives this token, not a decoding
    step. ``steps`` counts request-steps, and ``step_seconds`` sums their durations (count and sum of inter-token
    latency). ``output_token_seconds`` sums the time per output token of ``timed_requests`` finished requests;
    ``timed_within[i]`` of them took at most ``timed_bounds[i]`` seconds. Both are empty where the bounds changed.
    ``cached_prompt_tokens``: those of ``prompt_tokens`` that no step computes, because a cache held them.
    """

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] = ()
    generation_tokens: float | None = None
    first_tokens: float | None = None
    steps: float | None = None
    timed_requests: float | None = None
    output_token_seconds: float | None = None
    step_seconds: float | None = None
    prompt_tokens: float | None = None
    preemptions: float | None = None
    cached_prompt_tokens: float | None = None
    timed_bounds: tuple[float, ...] = ()
    timed_within: tuple[float, ...] = ()
    verified_tokens: float | None = None
    drafted_per_position: tuple[float, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        """Sum; keep a figure that only one side knows."""
        return Counts(
            accepted_per_position=_by_position(self.accepted_per_position, other.accepted_per_position),
            drafted_per_position=_by_position(self.drafted_per_position, other.drafted_per_position),
            **_buckets(self, other, 1.0),
            **_scalars(_sum, self, other),
        )

    def __sub__(self, earlier: Counts) -> Counts:
        """Return what happened since ``earlier`` without a reset; a figure unknown in ``earlier`` counts from 0."""
        return Counts(
            accepted_per_position=tuple(
                now - at(earlier.accepted_per_position, i) for i, now in enumerate(self.accepted_per_position)
            ),
            drafted_per_position=tuple(
                now - at(earlier.drafted_per_position, i) for i, now in enumerate(self.drafted_per_position)
            ),
            **_buckets(self, earlier, -1.0),
            **_scalars(_difference, self, earlier),
        )

    @property
    def computed_prompt_tokens(self) -> float:
        """Prompt tokens that steps computed; all of them where no cached ones are counted."""
        return max((self.prompt_tokens or 0.0) - (self.cached_prompt_tokens or 0.0), 0.0)

    @property
    def cached_prompt_ratio(self) -> float | None:
        """Share of the prompt tokens that a cache held, 0..1; ``None`` if not counted."""
        return share(self.cached_prompt_tokens, self.prompt_tokens)

    @property
    def drafted(self) -> bool:
        """Whether anything was drafted, as far as it is counted."""
        return bool(self.draft_tokens or self.drafts or any(self.accepted_per_position))

    @property
    def judged_tokens(self) -> float | None:
        """Draft tokens that the target could accept: the verified ones where they are counted, else all."""
        return self.draft_tokens if self.verified_tokens is None else self.verified_tokens

    def or_else(self, earlier: Counts) -> Counts:
        """Fill missing figures with ``earlier``'s, so that a gap is not an increase."""
        return Counts(
            **{name: getattr(self, name) or getattr(earlier, name) for name in _TUPLES},
            **_scalars(lambda now, before: before if now is None else now, self, earlier),
        )


_TUPLES = ("accepted_per_position", "drafted_per_position", "timed_bounds", "timed_within")
SCALARS = tuple(name for name in Counts.__struct_fields__ if name not in _TUPLES)


def _buckets(one: Counts, other: Counts, sign: float) -> dict[str, Any]:
    """Return bounds and counts of ``one`` plus or minus those of ``other``; nothing if their bounds differ."""
    if one.timed_bounds == other.timed_bounds:
        pairs = zip(one.timed_within, other.timed_within, strict=True)
        return {"timed_bounds": one.timed_bounds, "timed_within": tuple(now + sign * then for now, then in pairs)}
    if not other.timed_bounds:
        return {"timed_bounds": one.timed_bounds, "timed_within": one.timed_within}
    if not one.timed_bounds and sign > 0:
        return {"timed_bounds": other.timed_bounds, "timed_within": other.timed_within}
    return {}


def _scalars(combine: Callable[[Any, Any], float | None], one: Counts, other: Counts) -> dict[str, Any]:
    return {name: combine(getattr(one, name), getattr(other, name)) for name in SCALARS}


def _by_position(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    return tuple(at(one, i) + at(other, i) for i in range(max(len(one), len(other))))


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


def _difference(now: float | None, before: float | None) -> float | None:
    return now if now is None or before is None else now - before


def at(values: Sequence[float], index: int) -> float:
    """Return ``values[index]``, or 0 past the end: an unknown position has no accepted tokens."""
    return values[index] if index < len(values) else 0.0


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Divide; ``None`` if either is unknown, the denominator is not positive, or the ratio is too large for a float."""
    if numerator is None or denominator is None or denominator <= 0:
        return None
    found = numerator / denominator
    return found if math.isfinite(found) else None


# vLLM writes one counter after the other, so at either end of a span the part may be a batch ahead of the whole.
_AHEAD = 1.1


def share(part: float | None, whole: float | None) -> float | None:
    """Divide a part by its whole, 0..1; ``None`` as in :func:`ratio`, and if it is clearly no part of it."""
    found = ratio(part, whole)
    return None if found is None or not 0.0 <= found <= _AHEAD else min(found, 1.0)


def acceptance_ratio(accepted_tokens: float | None, draft_tokens: float | None) -> float | None:
    """Accepted draft tokens / draft tokens, 0..1."""
    return share(accepted_tokens, draft_tokens)


def mean_acceptance_length(accepted_tokens: float | None, drafts: float | None) -> float | None:
    """1 + accepted / drafts: tokens per verified draft, with the bonus token."""
    accepted_per_draft = ratio(accepted_tokens, drafts)
    return None if accepted_per_draft is None else 1.0 + accepted_per_draft


def mean_draft_length(draft_tokens: float | None, drafts: float | None) -> float | None:
    """Draft tokens / drafts; below k if some drafts are short."""
    return ratio(draft_tokens, drafts)


def position_ratios(
    accepted_per_position: Sequence[float], drafts: float | None, drafted_per_position: Sequence[float] = ()
) -> tuple[float, ...]:
    """Accepted at i / drafts for each position i: unconditional. Empty without drafts, or if one exceeds them.

    Where drafts are counted by position, it is accepted / drafted at i, up to the last position that was drafted.
    """
    if drafted_per_position:
        pairs = zip(accepted_per_position, drafted_per_position, strict=False)
        found = [share(accepted, drafted) for accepted, drafted in pairs if drafted]
    else:
        found = [share(accepted, drafts) for accepted in accepted_per_position]
    return () if None in found else tuple(each for each in found if each is not None)


def conditional_ratios(accepted_per_position: Sequence[float], drafts: float | None) -> tuple[float | None, ...]:
    """Accepted at i / accepted at i-1 (for i = 0: / drafts). Exact only when no draft is shorter than k."""
    if drafts is None or drafts <= 0:
        return ()
    before = (drafts, *accepted_per_position)
    return tuple(share(accepted, reached) for accepted, reached in zip(accepted_per_position, before, strict=False))


def tokens_per_step(generation_tokens: float | None, first_tokens: float | None, steps: float | None) -> float | None:
    """(Generation tokens - first tokens) / request-steps: tokens per decoding step, with and without a draft.

    This is the ceiling of the speed-up. First tokens come from prefill; counting them is right for aborted and
    unfinished requests too. ``None`` without decoding.
    """
    if generation_tokens is None or first_tokens is None or generation_tokens <= first_tokens:
        return None
    return ratio(generation_tokens - first_tokens, steps)


def has_short_drafts(draft_tokens: float | None, drafts: float | None, num_speculative_tokens: int | None) -> bool:
    """Whether some drafts had fewer than k tokens; the curve's tail then reads too low."""
    if draft_tokens is None or not drafts or not num_speculative_tokens:
        return False
    return draft_tokens < num_speculative_tokens * drafts
