"""Thresholds and per-method bands: the typed face of ``policy.json``, which jsonnet imports too."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

from specdec_exporter.predictor.versions import canonical_method


class MethodPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What differs from the general policy for one method. ``None``: the general value holds."""

    acceptance_ratio_expected: tuple[float, float] | None = None
    acceptance_ratio_min: float | None = None
    acceptance_ratio_watch: float | None = None


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``policy.json``. Ratios 0..1, times in seconds.

    ``acceptance_ratio_broken``: below it draft and target do not fit. ``acceptance_ratio_min``: below it speculation
    does not break even. ``acceptance_ratio_watch``: from the minimum up to here it may pay; measure. ``min_drafts``:
    fewer drafts say nothing about a window. ``short_draft_tolerance``: share by which drafts may fall short of k before
    the curve is too biased to recommend a k from.
    """

    acceptance_ratio_broken: float
    acceptance_ratio_min: float
    acceptance_ratio_watch: float
    min_drafts: int
    short_window_seconds: float
    state_window_seconds: float
    short_draft_tolerance: float
    methods: dict[str, MethodPolicy]

    def for_method(self, method: str | None) -> ResolvedPolicy:
        """Thresholds for ``method`` under any name a release gives it, the general ones where it has none."""
        own = self.methods.get(canonical_method(method or ""), MethodPolicy())
        return ResolvedPolicy(
            acceptance_ratio_broken=self.acceptance_ratio_broken,
            acceptance_ratio_min=_first(own.acceptance_ratio_min, self.acceptance_ratio_min),
            acceptance_ratio_watch=_first(own.acceptance_ratio_watch, self.acceptance_ratio_watch),
            acceptance_ratio_expected=own.acceptance_ratio_expected,
            min_drafts=self.min_drafts,
            short_draft_tolerance=self.short_draft_tolerance,
        )


class ResolvedPolicy(msgspec.Struct, frozen=True):
    """The thresholds that hold for one service."""

    acceptance_ratio_broken: float
    acceptance_ratio_min: float
    acceptance_ratio_watch: float
    acceptance_ratio_expected: tuple[float, float] | None
    min_drafts: int
    short_draft_tolerance: float

    @property
    def draft_cost_ratio(self) -> float:
        """Cost of drafting and verifying one more token, over that of a decoding step without a draft.

        It is the same number as the acceptance that breaks even: drafts of d tokens yield 1 + d r tokens a step at
        acceptance r and cost 1 + d c, so they pay exactly when r > c.
        """
        return self.acceptance_ratio_min


def _first(own: float | None, general: float) -> float:
    return general if own is None else own


@cache
def load_policy() -> Policy:
    """Return the policy that ships with this release."""
    text = resources.files("specdec_exporter").joinpath("policy.json").read_bytes()
    return msgspec.json.decode(text, type=Policy)
