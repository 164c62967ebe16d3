"""A gate: the measured mean acceptance length against that of a reference, such as an earlier build. Pure."""

from __future__ import annotations

import msgspec

from specdec_exporter.formatting import count
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.judging import too_few
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.verdict import Finding

_MORE = "Send the predictor more requests, or read it for longer with --window."


class Reference(msgspec.Struct, frozen=True):
    """``length``: the mean acceptance length to compare with, tokens. ``within``: the share of it to reach, 0..1."""

    length: float
    within: float


class ReferenceComparison(msgspec.Struct, frozen=True):
    """Both mean acceptance lengths, tokens. ``reached`` is ``None`` if there are too few drafts to tell."""

    mean_acceptance_length: float | None
    reference: float
    within: float
    reached: bool | None


def compared(basis: Figures | None, reference: Reference, policy: Policy) -> tuple[ReferenceComparison, Finding]:
    """Compare the judged figures with ``reference``. The finding is FAIL below its share, and WARN if none can tell."""
    length = basis.mean_acceptance_length if basis is not None else None
    if basis is None or length is None:
        found = f"no mean acceptance length to compare with {reference.length:.2f}, so it cannot tell"
        return _comparison(length, reference, None), Finding("WARN", "Reference", found, _MORE)
    both = f"mean acceptance length {length:.2f}, reference {reference.length:.2f}"
    if too_few(basis, policy) is not None:
        found = f"{both}: {count(basis.drafts)} drafts are too few, or of too few requests, so it cannot tell"
        return _comparison(length, reference, None), Finding("WARN", "Reference", found, _MORE)
    reached = length >= reference.length * reference.within
    share = f"{both}: {length / reference.length:.3f} of it, at least {reference.within:g} is required"
    return _comparison(length, reference, reached), Finding("PASS" if reached else "FAIL", "Reference", share)


def _comparison(length: float | None, reference: Reference, reached: bool | None) -> ReferenceComparison:
    return ReferenceComparison(length, reference.length, reference.within, reached)
