"""Thresholds and per-method bands: the typed face of ``policy.json``, which jsonnet imports too."""

from __future__ import annotations

import pkgutil
from functools import cache

import msgspec

from specdec_exporter.predictor.versions import canonical_method


class MethodPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What differs from the general policy for one method. ``None``: the general value holds."""

    acceptance_ratio_expected: tuple[float, float] | None = None
    acceptance_ratio_min: float | None = None
    acceptance_ratio_watch: float | None = None


class LatencyPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When latency differs from a baseline: for ``compare`` as for the rule pack, which takes them from here.

    ``min_requests``: fewer decide nothing. ``z_score``: one-sided normal quantile that a shift of the tail must exceed.
    ``tail_limit_share``: a limit of the tail held at least this share of the requests at baseline. ``tail_growth``:
    only what is slower beyond this many times the share at baseline counts. ``tail_shift_min``: as a share of all
    requests. ``slowdown_min``, ``speedup_min``: ratios of means below which nothing is said; two runs of the same
    differ by as much. ``traffic_tolerance``: share by which prompts or answers may differ in mean length and still
    be the same traffic. ``harmful_ratio``: this many times the baseline's time per output token is harm.
    ``time_per_output_token_cv``: coefficient of variation that the sampling error of its mean is taken from.
    """

    min_requests: int
    z_score: float
    tail_limit_share: float
    tail_growth: float
    tail_shift_min: float
    slowdown_min: float
    speedup_min: float
    traffic_tolerance: float
    harmful_ratio: float
    time_per_output_token_cv: float


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``policy.json``. Ratios 0..1, times in seconds.

    ``acceptance_ratio_broken``: below it draft and target do not fit. ``acceptance_ratio_min``: below it speculation
    does not break even. ``acceptance_ratio_watch``: from the minimum up to here it may pay; measure. ``min_drafts``:
    fewer drafts say nothing about a window. ``short_draft_tolerance``: share by which drafts may fall short of k before
    the curve is too biased to recommend a k from. ``acceptance_ratio_suspicious``: above it, with at least
    ``suspicious_positions`` positions, the text probably repeats itself. ``head_acceptance_ratio_min``,
    ``tail_acceptance_ratio_min``: for the first position, and for those behind it.
    """

    acceptance_ratio_broken: float
    acceptance_ratio_min: float
    acceptance_ratio_watch: float
    acceptance_ratio_suspicious: float
    suspicious_positions: int
    head_acceptance_ratio_min: float
    tail_acceptance_ratio_min: float
    min_drafts: int
    short_window_seconds: float
    state_window_seconds: float
    short_draft_tolerance: float
    latency: LatencyPolicy
    methods: dict[str, MethodPolicy]

    def for_method(self, method: str | None) -> ResolvedPolicy:
        """Thresholds for ``method`` under any name a release gives it, the general ones where it has none."""
        own = self.methods.get(canonical_method(method or ""), MethodPolicy())
        return ResolvedPolicy(
            method=method,
            acceptance_ratio_min=_first(own.acceptance_ratio_min, self.acceptance_ratio_min),
            acceptance_ratio_watch=_first(own.acceptance_ratio_watch, self.acceptance_ratio_watch),
            acceptance_ratio_expected=own.acceptance_ratio_expected,
            general=self,
        )


class ResolvedPolicy(msgspec.Struct, frozen=True):
    """The thresholds that hold for one service. ``general`` has those that no method changes."""

    method: str | None
    acceptance_ratio_min: float
    acceptance_ratio_watch: float
    acceptance_ratio_expected: tuple[float, float] | None
    general: Policy

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
    text = pkgutil.get_data(__package__, "policy.json")  # importlib.resources takes 6 ms to import
    assert text is not None  # noqa: S101  it is part of the package
    return msgspec.json.decode(text, type=Policy)
