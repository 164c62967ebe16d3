"""A baseline file counts at the load of its recording, and replicas should all have the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from rules.scenario import (
    NOWHERE,
    SECOND,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    Shares,
    pinned,
    prompts,
    service,
    slower,
)

EVERY = 4  # minutes: the interval of the groups about latency
RECORDED = 60.0  # requests per minute
FAMILIES = ("tpot", "e2e")
# Within the same buckets, so that only the mean tells.
SLOW: Mapping[str, Shares] = {**STEADY, "tpot": ((0.03, 0.6), (0.04, 0.39), (0.06, 0.01))}
MEAN, PAGE = "SpecDecodeP99Regression warning mean", "SpecDecodeP99Regression critical mean"
LOSS = "SpecDecodeNotPayingOff warning"
DIFFER = "SpecDecodeDataUntrusted warning baselines_differ"
LOST = "histograms_missing"
QUIET: set[str] = set()
OTHERS = {f"specdec-{name}" for name in ("curve", "replicas", "quantiles", "alerts-presence", "alerts-drafting")}
BASELINE = "inference_service:specdec_latency_seconds:mean_baseline"
FROM_FILE, FROM_HISTORY = (f'{BASELINE}{{sli="tpot",baseline_source="{source}"}}' for source in ("pinned", "history"))
DAY = 86400.0


@pytest.fixture(name="pack")
def _pack(pack: Pack) -> Pack:
    """Without groups that have nothing to do with baselines, which takes half the time.

    Most series here lack buckets, which :data:`LOST` would tell.
    """
    groups = [
        {**each, "rules": [rule for rule in each["rules"] if rule.get("labels", {}).get("reason") != LOST]}
        for each in pack.groups
        if each["name"] not in OTHERS
    ]
    return dataclasses.replace(pack, groups=groups)


def served(
    *phases: Phase, file: Mapping[str, Shares] = STEADY, labels: Mapping[str, str] | None = None
) -> list[Series]:
    """A replica, and its baseline file with its load. Of the whole requests only sum and count, which tell the load."""
    minutes = sum(phase.minutes for phase in phases)
    series = service(*phases, families=FAMILIES, labels=labels)
    series += pinned(minutes, file, requests_per_minute=RECORDED, recorded=DAY, labels=labels)
    return [
        one for one in series if not one.name.endswith(("request_latency_seconds_bucket", "first_token_seconds_bucket"))
    ]


def busy(times: float, minutes: int = 100, latency: Mapping[str, Shares] = SLOW) -> Phase:
    """So many times the requests of the recording."""
    return Phase(minutes=minutes, latency=latency, requests_per_minute=times * RECORDED)


def test_a_file_says_nothing_about_more_load_than_it_recorded(pack: Pack) -> None:
    longer: Mapping[str, Shares] = {**SLOW, "e2e": slower(STEADY["e2e"], 1.1)}
    fast: Mapping[str, Shares] = {**STEADY, "tpot": slower(STEADY["tpot"], 0.625)}
    poor = dataclasses.replace(busy(2, latency=fast), curve=(0.5, 0.3, 0.2))
    pack.run(
        Case(name="slower at its load", series=served(busy(1)), firing={55: {MEAN, PAGE}, 95: {MEAN, PAGE, LOSS}}),
        Case(
            name="slower at twice its load",
            series=served(busy(2)),
            firing=dict.fromkeys(range(15, 100, 10), QUIET),
            values={85: {FROM_FILE: None}},
        ),
        Case(
            name="each of two replicas at the load of its file",
            series=served(busy(1)) + served(busy(1), labels=SECOND),
            firing={55: {MEAN, PAGE}},
            values={55: {FROM_FILE: 0.024}},
        ),
        Case(
            name="each of two replicas at twice the load",
            series=served(busy(2), labels=NOWHERE) + served(busy(2), labels=SECOND | NOWHERE),
            firing={55: QUIET},
        ),
        Case(name="more in flight alone", series=served(busy(1.1, latency=longer)), firing={55: {MEAN, PAGE}}),
        Case(
            name="more requests, and no more in flight",
            series=served(busy(2, latency={**SLOW, "e2e": slower(STEADY["e2e"], 0.5)})),
            firing={55: {MEAN, PAGE}},
        ),
        Case(
            name="faster than without speculation, at more load",
            series=served(poor),
            firing={55: QUIET, 95: QUIET},
        ),
        every=EVERY,
    )


def test_over_hours(pack: Pack) -> None:
    """History is the baseline of a load that the file does not know. No alert comes and goes near the limit."""
    pack.run(
        Case(
            name="slower than its history, which knows the load",
            series=served(busy(2, 180, STEADY), busy(2, 70)),
            firing={180: QUIET, 245: {MEAN, PAGE}},
            values={245: {FROM_FILE: None, FROM_HISTORY: 0.024}},
        ),
        Case(
            name="as its history, and slower than the file",
            series=served(busy(2, 250)),
            firing={245: QUIET},
        ),
        Case(
            name="load up to the limit and beyond",
            series=served(*[busy(1.1, 40), busy(1.28, 40)] * 3),
            firing={minute: {MEAN, PAGE, LOSS} for minute in range(100, 240, 5)},
        ),
        Case(
            name="the same after a rush",
            series=served(busy(1.6, 40), *[busy(1.28, 40), busy(1.22, 40)] * 2),
            firing=dict.fromkeys(range(40, 200, 5), QUIET),
        ),
        every=EVERY,
    )


def test_replicas_have_the_same_file(pack: Pack) -> None:
    other: Mapping[str, Shares] = {sli: slower(shares, 3.0) for sli, shares in STEADY.items()}
    usual, late = Phase(minutes=90), Phase(minutes=90, latency=other)

    def beside(latency: Mapping[str, Shares], recorded: float) -> list[Series]:
        return pinned(90, latency, recorded=recorded, labels=SECOND)

    first = service(usual, families=FAMILIES) + pinned(90, recorded=DAY)
    pack.run(
        Case(
            name="each replica its own, of its own hardware",
            series=[*first, *service(late, families=FAMILIES, labels=SECOND), *beside(other, 2 * DAY)],
            firing={20: QUIET, 55: {DIFFER}, 85: {DIFFER}},
            values={85: {f'{BASELINE}{{sli="tpot"}}': 0.049}},  # the mean of both
        ),
        Case(
            name="one replica has none",
            series=[*first, *service(usual, families=FAMILIES, labels=SECOND)],
            firing={55: {DIFFER}},
        ),
        Case(
            name="the same",
            series=[*first, *service(usual, families=FAMILIES, labels=SECOND), *beside(STEADY, DAY)],
            firing={55: QUIET},
        ),
        every=EVERY,
    )


def test_a_file_that_is_old_or_of_something_else(pack: Pack) -> None:
    """promtool's clock begins at 0, so a file of 1969 is old."""
    old, dropped = "SpecDecodeDataUntrusted info baseline_old", "SpecDecodeAcceptanceLow warning"
    minutes, worse = 120, Phase(minutes=120, curve=(0.6, 0.5, 0.4))

    def given(recorded: float, **facts: str) -> list[Series]:
        labels = {name: text for name, text in series[0].labels.items() if name not in ("engine", "job")}
        about = Series("specdec_baseline_info", {**labels, **facts}, [1.0] * minutes)
        ratio = Series("specdec_baseline_acceptance_ratio", labels, [0.8] * minutes)
        return [
            *series,
            about,
            ratio,
            Series("specdec_baseline_recorded_timestamp_seconds", labels, [recorded] * minutes),
        ]

    series = service(worse)
    pack.run(
        Case(name="old", series=given(-61 * DAY, method="eagle3"), firing={40: {dropped}, 115: {old, dropped}}),
        Case(name="young", series=given(-59 * DAY, method="eagle3", vllm_version="0.32.0"), firing={115: {dropped}}),
        Case(name="facts unknown", series=given(0, method="", vllm_version=""), firing={115: {dropped}}),
        Case(name="another release", series=given(0, vllm_version="0.31.0"), firing={115: {old, dropped}}),
        Case(name="another method", series=given(0, method="ngram"), firing={115: {old}}),
        every=EVERY,
    )


