"""The acceptance rate of a recording, with the interval that its requests allow, and whether it fell between two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.likeness import Flag, FlagCode, k_of, speculates
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.speculation.chance import Estimate, difference, independent_draws, proportion, ratio_of_sums
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.speculation.policy import Policy

AcceptanceOutcome = Literal["dropped", "not_dropped", "inconclusive", "undecided"]

# Flags that explain another acceptance, the likeliest first.
_CAUSES: Final[tuple[FlagCode, ...]] = (
    "quantization_differs",
    "draft_model_differs",
    "request_parameters_differ",
    "prompts_differ",
    "vllm_version_differs",
)


class AcceptanceChange(msgspec.Struct, frozen=True, kw_only=True):
    """How acceptance changed between two recordings that speculate.

    ``difference`` is candidate - baseline: -0.08 is a fall by 8 percentage points. ``likely_causes`` says in words what
    else differs, the likeliest first; empty unless acceptance ``dropped``. ``undecided_because`` says why ``outcome``
    is ``undecided``.
    """

    difference: Estimate | None
    outcome: AcceptanceOutcome
    likely_causes: tuple[str, ...]
    undecided_because: str | None


def acceptance_change(
    baseline: Baseline, candidate: Baseline, flags: Iterable[Flag], policy: Policy
) -> AcceptanceChange | None:
    """Return how acceptance changed; ``None`` unless both recordings drafted.

    Another k or method changes acceptance by itself, so only recordings of one k and method are judged.
    """
    if not (speculates(baseline) and speculates(candidate)):
        return None
    before, after = acceptance_of(baseline, policy), acceptance_of(candidate, policy)
    found = difference(before, after) if before and after else None
    why = _unlike(baseline, candidate) if found else "accepted tokens were not recorded in both"
    if baseline.adaptive_verification or candidate.adaptive_verification:
        found, why = None, PARTLY_VERIFIED
    outcome: AcceptanceOutcome = "undecided"
    if found is not None and why is None:
        outcome = _outcome(found, policy.comparison.acceptance_drop_min)
    causes = sorted((flag for flag in flags if flag.code in _CAUSES), key=lambda flag: _CAUSES.index(flag.code))
    return AcceptanceChange(
        difference=found,
        outcome=outcome,
        likely_causes=tuple(flag.message for flag in causes) if outcome == "dropped" else (),
        undecided_because=why,
    )


def _unlike(baseline: Baseline, candidate: Baseline) -> str | None:
    if k_of(baseline) != k_of(candidate):
        return "k differs, and acceptance falls with k by itself"
    one, other = (canonical_method(each.method or "") for each in (baseline, candidate))
    return "the methods differ" if one and other and one != other else None


def _outcome(found: Estimate, least: float) -> AcceptanceOutcome:
    """A drop is beyond chance and beyond ``least``; none is left if the whole interval lies above -``least``."""
    if found.high is not None and found.high < 0.0 and found.value < -least:
        return "dropped"
    return "not_dropped" if found.low is not None and found.low >= -least else "inconclusive"


def acceptance_of(recording: Baseline, policy: Policy) -> Estimate | None:
    """Return the acceptance rate with Wilson's 95 % interval; ``None`` if nothing was drafted.

    Drafts of one request are alike, so the scatter of the recording's batches tells how many independent draws they are
    worth. Without batches there is no interval.
    """
    counts = recording.counts
    drafts = counts.drafts or counts.draft_tokens
    if not drafts or not counts.draft_tokens or counts.accepted_tokens is None:
        return None
    found = ratio_of_sums(
        [block.counts.accepted_tokens or 0.0 for block in recording.blocks],
        [block.counts.draft_tokens or 0.0 for block in recording.blocks],
        policy.chance,
    )
    draws = independent_draws(found) if found else None
    if draws is None:
        return Estimate(min(counts.accepted_tokens / counts.draft_tokens, 1.0), None, None)
    return proportion(counts.accepted_tokens, counts.draft_tokens, min(draws, drafts))
