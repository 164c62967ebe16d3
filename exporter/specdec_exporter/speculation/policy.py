"""Thresholds: ``policy.json`` with types. ``make render`` copies what the rules need into the mixin."""

from __future__ import annotations

import math
import pkgutil
from functools import cache

import msgspec

from specdec_exporter.predictor.versions import canonical_method


class Levels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Acceptance rates, 0..1: ``min`` is assumed to break even; from ``watch`` on every published service gains.

    A ``watch`` above 1: there, no acceptance shows that drafts pay.
    """

    min: float
    watch: float

    def towards(self, other: Levels, part: float) -> Levels:
        """Return the levels ``part`` (0..1) of the way to ``other``."""
        return Levels(self.min + part * (other.min - self.min), self.watch + part * (other.watch - self.watch))


class AssumedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The levels of ``methods`` (none: of any other), for drafts of up to ``k_max`` tokens, by load."""

    light: Levels
    heavy: Levels
    methods: tuple[str, ...] = ()
    k_max: int | None = None

    def holds(self, method: str, draft_length: float | None) -> bool:
        """Whether the row is about this method and length. One that is not known takes the shortest: it is safe."""
        of_method = not self.methods or method in self.methods
        return of_method and (self.k_max is None or draft_length is None or round(draft_length) <= self.k_max)


class AssumedPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What break-even is assumed to be, from published services (docs/evidence/break-even.md).

    Up to ``light_requests`` in decode per engine the light levels hold, from ``heavy_requests`` on the heavy ones, and
    between them the logarithm of the load decides. The first of ``rows`` that holds counts. No service with a method
    that is not ``published`` is called good below ``unpublished_watch``.
    """

    light_requests: float
    heavy_requests: float
    published: tuple[str, ...]
    unpublished_watch: float
    rows: tuple[AssumedRow, ...]

    def levels(self, method: str | None, draft_length: float | None, concurrency: float | None) -> Levels:
        """Return the levels; ``concurrency``: requests in decode per engine.

        ``None``: not known. Then a service is called neither low nor good that may not be, at whatever load.
        """
        name = canonical_method(method or "")
        row = next(row for row in self.rows if row.holds(name, draft_length))
        load = max(concurrency or 0.0, self.light_requests) / self.light_requests
        part = math.log(load) / math.log(self.heavy_requests / self.light_requests)
        found = row.light.towards(row.heavy, min(part, 1.0))
        least = [found.watch, 0.0 if name in self.published else self.unpublished_watch]
        if concurrency is None:
            least.append(row.heavy.watch)
        return Levels(found.min, max(least))


class LatencyPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When latency differs from a baseline; ``compare`` and the rule pack use the same values.

    ``min_requests``: fewer decide nothing. ``z_score``: one-sided normal quantile that a tail shift must exceed.
    ``tail_limit_share``: a tail limit held at least this share of the requests at baseline. ``tail_growth``: slow
    requests count only beyond this many times their share at baseline. ``tail_shift_min``: smallest tail shift, a share
    of all requests. ``tail_shift_critical``: one of this size wakes somebody. ``slower_ratio``: more than this many
    times the baseline's mean latency is slower. ``slowdown_min``, ``speedup_min``: smallest ratios of means that count
    in a comparison; two equal runs differ by less. ``traffic_tolerance``: largest relative difference in the number of
    requests in flight at the same load, and in rates and mean lengths where chance is not known.
    ``prompt_length_ratio``: prompts more than this many times as long, or as short, as those of a recording are other
    work, and its speed-up need not hold. ``cached_prompt_difference``: caches whose shares of the prompt tokens differ
    by more are not alike. ``enough_blocks``: with fewer, an interval is far wider than it need be.
    ``harmful_ratio``: this many times the baseline's time per output token is harm. ``speedup_harmful``: so is a
    speed-up at like load below this. ``word_reach``: the interval behind harm and health is this many times as
    wide as one of 95 %, which makes 99 %. ``time_per_output_token_cv``: its coefficient of variation, for the sampling
    error of its mean.
    """

    min_requests: int
    z_score: float
    tail_limit_share: float
    tail_growth: float
    tail_shift_min: float
    tail_shift_critical: float
    slower_ratio: float
    slowdown_min: float
    speedup_min: float
    traffic_tolerance: float
    prompt_length_ratio: float
    cached_prompt_difference: float
    enough_blocks: int
    harmful_ratio: float
    speedup_harmful: float
    word_reach: float
    time_per_output_token_cv: float


class ChancePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What chance may explain of a ratio of two recordings.

    ``batches``: a recording is cut into so many consecutive ones; with fewer than ``fewest_batches`` no error is known.
    ``runs_differ``: the standard error that any two runs of one setting have at least, of
    ``enough_seconds`` each; shorter ones have more. ``widest_interval``: one whose
    ends are farther apart than this factor is not said. ``stall_share``: a batch with more of the seconds decides
    alone, if that is ``stall_ratio`` times its due. ``misfit_counted``: how much of the scatter about the curve of step
    times counts as an error of it; ``scatter_counted``: of the scatter of seconds per token, where there is no curve.
    """

    batches: int
    fewest_batches: int
    runs_differ: float
    enough_seconds: float
    widest_interval: float
    stall_share: float
    stall_ratio: float
    misfit_counted: float
    scatter_counted: float


class CostPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When step times tell what a draft costs.

    ``min_steps``: fewer request-steps say nothing. ``interval_seconds``: the intervals by which step time and load are
    compared; a recording and what runs now need the same. ``most_intervals``: a longer recording keeps so many of them.
    ``enough_intervals``: where so many remain, those with preemptions are left out. ``window_seconds``: the live
    speed-up is of this time. ``warm_up_seconds``: the time after a start that is left out. ``k_loss_max``: a k that is
    slower than the best one by at most this share is as good. ``bend_parts``: one part of so many of a recording's
    intervals, those nearest to a load, tells how far the step time is off the line there, as far as that is more than
    ``bend_z_score`` standard errors. ``first_stage_f_min``: a recording of which the first stage tells
    less, by F, had a steady load; so had one whose logarithm of the load has a smaller standard deviation than
    ``even_load_spread``. ``compared_min``: where a smaller share of the step time ran at recorded loads,
    it says nothing of the rest. ``arrivals_tolerance``: requests per second that differ by less are the
    same. ``small_prefill_share``: reading prompts is a small part of a step below this share.
    """

    min_steps: int
    interval_seconds: float
    most_intervals: int
    enough_intervals: int
    window_seconds: float
    warm_up_seconds: float
    k_loss_max: float
    bend_parts: int
    bend_z_score: float
    first_stage_f_min: float
    even_load_spread: float
    compared_min: float
    arrivals_tolerance: float
    small_prefill_share: float


class DataPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When figures beside a baseline cannot be believed.

    ``traffic_seconds``: load and prompts are those of this time; the load is known after ``traffic_seconds_min``.
    ``positions_tolerance``: accepted tokens by position may differ from all of them by this share, and with fewer than
    ``positions_min_drafts`` drafts nothing is said. ``baseline_days``: an older recording is of other traffic.
    ``engine_left_seconds``: an engine that did nothing for so long is not missed.
    """

    traffic_seconds: float
    traffic_seconds_min: float
    positions_tolerance: float
    positions_min_drafts: int
    baseline_days: float
    engine_left_seconds: float


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``policy.json``. Ratios 0..1, times in seconds.

    ``acceptance_ratio_broken``: below it, with fewer than ``accepted_tokens_broken`` of each draft, draft and target do
    not fit. ``acceptance_ratio_flag``: below it the rule
    pack says so, and wakes nobody. ``min_drafts``: fewer drafts say nothing about a window.
    ``min_effective_drafts``: nor do drafts that tell less than this number of independent ones.
    ``draft_correlation``: how alike the drafts of one request are (0: not at all, 1: all accepted or all rejected).
    ``assumed_drafts_per_request``: where requests are not counted. ``verdict_hold_seconds``: a verdict is left when no
    look of this time said it. ``acceptance_ratio_suspicious``: above it, with at least
    ``suspicious_positions`` positions, the text probably repeats itself. ``temperature_bands``: the highest temperature
    of each band of requests; the last band is above them, the first is greedy sampling. ``prompt_length_bands``: the
    most prompt tokens of each band of requests; the last band is above them. ``head_acceptance_ratio_min``,
    ``tail_acceptance_ratio_min``: for the first position, and for the positions after it. ``acceptance_drop_min``: the
    smallest fall of acceptance that counts, a difference of two rates. ``outlier_gap``: an engine or replica that
    accepts so much less than all together is named, a difference of two rates.
    """

    acceptance_ratio_broken: float
    accepted_tokens_broken: float
    acceptance_ratio_flag: float
    acceptance_ratio_suspicious: float
    acceptance_drop_min: float
    outlier_gap: float
    suspicious_positions: int
    head_acceptance_ratio_min: float
    tail_acceptance_ratio_min: float
    min_drafts: int
    min_effective_drafts: float
    draft_correlation: float
    assumed_drafts_per_request: float
    verdict_hold_seconds: float
    harm_apart_seconds: float
    short_window_seconds: float
    state_window_seconds: float
    temperature_bands: tuple[float, ...]
    prompt_length_bands: tuple[int, ...]
    latency: LatencyPolicy
    chance: ChancePolicy
    cost: CostPolicy
    data: DataPolicy
    assumed: AssumedPolicy

    def effective_drafts(self, drafts: float, requests: float | None) -> float:
        """Return how many independent drafts tell as much; ``None``: requests are not counted.

        Those of one request resemble each other (Kish's design effect), so at most requests / correlation.
        """
        counted = drafts / self.assumed_drafts_per_request if requests is None else requests
        return drafts / (1.0 + self.draft_correlation * max(drafts / max(counted, 1.0) - 1.0, 0.0))


@cache
def load_policy() -> Policy:
    """Return the policy that ships with this release."""
    text = pkgutil.get_data(__package__, "policy.json")  # importlib.resources takes 6 ms to import
    assert text is not None  # noqa: S101  the file is part of the package
    return msgspec.json.decode(text, type=Policy)
