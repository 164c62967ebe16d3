"""What speculation costs and gives: break-even, speed-up, load."""

from __future__ import annotations

from collections.abc import Callable

from specdec_exporter.serving.families.family import MODEL, Group, counter, gauge
from specdec_exporter.speculation.benefit import BreakEven
from specdec_exporter.state.benefits import ModelBenefit
from specdec_exporter.state.loads import LoadTotals

_NOT_DRAFTED = "nothing was drafted in the window: an idle replica has no load to speak of"

POLICY: Group[BreakEven] = Group(  # the assumed one
    MODEL,
    (
        gauge(
            "specdec_policy_acceptance_ratio_min",
            "Acceptance rate that is assumed to break even with this method and k at the load of the window, from "
            "published services. Where the load is not known, it is the one at light load.",
            lambda b: b.acceptance_ratio,
            absent=_NOT_DRAFTED,
        ),
        gauge(
            "specdec_policy_acceptance_ratio_watch",
            "Acceptance rate from which on every published service gains, likewise. Above 1: none is enough.",
            lambda b: b.watch_acceptance_ratio,
            absent=_NOT_DRAFTED,
        ),
        gauge(
            "specdec_policy_mean_acceptance_length_min",
            "Mean acceptance length that is assumed to break even: 1 + mean draft length in the window "
            "(k without one) x `specdec_policy_acceptance_ratio_min`.",
            lambda b: b.mean_acceptance_length,
            absent=_NOT_DRAFTED,
        ),
    ),
)


_NO_COST = "no baseline without speculation; the speed-up is not known; fetch failed"

BENEFIT: Group[ModelBenefit] = Group(
    MODEL,
    (
        gauge(
            "specdec_draft_cost_ratio",
            "Cost of one more draft token / cost of a step without drafts. `measured`: over the last "
            "{policy.cost.window_seconds:g} s, against the baseline without speculation, at the same load or with the "
            "same number of clients. `assumed`: from published services, a guess.",
            lambda b: b.acceptance_ratio,
            absent=f"`measured`: {_NO_COST}; it is known by requests per second only",
            labels=("basis",),
        ),
        gauge(
            "specdec_break_even_acceptance_ratio",
            "Acceptance rate at which drafts pay for themselves. It equals the draft cost ratio.",
            lambda b: b.acceptance_ratio,
            absent="as `specdec_draft_cost_ratio`",
            labels=("basis",),
        ),
        gauge(
            "specdec_break_even_acceptance_length",
            "Mean acceptance length at which drafts pay for themselves: 1 + mean draft length (k without drafts) x "
            "draft cost ratio.",
            lambda b: b.acceptance_length,
            absent="as above, or neither k nor draft length is known",
            labels=("basis",),
        ),
        gauge(
            "specdec_speedup_ratio",
            "Speed-up of decoding over the last {policy.cost.window_seconds:g} s: seconds for a token without "
            "speculation / with it. `compared`, what is alike: `like_load`, `closed_loop` (the number of clients), "
            "`same_arrivals` (requests per second), `unlike_arrivals` (nothing). It is never assumed.",
            lambda b: b.speedup,
            absent=_NO_COST,
            labels=("basis", "compared"),
        ),
        gauge(
            "specdec_speedup_bound_ratio",
            "95 % interval of `specdec_speedup_ratio`.",
            lambda b: b.speedup_bounds,
            absent="as above",
            labels=("basis", "compared", "bound"),
        ),
        gauge(
            "specdec_speedup_known",
            "Whether the speed-up against the baseline's step times is known (1) or not (0), for instance at a load "
            "that it does not have. Then nothing else tells whether speculation pays.",
            lambda b: b.speedup_known,
            absent="no baseline without speculation, fetch failed",
        ),
    ),
)


def _of_load(read: Callable[[LoadTotals], float]) -> Callable[[ModelBenefit], dict[object, float]]:
    return lambda benefit: {bound: read(totals) for bound, totals in benefit.loads}


LOAD: Group[ModelBenefit] = Group(
    MODEL,
    (
        counter(
            "specdec_load_steps_total",
            "Request-steps at this concurrency.",
            _of_load(lambda t: t.load.steps),
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_step_seconds_total",
            "Seconds of the request-steps at this concurrency.",
            _of_load(lambda t: t.load.step_seconds),
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_tokens_total",
            "Tokens generated at this concurrency, without the first of each request.",
            _of_load(lambda t: t.load.tokens),
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_compared_seconds_total",
            "The part of `specdec_load_step_seconds_total` at loads and prompts per second near those that the "
            "baseline without speculation has.",
            _of_load(lambda t: t.compared_seconds),
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_plain_seconds_total",
            "Request-seconds that the tokens of the compared part would have taken without speculation, at the same "
            "load and the same prompts per second. Its increase / that of `specdec_load_compared_seconds_total` is the "
            "speed-up at this load.",
            _of_load(lambda t: t.plain_seconds),
            labels=("concurrency",),
        ),
    ),
    remark="`concurrency`: the upper end of the bin, in requests in decode per engine.",
)
