"""Many services at once are one incident: the pack pages once for all of them, before each would page for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from rules.conftest import RENDERED
from rules.scenario import NOWHERE, STEADY, Case, Pack, Phase, Series, Shares, pinned, rule_groups, service, slower
from rules.test_outages import EVERY, late

pytestmark = pytest.mark.slow

Latency = Mapping[str, Shares]

ONSET = 45
SLOW = {"tpot": slower(STEADY["tpot"], 1.5)}


def named(number: int) -> dict[str, str]:
    return {"inference_service": f"chat-{number:03}"}


def unreadable(number: int, onset: int, mended: int, ends: int, place: Mapping[str, str]) -> Series:
    """Whether one service could be read: nothing else is needed to know that it is down."""
    labels = {"cluster": "eu-1", "namespace": "prod", "job": "predictors", "instance": f"10.0.{number}.1:10409"}
    given = {name: value for name, value in {**labels, **named(number), **place}.items() if value}
    return Series("specdec_up", given, [float(not onset <= minute < mended) for minute in range(ends)])


def fleet(
    everybody: int,
    affected: int,
    place: Mapping[str, str] | None = None,
    *,
    mended: Callable[[int], int] = lambda _: 999,
    ends: int = 75,
) -> list[Series]:
    """Some of all cannot be read from :data:`ONSET` on: scrapes and evaluations see it within two minutes."""
    return [
        unreadable(number, ONSET + number % 3 if number < affected else 999, mended(number), ends, place or {})
        for number in range(everybody)
    ]


def count(name: str, more: str = "") -> str:
    return f'count(ALERTS{{alertname="SpecDecode{name}", alertstate="firing", severity="critical"{more}}})'


DOWN, SLOWER = (count("ManyServices", f', reason="{reason}"') for reason in ("down", "slower"))


@pytest.mark.parametrize("place", [{}, NOWHERE], ids=["labelled", "bare"])
def test_fifty_that_fall_within_two_minutes_are_one_page_before_any_of_their_own(
    place: dict[str, str], pack: Pack
) -> None:
    alone = f"{count('TargetDown')} unless {DOWN}"
    pack.run(
        Case(
            name="fifty",
            series=fleet(150, 50, place),
            values={
                ONSET + 4: {DOWN: None},  # not before one of them would page
                **{minute: {alone: None} for minute in range(ONSET, 74)},
                74: {DOWN: 1, count("TargetDown"): 50, SLOWER: None},
            },
        ),
        every=1,
    )


def test_a_ruler_that_writes_late_pages_once_too(pack: Pack) -> None:
    """Each rule sees the records of the evaluation before."""
    down, slow = (f"{count(name)} unless {many}" for name, many in (("TargetDown", DOWN), ("P99Regression", SLOWER)))
    late(pack).run(
        Case(
            name="fifty",
            series=fleet(150, 50),
            values={m: {down: None} for m in range(ONSET + 1, 74, EVERY)} | {74: {DOWN: 1, count("TargetDown"): 50}},
        ),
        every=EVERY,
    )
    late(pack).run(
        Case(
            name="slower",
            series=list(slowly(5, late=1)),
            values={m: {slow: None} for m in range(ONSET + 1, 98, EVERY)} | {98: {SLOWER: 1}},
        ),
        every=EVERY,
    )


def test_a_few_page_for_themselves(pack: Pack) -> None:
    """Neither three of fifty, nor a fifth of a few, nor ten of a hundred."""
    for everybody, affected in ((50, 3), (15, 4), (100, 10)):
        few = Case(
            name="few",
            series=fleet(everybody, affected),
            values={70: {DOWN: None, count("TargetDown"): affected}},
        )
        pack.run(few)


def test_a_blip_that_nobody_pages_for(pack: Pack) -> None:
    blip = fleet(50, 25, mended=lambda _: ONSET + 5)
    pack.run(Case(name="blip", series=blip, values={m: {DOWN: None} for m in range(ONSET, 60)}), every=1)


def test_pages_of_those_that_are_well_again_do_not_follow(pack: Pack) -> None:
    """They go on for five minutes; some stay down, and page when the page of all is over."""
    back = fleet(150, 50, mended=lambda number: 999 if number < 3 else 70 + number // 10, ends=110)
    alone = f"{count('TargetDown')} unless {DOWN}"
    pack.run(
        Case(
            name="back",
            series=back,
            values={
                **{minute: {alone: None} for minute in range(ONSET, 86)},
                109: {DOWN: None, count("TargetDown"): 3},
            },
        ),
        every=1,
    )


def test_it_names_the_first_dozen_and_their_number(pack: Pack) -> None:
    (down,) = (
        alert for alert in pack.fired((74, Case(name="x", series=fleet(60, 20))))[0] if "ManyServices" in str(alert)
    )
    text = down.annotations["description"]

    names = " ".join(f"prod/chat-{number:03}" for number in range(12))
    assert text == f"20 services cannot be read in eu-1: {names} and others."


def slowly(affected: int, *, late: int = 0, restart: bool = False, slow: Latency = SLOW) -> Iterator[Series]:
    """Fifteen services with a baseline file, some of them slower from :data:`ONSET` on, each ``late`` minutes later."""
    for number in range(15):
        onset = ONSET + late * number
        latency = slow if number < affected else STEADY
        phases = (Phase(minutes=onset), Phase(minutes=100 - onset, latency=latency, restart=restart))
        labels = {**named(number), "pod": f"chat-{number}-0", "instance": f"10.0.1.{number}:10409"}
        yield from service(*phases, families=slow, labels=labels)
        yield from pinned(100, {sli: STEADY[sli] for sli in slow}, labels=labels)


@pytest.mark.parametrize(
    "wrong", [{}, {"late": 1}, {"restart": True}], ids=["at once", "within minutes", "after a restart"]
)
def test_a_third_that_are_slower_are_one_page(wrong: dict[str, int], pack: Pack) -> None:
    alone = f"{count('P99Regression')} unless {SLOWER}"
    pack.run(
        Case(
            name="slower",
            series=list(slowly(5, **wrong)),  # type: ignore[arg-type]
            values={
                ONSET: {SLOWER: None},
                **{minute: {alone: None} for minute in range(ONSET, 100, 2)},
                98: {SLOWER: 1, count("P99Regression"): 5, DOWN: None},
            },
        )
    )


def test_longer_answers_of_many_are_no_page(pack: Pack) -> None:
    longer = {"tpot": STEADY["tpot"], "e2e": slower(STEADY["e2e"], 2.5)}
    values = {98: {SLOWER: None, count("P99Regression"): None}}
    pack.run(Case(name="answers", series=list(slowly(6, slow=longer)), values=values))


def test_a_few_that_are_slower_page_for_themselves(pack: Pack) -> None:
    pack.run(Case(name="few", series=list(slowly(4)), values={98: {SLOWER: None, count("P99Regression"): 4}}))


@pytest.mark.parametrize("file", ["specdec", "specdec-vllm"])
def test_it_is_evaluated_in_the_group_of_what_it_replaces_before_it(file: str) -> None:
    """Groups begin at different seconds of their interval: another could be a minute behind."""
    replaced = {"down": "SpecDecodeTargetDown", "slower": "SpecDecodeP99Regression"}
    for group in rule_groups(RENDERED / f"{file}.rules.yaml"):
        names = [rule.get("alert") for rule in group["rules"]]
        for rule in group["rules"]:
            if rule.get("alert") == "SpecDecodeManyServices":
                assert names.index(rule["alert"]) < names.index(replaced.pop(rule["labels"]["reason"]))
    assert replaced == {}
