"""The integers behind the ratios that a spec-decode line prints: drafts, and accepted tokens by position. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


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
