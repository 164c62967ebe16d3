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

    ``accepted_per_position[i]`` counts the drafts whose token ``i`` (0-based) was accepted. ``first_tokens`` counts the
    requests with a first token (the sample count of time to first token): prefill gives this token, not a decoding
    step. ``steps`` counts request-steps, and ``step_seconds`` sums their durations (count and sum of inter-token
    latency). ``output_token_seconds`` sums the time per output token of ``timed_requests`` finished requests;
    ``timed_within[i]`` of them took at most ``timed_bounds[i]`` seconds. ``rated_within[i]`` finished requests had an
    acceptance rate of at most ``rated_bounds[i]``. Both of a pair are empty where the bounds changed.
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
    timed_bounds: tuple[float, ...] = ()
    timed_within: tuple[float, ...] = ()
    rated_bounds: tuple[float, ...] = ()
    rated_within: tuple[float, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        """Sum; keep a figure that only one side knows."""
        longest = max(len(self.accepted_per_position), len(other.accepted_per_position))
        return Counts(
            accepted_per_position=tuple(
                at(self.accepted_per_position, i) + at(other.accepted_per_position, i) for i in range(longest)
            ),
            **_buckets(self, other, 1.0),
            **_scalars(_sum, self, other),
        )

    def __sub__(self, earlier: Counts) -> Counts:
        """Return what happened since ``earlier`` without a reset; a figure unknown in ``earlier`` counts from 0."""
        return Counts(
            accepted_per_position=tuple(
                now - at(earlier.accepted_per_position, i) for i, now in enumerate(self.accepted_per_position)
            ),
            **_buckets(self, earlier, -1.0),
            **_scalars(_difference, self, earlier),
        )

    def or_else(self, earlier: Counts) -> Counts:
        """Fill missing figures with ``earlier``'s, so that a gap is not an increase."""
        return Counts(
            **{name: getattr(self, name) or getattr(earlier, name) for name in _TUPLES},
            **_scalars(lambda now, before: before if now is None else now, self, earlier),
        )


_BUCKETS = (("timed_bounds", "timed_within"), ("rated_bounds", "rated_within"))
_TUPLES = ("accepted_per_position", *(name for pair in _BUCKETS for name in pair))
SCALARS = tuple(name for name in Counts.__struct_fields__ if name not in _TUPLES)


def _buckets(one: Counts, other: Counts, sign: float) -> dict[str, Any]:
    """Return bounds and counts of ``one`` plus or minus those of ``other``; nothing if their bounds differ."""
    found: dict[str, Any] = {}
    for bounds, within in _BUCKETS:
        mine, theirs = getattr(one, bounds), getattr(other, bounds)
        if mine == theirs:
            pairs = zip(getattr(one, within), getattr(other, within), strict=True)
            found |= {bounds: mine, within: tuple(now + sign * then for now, then in pairs)}
        elif not theirs:
            found |= {bounds: mine, within: getattr(one, within)}
        elif not mine and sign > 0:
            found |= {bounds: theirs, within: getattr(other, within)}
    return found


def _scalars(combine: Callable[[Any, Any], float | None], one: Counts, other: Counts) -> dict[str, Any]:
    return {name: combine(getattr(one, name), getattr(other, name)) for name in SCALARS}


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


def position_ratios(accepted_per_position: Sequence[float], drafts: float | None) -> tuple[float, ...]:
    """Accepted at i / drafts for each position i: unconditional. Empty without drafts, or if one exceeds them."""
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


def effective_drafts(drafts: float, requests: float, correlation: float) -> float:
    """Drafts / (1 + correlation * (drafts per request - 1)): the number of independent drafts that tell as much.

    The drafts of one request resemble each other (Kish's design effect). At most ``drafts``, and at most
    ``requests`` / ``correlation``. ``requests`` is positive, ``correlation`` 0..1.
    """
    return drafts / (1.0 + correlation * max(drafts / requests - 1.0, 0.0))


def has_short_drafts(draft_tokens: float | None, drafts: float | None, num_speculative_tokens: int | None) -> bool:
    """Whether some drafts had fewer than k tokens; the curve's tail then reads too low."""
    if draft_tokens is None or not drafts or not num_speculative_tokens:
        return False
    return draft_tokens < num_speculative_tokens * drafts


def break_even_length(draft_length: float, draft_cost_ratio: float) -> float:
    """1 + draft length * c: the mean acceptance length at which drafts of this length pay for themselves.

    ``draft_cost_ratio`` c is the cost of drafting and verifying one more token / the cost of a step without a draft.
    """
    return 1.0 + draft_length * draft_cost_ratio


def reconstruct_window(
    accepted_tokens: int,
    draft_tokens: int,
    per_position: Sequence[float],
    accepted_per_draft: float | None,
    num_speculative_tokens: int | None,
) -> tuple[int, list[int]]:
    """Recover the integers behind a spec-decode line: its drafts, and how many drafts accepted each position.

    ``per_position`` is the printed list (three decimals; may be empty), ``accepted_per_draft`` the printed mean length
    without the bonus token (two decimals). If all drafts are full, drafts = draft tokens / k; this wins if it agrees
    with the printed figures. Otherwise some drafts were short: the number of drafts lies between draft tokens / k and
    draft tokens. The candidate wins that agrees with the printed mean and brings the positions closest to whole
    numbers; without a list, the candidate nearest to accepted tokens / mean. Positions always sum to the accepted
    tokens, as in every V1 release. The result is 0 drafts without draft tokens, and without k if the line lacks
    accepted tokens or a mean.
    """
    k = num_speculative_tokens or len(per_position)
    if draft_tokens <= 0 or (not k and (not accepted_tokens or accepted_per_draft is None)):
        return 0, [0] * len(per_position)
    if not k:
        fewest = -(-draft_tokens // _MOST_TOKENS_PER_DRAFT)
        return _closest_drafts(accepted_tokens, fewest, draft_tokens, (), accepted_per_draft), []
    drafts = -(-draft_tokens // k)
    full = draft_tokens % k == 0 and (
        accepted_per_draft is None or abs(accepted_tokens / drafts - accepted_per_draft) <= _HALF_LENGTH
    )
    if not full or (positions := _positions_of_full_drafts(accepted_tokens, drafts, per_position)) is None:
        drafts = _closest_drafts(accepted_tokens, drafts, draft_tokens, per_position, accepted_per_draft)
        exact = [rate * drafts for rate in per_position]
        counts = [round(value) for value in exact]
        positions = _moved(counts, exact, drafts, accepted_tokens - sum(counts))
    return drafts, positions


def _positions_of_full_drafts(accepted: int, drafts: int, per_position: Sequence[float]) -> list[int] | None:
    """Return whole counts that agree with the printed rates and sum to ``accepted``; ``None`` if there are none."""
    slack = drafts * _HALF_POSITION
    counts = [int(rate * drafts + 0.5) for rate in per_position]
    missing = accepted - sum(counts)
    if slack >= 0.5 and -len(counts) < missing < len(counts) and counts[0] < drafts and counts[-1] > 0:
        # Several whole counts fit the printed rates. Adding to the first or taking from the last is as good as any.
        step, moved = (1, range(missing)) if missing > 0 else (-1, range(missing, 0))
        for i in moved:
            counts[i] += step
        return counts
    exact = [rate * drafts for rate in per_position]
    if slack < 0.5:  # a larger slack admits every rounded count
        for count, value in zip(counts, exact, strict=True):
            if not -slack <= count - value <= slack:
                return None
    if not missing or not counts:
        return counts
    if abs(sum(exact) - accepted) > len(counts) * slack:
        return None
    return _moved(counts, exact, drafts, missing)


# Half of the last digit that vLLM prints (three decimals for positions, two for the mean), with room for binary floats.
_HALF_POSITION = 0.0005 + 1e-9
_HALF_LENGTH = 0.005 + 1e-9
# With more candidates the printed digits cannot tell neighbours apart, so the middle one is taken.
_MAX_CANDIDATES = 2000
_MOST_TOKENS_PER_DRAFT = 64  # if k is not known; far above any k in practice


def _distance_to_whole(rate: float, drafts: int) -> float:
    """Return how far ``rate * drafts`` is from a whole number, beyond the rounding of ``rate``."""
    exact = rate * drafts
    return max(0.0, abs(exact - round(exact)) - drafts * _HALF_POSITION)


def _closest_drafts(
    accepted: int, fewest: int, most: int, per_position: Sequence[float], accepted_per_draft: float | None
) -> int:
    if accepted == 0:
        return fewest  # the line does not tell the number of drafts; full drafts are the most likely
    if accepted_per_draft is not None and not per_position:
        return min(max(round(accepted / max(accepted_per_draft, _HALF_LENGTH)), fewest), most)
    low, high = fewest, most
    if accepted_per_draft is not None:
        low = max(low, math.ceil(accepted / (accepted_per_draft + _HALF_LENGTH)))
        if accepted_per_draft > _HALF_LENGTH:
            high = min(high, math.floor(accepted / (accepted_per_draft - _HALF_LENGTH)))
    if per_position:
        total, slack = sum(per_position), len(per_position) * _HALF_POSITION
        low = max(low, math.ceil(accepted / (total + slack)))
        if total > slack:
            high = min(high, math.floor(accepted / (total - slack)))
    if low > high:  # the printed figures contradict each other slightly; the parser refuses larger contradictions
        return min(max(low, fewest), most)
    if high - low > _MAX_CANDIDATES:
        return (low + high) // 2
    return min(
        range(low, high + 1),
        key=lambda drafts: (
            sum(_distance_to_whole(rate, drafts) for rate in per_position),
            abs(sum(round(rate * drafts) for rate in per_position) - accepted),
            abs(accepted / drafts - sum(per_position)) if per_position else 0.0,
        ),
    )


def _moved(counts: list[int], exact: Sequence[float], drafts: int, missing: int) -> list[int]:
    """Add ``missing`` where rounding was least certain, while each count is at most the one before it."""
    if counts and abs(missing) >= len(counts):  # many drafts: three decimals fit several whole counts per position
        each = int(missing / len(counts))
        if counts[0] + each <= drafts and counts[-1] + each >= 0:
            counts = [count + each for count in counts]
            missing -= each * len(counts)
    step = 1 if missing > 0 else -1
    last = len(counts) - 1
    while missing:
        best, least = -1, math.inf
        for i, count in enumerate(counts):
            moved = count + step
            distance = abs(moved - exact[i])
            above = counts[i - 1] if i else drafts
            below = counts[i + 1] if i < last else 0
            if distance < least and below <= moved <= above:
                best, least = i, distance
        if best < 0:
            break
        counts[best] += step
        missing -= step
    return counts
