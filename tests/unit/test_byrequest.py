"""Acceptance by request: vLLM's histogram, which no release has yet, and what is made of it."""

from __future__ import annotations

import math
import random

import pytest

from builders import RATED_BOUNDS, known, rated_metrics
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.byrequest import RequestAcceptance, request_acceptance
from specdec_exporter.speculation.figures import figures, timed_counts_of
from specdec_exporter.speculation.findings import request_findings
from specdec_exporter.speculation.policy import load_policy

BOUNDS = tuple(map(float, RATED_BOUNDS))
POLICY = load_policy()


def spread(*requests: int) -> RequestAcceptance:
    """The spread of requests by bucket."""
    (engine,) = parse_exposition(rated_metrics(*requests)).engines
    return known(figures(timed_counts_of(engine), 3, "metrics", None).by_request)


def found(*requests: int, method: str = "eagle3") -> list[str]:
    """What is found of requests by bucket."""
    each = request_findings(spread(*requests), POLICY.for_method(method))
    assert all(finding.level == "WARN" and finding.subject == "Requests" for finding in each)
    return [finding.found for finding in each]


ORDINARY = (0, 1, 2, 5, 20, 60, 100, 120, 60, 20, 2)


def test_the_histogram_is_read_where_a_release_has_it() -> None:
    by_request = spread(*ORDINARY)
    assert by_request.requests == 390
    assert by_request.percentiles == {"p10": (0.4, 0.5), "p50": (0.6, 0.7), "p90": (0.7, 0.8)}
    assert by_request.within[:2] == ((0.0, 0.0), (0.1, 1.0))


def test_samples_of_a_window_share_the_bounds() -> None:
    (one,), (other,) = (parse_exposition(rated_metrics(*ORDINARY)).engines for _ in range(2))
    assert known(one.request_acceptance).bounds is known(other.request_acceptance).bounds


def test_a_window_counts_the_requests_that_finished_in_it() -> None:
    before = Counts(rated_bounds=(0.5, math.inf), rated_within=(3.0, 10.0))
    now = Counts(rated_bounds=(0.5, math.inf), rated_within=(4.0, 20.0))
    assert (now - before).rated_within == (1.0, 10.0)
    assert (now + before).rated_within == (7.0, 30.0)
    assert (Counts() + now).rated_within == (now + Counts()).rated_within == now.rated_within
    assert (now - Counts(rated_bounds=(0.4, math.inf), rated_within=(3.0, 10.0))).rated_within == ()
    assert Counts().or_else(now).rated_within == now.rated_within
    assert known(figures(now - before, 3, "metrics", 60.0).by_request).percentiles["p50"] == (0.5, 1.0)


def test_of_partly_verified_drafts_it_would_tell_the_load() -> None:
    (engine,) = parse_exposition(rated_metrics(60, 0, 0, 0, 0, 0, 50, 50, 50)).engines
    assert figures(timed_counts_of(engine), 3, "metrics", None, adaptive_verification=True).by_request is None


def test_without_a_finished_request_there_is_no_spread() -> None:
    assert request_acceptance(BOUNDS, (0.0,) * len(BOUNDS)) is None
    assert request_acceptance((), ()) is None


def test_a_share_needs_a_bound_near_its_end() -> None:
    coarse = known(request_acceptance((0.25, 0.75, math.inf), (10.0, 20.0, 40.0)))
    assert (coarse.share_up_to(0.1), coarse.share_above(0.9)) == (None, None)
    assert coarse.percentiles == {"p10": (0.0, 0.25), "p50": (0.25, 0.75), "p90": (0.75, 1.0)}
    fine = spread(*ORDINARY)
    assert known(fine.share_up_to(0.1)).value == pytest.approx(1 / 390)
    assert known(fine.share_above(0.9)).value == pytest.approx(2 / 390)


@pytest.mark.parametrize(
    ("requests", "findings"),
    [
        (ORDINARY, []),
        ((40, 40, *ORDINARY[2:]), ["17% of 469 requests accept next to nothing, unlike the others"]),
        ((*ORDINARY[:9], 20, 180), ["32% of 568 requests accept almost everything, unlike the others"]),
        ((0, 3, 0, 0, 0, 0, 5, 5, 0, 0, 0), []),  # 23 % of 13 requests may be chance
        ((0, 80, 200, 60, 20, 10, 0, 0, 0, 0, 0), []),  # most drafts are rejected: the verdict says it
        ((0, 0, 0, 0, 0, 2, 10, 40, 100, 200, 150), []),  # most drafts are accepted
    ],
)
def test_many_requests_that_accept_nothing_or_all_are_a_finding(requests: tuple[int, ...], findings: list[str]) -> None:
    assert found(*requests) == findings
    assert found(*requests, method="ngram") == []  # the text decides what is found in it


@pytest.mark.parametrize("mean", [0.45, 0.5, 0.6, 0.7, 0.8, 0.9])
def test_requests_that_are_as_alike_as_the_policy_assumes_are_none(mean: float) -> None:
    """Acceptance by request with the correlation of the policy (a beta distribution) is no finding at any mean."""
    chance = random.Random(29)
    size = 1 / POLICY.draft_correlation - 1
    buckets = [0] * len(BOUNDS)
    for _ in range(5000):
        rate = chance.betavariate(mean * size, (1 - mean) * size)
        buckets[next(i for i, bound in enumerate(BOUNDS) if rate <= bound)] += 1
    assert found(*buckets) == []
