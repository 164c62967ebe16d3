"""The answer to what speculation gives against a recording: a speed-up, of what it is, or why it is not known."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from specdec_exporter.speculation.chance import Estimate

Compared = Literal["like_load", "closed_loop", "same_arrivals", "unlike_arrivals"]
COMPARED: Final[dict[Compared, str]] = {
    "like_load": "at the same load",
    "closed_loop": "with the same number of clients",
    "same_arrivals": "at the same requests per second",
    "unlike_arrivals": "beyond what the requests per second explain",
}


class Unknown(NamedTuple):
    """Why a speed-up is not known, and what to do to know it."""

    why: str
    remedy: str


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts cost and gave over a span, against a recording.

    ``speedup`` is of decoding, and is what is judged; ``compared`` says of which comparison it is. Both are ``None``
    where it is not known, and ``unknown`` says why. ``at_like_load``, ``closed_loop`` and ``same_arrivals`` are the
    comparisons that hold, each with an interval. ``draft_cost_ratio`` is the cost of one more draft token / the cost of
    a step without drafts, which is the acceptance that breaks even; ``plain_step_seconds`` is the latter. ``None``
    without drafts, and where no step time without drafts is known. ``compared_ratio`` is the share of the step time at
    loads near the recorded ones. ``concurrency`` is the mean, per engine.
    """

    compared: Compared | None = None
    speedup: Estimate | None = None
    unknown: Unknown | None = None
    at_like_load: Estimate | None = None
    closed_loop: Estimate | None = None
    same_arrivals: Estimate | None = None
    draft_cost_ratio: Estimate | None = None
    compared_ratio: float | None = None
    plain_step_seconds: float | None = None
    concurrency: float | None = None
    steps: float = 0.0
    step_seconds: float | None = None
    tokens_per_step: float | None = None
    draft_tokens_per_step: float | None = None