def test_prompts_that_are_longer_than_those_of_the_recording(pack: Pack) -> None:
    longer = "SpecDecodeDataUntrusted warning prompts_longer"
    quiet: dict[int, set[str]] = {minute: set() for minute in range(40, 240, 20)}

    def case(
        name: str,
        lengths: list[float],
        *more: Series,
        recorded: float | None = 1000.0,
        requests: float = 60.0,
        firing: Mapping[int, set[str]] = quiet,
        labels: Mapping[str, str] | None = None,
    ) -> Case:
        phase = Phase(minutes=len(lengths), requests_per_minute=requests)
        own = prompts([length * requests / RECORDED for length in lengths], recorded, labels)
        return Case(name=name, series=[*service(phase, families=("ttft",), labels=labels), *own, *more], firing=firing)

    rising = [1000.0] * 60 + [1600.0] * 100 + [1000.0] * 80
    told = {100: set[str](), 150: {longer}, 239: set[str]()}
    lasting = [1600.0] * 240
    other_file = [each for each in prompts([1.0] * 240, 1200.0, SECOND) if "baseline" in each.name]
    cases = (
        case("longer for two hours", rising, firing=told),
        case("without cluster and namespace", rising, firing=told, labels=NOWHERE),
        case("a little longer", [1450.0] * 240),
        case("shorter", [200.0] * 240),
        case("a job of an hour", [1000.0] * 60 + [4000.0] * 30 + [1000.0] * 150),
        case("few requests", lasting, requests=5.0),
        case("a file that does not tell", lasting, recorded=None),
        case("the longest of two files counts", lasting, *other_file),
    )
    pack.run(*cases, every=EVERY)

    ((alert,),) = pack.fired((150, cases[0]), every=EVERY)
    assert "the mean prompt of eu-1/prod/chat (llama) has 1600 tokens" in str(alert)
    assert "it had 1000." in str(alert)
