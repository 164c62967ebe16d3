"""Many services at once are one incident: the pack pages once for all of them, before each would page for itself."""

from __future__ import annotations

from collections.abc import Iterator

from rules.scenario import STEADY, Case, Pack, Phase, Series, pinned, service, slower

ALL = 15
MINUTES, ONSET = 75, 45
LATE = {sli: slower(shares, 3.0) for sli, shares in STEADY.items()}


def one(number: int) -> dict[str, str]:
    name = f"chat-{number}"
    return {"inference_service": name, "pod": f"{name}-0", "instance": f"10.0.1.{number}:10409"}


def fleet(affected: int, *, files: bool = False, **wrong: object) -> Iterator[Series]:
    """So many services of all are wrong from :data:`ONSET` on; ``files``: all have a baseline."""
    for number in range(ALL):
        different = wrong if number < affected else {}
        phases = (Phase(minutes=ONSET), Phase(minutes=MINUTES - ONSET, **different))  # type: ignore[arg-type]
        yield from service(*phases, families=("tpot",) if files else (), labels=one(number))
        if files:
            yield from pinned(MINUTES, {"tpot": STEADY["tpot"]}, labels=one(number))


def count(name: str, more: str = "") -> str:
    return f'count(ALERTS{{alertname="SpecDecode{name}", alertstate="firing", severity="critical"{more}}})'


DOWN, SLOWER = (count("ManyServices", f', reason="{reason}"') for reason in ("down", "slower"))


def test_a_third_of_all_are_down(pack: Pack) -> None:
    pack.run(
        Case(
            name="third",
            series=list(fleet(5, up=False)),
            # Its page is there when theirs begin.
            values={
                ONSET + 3: {DOWN: None},
                **{minute: {f"{count('TargetDown')} unless {DOWN}": None} for minute in range(ONSET, ONSET + 20)},
                ONSET + 25: {DOWN: 1, count("TargetDown"): 5, SLOWER: None},
            },
        )
    )


def test_some_are_down(pack: Pack) -> None:
    pack.run(
        Case(name="some", series=list(fleet(4, up=False)), values={ONSET + 20: {DOWN: None, count("TargetDown"): 4}})
    )


def test_a_third_of_all_are_slower(pack: Pack) -> None:
    slow = list(fleet(5, files=True, latency=LATE))
    pack.run(
        Case(
            name="slower",
            series=slow,
            values={
                ONSET: {SLOWER: None},
                **{minute: {f"{count('P99Regression')} unless {SLOWER}": None} for minute in range(ONSET, MINUTES - 1)},
                MINUTES - 1: {SLOWER: 1, count("P99Regression"): 5, DOWN: None},
            },
        )
    )
