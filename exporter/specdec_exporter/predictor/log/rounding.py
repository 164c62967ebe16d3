"""The drafts behind a spec-decode line, and their accepted tokens by position, which it prints as ratios. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_HALF_RATE = 0.0005  # half of the last digit of a position's rate
_HALF_LENGTH = 0.005  # and of a mean length


def reconstruct_window(
    accepted_tokens: int,
    draft_tokens: int,
    per_position: Sequence[float],
    accepted_per_draft: float | None,
    num_speculative_tokens: int | None,
) -> tuple[int, list[int]]:
    """Return the drafts of a line, and how many of them accepted each position, as far as its digits tell.

    ``per_position`` is the printed list (may be empty), ``accepted_per_draft`` the printed mean length without the
    bonus token. Drafts are draft tokens / k, or accepted tokens / accepted per draft where the line shows that some
    were shorter than k. The list says how many were accepted per draft more exactly than the length, which leaves out
    tokens behind a stop. Positions sum to the accepted tokens. Both are exact up to 1,000 full drafts; 0 drafts where
    neither k nor a length is known.
    """
    k = num_speculative_tokens or len(per_position)
    full = draft_tokens / k if k else 0.0
    per_draft, slack = accepted_per_draft, _HALF_LENGTH
    if per_position:
        per_draft, slack = sum(per_position), _HALF_RATE * len(per_position)
    drafts = full
    if accepted_tokens and per_draft is not None and abs(full * per_draft - accepted_tokens) > full * slack + 1e-6:
        drafts = accepted_tokens / max(per_draft, slack)
    count = round(min(max(drafts, full), draft_tokens))
    positions = [round(rate * count) for rate in per_position]
    if sum(positions) != accepted_tokens and any(per_position):
        # The digits do not tell them to the token, so the accepted tokens are shared out.
        *_, total = reached = list(itertools.accumulate(per_position))
        shares = [0, *(round(accepted_tokens * part / total) for part in reached)]
        positions = [upto - before for before, upto in itertools.pairwise(shares)]
    return count, positions
