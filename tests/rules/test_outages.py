"""Outages, restarts and stalls of hours, as a person on call judges them: told once, steadily, until they end."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from promtool import Promtool
from rules.scenario import (
    CONTROL,
    NOWHERE,
    SECOND,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    Source,
    groups_with,
    processes,
    replica,
    service,
    slower,
)

QUIET: set[str] = set()
DOWN_PAGE = "SpecDecodeTargetDown critical"
DOWN = "SpecDecodeTargetDown warning"
LOOP_PAGE = "SpecDecodeRestartLoop critical"
LOOP = "SpecDecodeRestartLoop warning"
STALLED = "SpecDecodeEngineStalled critical"
LAGGING = "SpecDecodeRulesLagging warning samples"
SEVERAL = "SpecDecodeDataUntrusted warning several_processes"
NOT_DRAFTING = "SpecDecodeNotDrafting warning"
P99 = "SpecDecodeP99Regression critical tail"
WARMING = "inference_service:specdec_warming_replicas:ratio"

# Four hours, and rules that are evaluated every other minute: these are the longest tests of the rules.
BEFORE = 20
END = BEFORE + 240
EVERY = 2
WELL = Phase(minutes=BEFORE)
ALWAYS = Phase(minutes=END)
HOURS = range(BEFORE + 20, END, 20)
PRESENCE = ("speculation", "alerts-presence", "alerts-restarts", "alerts-drafting", "alerts-pack")


def pack_of(promtool: Promtool, folder: Path, groups: Iterable[str], config: str) -> Pack:
    """Some groups of the rules: all of them take ten times as long for these hours."""
    found = groups_with(f"{{ evaluation_interval_seconds: {60 * EVERY} }} + {config}")
    return Pack(promtool, found, folder).only(*groups)


@pytest.fixture
def presence(source: Source, promtool: Promtool, tmp_path: Path) -> Pack:
    return pack_of(promtool, tmp_path, PRESENCE, f"{{ source: '{source}' }}")


def again_and_again(*phases: Phase) -> list[Phase]:
    whole = sum(phase.minutes for phase in phases)
    return [WELL, *phases * ((END - BEFORE) // whole)]


def fired(alert: str, window: str) -> str:
    """How often an alert was evaluated as firing within a window."""
    name, severity, *_ = alert.split()
    return f'max(count_over_time(ALERTS{{alertname="{name}", severity="{severity}", alertstate="firing"}}[{window}]))'


def steady(alert: str, minutes: int) -> dict[str, float | None]:
    """It fired all the time, so it began once."""
    return {f"{fired(alert, f'{minutes}m')} >= bool {minutes // EVERY}": 1}


def throughout(minutes: Iterable[int], *alerts: str) -> dict[int, set[str]]:
    return {minute: set(alerts) for minute in minutes}


def test_what_is_away_is_told_until_it_is_back(presence: Pack, source: Source) -> None:
    away, gone = Phase(minutes=240, up=False), Phase(minutes=240, present=False)

    def one(*phases: Phase, labels: dict[str, str] | None = None) -> list[Series]:
        return service(*phases, source=source, labels=labels)

    others = [each for number in range(1, 8) for each in one(ALWAYS, labels=replica(number))]
    loop = again_and_again(Phase(minutes=4, up=False), Phase(minutes=4, restart=True))
    idle = Phase(minutes=2, drafts_per_minute=0, requests_per_minute=0, running=0, restart=True)
    not_yet = Phase(minutes=BEFORE, present=False)
    presence.run(
        Case(
            name="all replicas down",
            series=one(WELL, away) + one(WELL, away, labels=SECOND),
            firing={BEFORE + 4: QUIET, BEFORE + 8: {DOWN_PAGE}} | throughout(HOURS, DOWN_PAGE, DOWN),
            values={END - 2: steady(DOWN_PAGE, 230)},
        ),
        Case(
            name="back after two hours",
            series=one(WELL, Phase(minutes=120, up=False), Phase(minutes=120, restart=True)),
            firing={BEFORE + 118: {DOWN_PAGE, DOWN}} | throughout(range(BEFORE + 128, END, 20)),
        ),
        Case(
            name="all pods gone",
            series=one(WELL, gone, labels=NOWHERE) + one(WELL, gone, labels=NOWHERE | SECOND),
            firing={BEFORE: QUIET} | throughout(HOURS, DOWN),
            values={END - 2: steady(DOWN, 220)},
        ),
        Case(
            name="scaled in",
            series=one(ALWAYS) + one(WELL, gone, labels=SECOND),
            firing=throughout(HOURS),
        ),
        Case(
            name="one of eight up and down",
            series=one(*loop) + others,
            firing=throughout(range(BEFORE + 30, END, 20), LOOP),
        ),
        Case(
            name="it dies before its first token",
            series=one(*again_and_again(Phase(minutes=4, up=False), idle)),
            firing={BEFORE + 8: QUIET} | throughout(range(BEFORE + 30, END, 10), LOOP_PAGE, LOOP),
        ),
        Case(
            name="a scrape fails now and then",
            series=one(*again_and_again(Phase(minutes=2, up=False), Phase(minutes=28))),
            firing=throughout(range(BEFORE + 30, END, 10)),
        ),
        Case(
            name="a first start of 12 minutes",
            series=one(not_yet, Phase(minutes=12, up=False), Phase(minutes=228, restart=True)),
            firing=throughout(range(0, END, 4)),
        ),
        Case(
            name="it never starts",
            series=one(not_yet, away),
            firing={BEFORE + 16: QUIET} | throughout(HOURS[1:], *((DOWN_PAGE, DOWN) if source == "exporter" else ())),
        ),
        Case(
            name="a second replica loads for 18 minutes",
            series=one(ALWAYS)
            + one(not_yet, Phase(minutes=18, up=False), Phase(minutes=222, restart=True), labels=SECOND),
            firing=throughout(range(0, END, 4)),
        ),
        Case(
            name="three minutes down in every forty",
            series=one(*again_and_again(Phase(minutes=3, up=False), Phase(minutes=37, restart=True))),
            firing=throughout(range(BEFORE + 90, END, 10), LOOP),
        ),
        Case(
            name="no scrape for 20 minutes",
            series=one(WELL, WELL, WELL, Phase(minutes=20, present=False), Phase(minutes=100)),
            values={160: {f"max_over_time({WARMING}[70m])": None}},
        ),
        Case(
            name="no drafts in every peak",
            series=one(*again_and_again(Phase(minutes=40, drafts_per_minute=0), Phase(minutes=20))),
            firing=throughout(range(BEFORE + 50, END, 10)),
            values={END - 2: {f"{fired(NOT_DRAFTING, '4h')} <= bool {40 // EVERY}": 1}},
        ),
        every=EVERY,
    )


def test_a_predictor_of_which_only_the_log_can_be_read(promtool: Promtool, tmp_path: Path) -> None:
    pack = pack_of(
        promtool, tmp_path, ("speculation", "latency", "alerts-presence", "alerts-acceptance", "alerts-pack"), "{}"
    )
    minutes = 120
    about = {"inference_service": "chat", "instance": "10.0.0.9:10409", "job": "predictors"}
    log = {"drafts": 600.0, "draft_tokens": 1800.0, "accepted_tokens": 300.0}
    by_log = [
        Series(
            f"specdec_log_{name}_total", about | {"model_name": "llama"}, [step * minute for minute in range(minutes)]
        )
        for name, step in log.items()
    ]
    pack.run(
        Case(
            name="its log alone",
            series=[
                *by_log,
                Series("specdec_up", about, [0.0] * minutes),
                Series("specdec_predictor_info", about | {"model_name": "llama", "method": "eagle3"}, [1.0] * minutes),
                Series("specdec_policy_acceptance_ratio_min", about | {"model_name": "llama"}, [0.5] * minutes),
            ],
            firing={60: {"SpecDecodeAcceptanceLow warning"}, 110: {"SpecDecodeAcceptanceLow warning"}},
        ),
        every=EVERY,
    )


def test_replicas_behind_one_target_look_like_restarts_without_the_exporter(promtool: Promtool, tmp_path: Path) -> None:
    """Nothing in vLLM's own series tells whose they are."""
    calm = Phase(minutes=END, drafts_per_minute=200, requests_per_minute=20)
    pairs = zip(service(ALWAYS, source="vllm"), service(calm, source="vllm"), strict=True)
    in_turn = [
        dataclasses.replace(
            one, values=[pair[n % 2] for n, pair in enumerate(zip(one.values, other.values, strict=True))]
        )
        for one, other in pairs
    ]
    pack = pack_of(promtool, tmp_path, PRESENCE, "{ source: 'vllm' }")
    pack.run(Case(name="in turn", series=in_turn, firing=throughout(HOURS, LOOP)), every=EVERY)


def test_several_processes_at_one_url_are_told(promtool: Promtool, tmp_path: Path) -> None:
    both = Phase(minutes=END, drafts_per_minute=800, requests_per_minute=80)
    held = 10  # minutes that the exporter remembers the last turn

    def one(known: Sequence[float | None], *phases: Phase, labels: dict[str, str] | None = None) -> list[Series]:
        return [*service(*(phases or [ALWAYS]), labels=labels), processes(known, labels)]

    def overlap(begins: int, minutes: int) -> list[float | None]:
        return [2.0 if begins <= minute < begins + minutes + held else 1.0 for minute in range(END)]

    pack_of(promtool, tmp_path, PRESENCE, "{}").run(
        Case(
            name="two, one by chance, three",
            series=one([1.0] * BEFORE + [2.0] * 60 + [1.0] * 8 + [3.0] * (END - BEFORE - 68), both),
            firing={BEFORE + 12: QUIET} | throughout(HOURS, SEVERAL),
            values={END - 2: steady(SEVERAL, 220)},
        ),
        Case(
            name="one of eight exporters",
            series=one([2.0] * END, both)
            + [each for number in range(1, 8) for each in one([1.0] * END, labels=replica(number))],
            firing=throughout(HOURS, SEVERAL),
            values={END - 2: {"count(ALERTS{reason='several_processes', alertstate='firing'})": 1}},
        ),
        Case(
            name="a rollout with an overlap of four minutes",
            series=one(overlap(60, 4), Phase(minutes=64), Phase(minutes=END - 64, restart=True)),
            firing=throughout(range(0, END, 4)),
        ),
        Case(
            name="a rollout of one exporter after the other",
            series=one(overlap(60, 4)) + one(overlap(72, 4), labels=SECOND) + one(overlap(84, 4), labels=replica(2)),
            firing=throughout(range(0, END, 4)),
        ),
        every=EVERY,
    )


def relabelled(before: Iterable[Series], after: Iterable[Series]) -> list[Series]:
    """The same target, whose own `up` has neither name nor cluster."""
    own = [one for one in before if one.name == "up"]
    rest = [one for one in (*before, *after) if one.name != "up"]
    return rest + [dataclasses.replace(one, values=[1.0] * END) for one in own]


def test_targets_that_vanish_while_readable_never_page(presence: Pack, source: Source) -> None:
    """Scaled to zero, removed, renamed: with the configuration as it is."""
    asleep, awake = Phase(minutes=10, drafts_per_minute=0, requests_per_minute=0, running=0), Phase(minutes=20)
    gone, rest = Phase(minutes=60, removed=True), Phase(minutes=END - BEFORE, removed=True)
    start = Phase(minutes=14, up=False)
    not_yet = Phase(minutes=BEFORE, present=False)
    code = {"inference_service": "code"}

    def one(*phases: Phase, labels: dict[str, str] | None = None) -> list[Series]:
        return service(*phases, source=source, labels=labels)

    presence.run(
        Case(
            name="to zero and back", series=one(*[awake, asleep, gone, start] * 2), firing=throughout(range(0, 208, 4))
        ),
        Case(
            name="its last scrape fails",
            series=one(*[awake, asleep, Phase(minutes=2, up=False), gone] * 2),
            firing=throughout(range(0, 180, 4)),
        ),
        Case(
            name="it never comes back from zero",
            series=one(awake, asleep, gone, Phase(minutes=90, up=False)),
            firing={106: QUIET} | throughout(range(116, 176, 10), DOWN_PAGE, DOWN),
        ),
        Case(
            name="removed while requests run",
            series=one(WELL, rest),
            firing={BEFORE: QUIET} | throughout(HOURS, DOWN),
        ),
        Case(
            name="removed without requests",
            series=one(dataclasses.replace(asleep, minutes=BEFORE), rest),
            firing=throughout(HOURS),
        ),
        Case(
            name="renamed",
            series=relabelled(one(WELL, rest), one(not_yet, Phase(minutes=END - BEFORE), labels=code)),
            firing=throughout(range(0, END, 10)),
        ),
        Case(
            name="given a cluster",
            series=relabelled(one(WELL, rest, labels={"cluster": ""}), one(not_yet, Phase(minutes=END - BEFORE))),
            firing=throughout(range(0, END, 10)),
        ),
        Case(
            name="unreadable before its targets vanished",
            series=one(WELL, Phase(minutes=10, up=False), Phase(minutes=230, present=False)),
            firing={BEFORE + 4: QUIET}
            | throughout(range(BEFORE + 8, BEFORE + 120, 10), DOWN_PAGE)
            | {BEFORE + 150: QUIET, END - 2: QUIET},
        ),
        every=EVERY,
    )


def test_a_ruler_without_samples_is_told_and_no_service_is(presence: Pack, source: Source) -> None:
    """Remote write is away. A ruler alone: whatever else sends samples shows that the way is open."""
    for minutes in (12, 20, 40):
        away, back = Phase(minutes=minutes, present=False), Phase(minutes=90)
        ends = BEFORE + minutes
        many = [
            each
            for name in ("chat", "code", "mail")
            for each in service(WELL, away, back, source=source, labels={"inference_service": name, "job": name})
        ]
        down = service(
            WELL,
            away,
            Phase(minutes=90, up=False),
            source=source,
            labels={"inference_service": "bad", "job": "bad"},
        )
        presence.run(
            Case(
                name="away",
                series=many,
                firing=throughout(range(0, BEFORE + 8, 4))
                | {ends - 2: {LAGGING}}
                | throughout(range(ends + 2, ends + 80, 4)),
                values={
                    ends + 80: {
                        'count(count by (alertname) (ALERTS{alertname!="SpecDecodeRulesLagging"}))': None,
                    }
                },
            ),
            every=EVERY,
        )
        presence.run(
            Case(
                name="and one does not come back",
                series=many + down,
                firing={BEFORE + 6: QUIET, ends - 2: {LAGGING}, ends + 26: {DOWN_PAGE, DOWN}},
            ),
            every=EVERY,
        )


def test_a_ruler_of_one_service_without_samples(presence: Pack, source: Source) -> None:
    """That the targets of something else are away as well tells it from a service that vanished."""
    before, away = Phase(minutes=80), Phase(minutes=30, present=False)
    node = {"cluster": "eu-1", "job": "node", "instance": "10.0.0.7:9100"}
    own = {"cluster": "eu-1", "job": "predictors", "instance": "10.0.0.1:10409"}
    series = [each for each in service(before, away, before, source=source) if each.name != "up"]
    series += [Series("up", one, [1.0] * 80 + [None] * 30 + [1.0] * 80) for one in (own, node)]
    firing = {78: QUIET, 96: {LAGGING}, 108: {LAGGING}} | throughout(range(112, 190, 4))
    presence.run(Case(name="one", series=series, firing=firing), every=EVERY)
    vanished = [dataclasses.replace(one, values=[1.0] * 190) if one.labels["job"] == "node" else one for one in series]
    presence.run(Case(name="vanished", series=vanished, firing={96: {DOWN}, 108: {DOWN}, 120: QUIET}), every=EVERY)


@pytest.mark.parametrize("minutes", [4, 6, 10])
def test_a_crash_loop_is_one_page_and_ends_soon(
    minutes: int, promtool: Promtool, source: Source, tmp_path: Path
) -> None:
    pack = pack_of(promtool, tmp_path, PRESENCE, f"{{ source: '{source}', evaluation_interval_seconds: 60 }}")
    down, up = Phase(minutes=minutes, up=False), Phase(minutes=minutes, restart=True)
    fixed = BEFORE + 2 * minutes * (90 // minutes // 2)
    series = service(WELL, *[down, up] * (90 // minutes // 2), Phase(minutes=80), source=source)
    second = BEFORE + 2 * minutes
    pack.run(
        Case(
            name="loop",
            series=series,
            firing=throughout(range(second + minutes + 4, fixed, 2), LOOP_PAGE, LOOP)
            | throughout(range(fixed + 30, fixed + 78, 4)),
            values={fixed: {fired(DOWN_PAGE, f"{fixed - second}m"): None}},
        ),
        every=1,
    )


def late(pack: Pack) -> Pack:
    """The same on a ruler that writes asynchronously: a record sees the others one evaluation late, itself two."""

    def seeing_itself_late(rule: dict[str, Any]) -> dict[str, Any]:
        own = rf"({rule.get('record', 'nothing')}\[\w+\])"
        return {**rule, "expr": re.sub(own, rf"\1 offset {EVERY + 1}m", rule["expr"])}

    alone = [
        {**group, "name": f"{group['name']}-{number}", "rules": [seeing_itself_late(rule)]}
        for group in pack.groups
        for number, rule in enumerate(group["rules"])
    ]
    return dataclasses.replace(pack, groups=alone[::-1])


def test_a_ruler_that_writes_late_tells_the_same(presence: Pack, source: Source) -> None:
    idle = Phase(minutes=10, drafts_per_minute=0, requests_per_minute=0, running=0)
    zero = (WELL, idle, Phase(minutes=60, removed=True), Phase(minutes=14, up=False))
    down, up = Phase(minutes=10, up=False), Phase(minutes=10, restart=True)

    def one(*phases: Phase) -> list[Series]:
        return service(*phases, source=source)

    late(presence).run(
        Case(
            name="down, back, and down",
            series=one(WELL, Phase(minutes=60, up=False), Phase(minutes=80), Phase(minutes=60, up=False)),
            firing={BEFORE + 4: QUIET, BEFORE + 10: {DOWN_PAGE}, BEFORE + 58: {DOWN_PAGE, DOWN}}
            | throughout(range(BEFORE + 72, BEFORE + 144, 4))
            | {BEFORE + 150: {DOWN_PAGE}},
        ),
        Case(name="to zero and back", series=one(*zero, *zero), firing=throughout(range(0, 208, 4))),
        Case(
            name="removed while requests run",
            series=one(WELL, Phase(minutes=END - BEFORE, removed=True)),
            firing=throughout(HOURS, DOWN),
        ),
        Case(name="well", series=one(ALWAYS), firing=throughout(HOURS)),  # so that samples still arrive
        Case(
            name="ten up and ten down",
            series=one(WELL, *[down, up] * 6),
            firing=throughout(range(BEFORE + 32, BEFORE + 120, 4), LOOP_PAGE, LOOP),
        ),
        every=EVERY,
    )


def test_restarts_of_different_replicas_are_no_loop(presence: Pack, source: Source) -> None:
    """One looped and was mended; another restarts once, hours later."""
    loop = again_and_again(Phase(minutes=4, up=False), Phase(minutes=4, restart=True))[:8]
    ended = sum(phase.minutes for phase in loop)
    other = (Phase(minutes=ended + 60), Phase(minutes=6, up=False), Phase(minutes=END - ended - 66, restart=True))
    series = service(*loop, Phase(minutes=END - ended), source=source) + service(*other, source=source, labels=SECOND)
    presence.run(Case(name="two", series=series, firing=throughout(range(ended + 40, END, 4))), every=EVERY)


def test_a_rolling_update_is_quiet(presence: Pack, source: Source) -> None:
    """Some replica cannot be read for 48 minutes, none of them for more than six."""
    whole = BEFORE + 8 * 6 + 30
    series = []
    for number in range(8):
        before, after = BEFORE + 6 * number, whole - BEFORE - 6 * (number + 1)
        phases = (Phase(minutes=before), Phase(minutes=6, up=False), Phase(minutes=after, restart=True))
        series += service(*phases, source=source, labels=replica(number))
    presence.run(Case(name="rolling", series=series, firing=throughout(range(0, whole, 2))), every=EVERY)


def test_a_warning_names_the_pod_and_the_container(promtool: Promtool, tmp_path: Path) -> None:
    pack = pack_of(promtool, tmp_path, ("speculation", "replicas", "alerts-presence"), "{}")
    away = Phase(minutes=60, up=False)
    lost = {"job": "predictors", "instance": "10.0.0.3:10409"}
    case = Case(
        name="two",
        series=service(Phase(minutes=80))
        + service(WELL, away, labels=replica(1))
        + service(WELL, Phase(minutes=60, present=False), labels=replica(2))
        + [Series("up", lost, [1.0] * BEFORE + [0.0] * 60)],
    )
    [alerts] = pack.fired((78, case), every=EVERY)
    assert [(one.labels["pod"], one.labels["container"]) for one in alerts] == [
        ("chat-1", "predictor"),
        ("chat-2", "specdec-exporter"),
    ]
    assert all(one.labels["pod"] in one.annotations["description"] for one in alerts)


def of_engine(series: Iterable[Series], engine: str) -> list[Series]:
    """The same of another engine of the pod."""
    own = [one for one in series if "engine" in one.labels]
    return [dataclasses.replace(one, labels={**one.labels, "engine": engine}) for one in own]


def test_an_engine_of_a_group_that_hangs_or_vanishes(promtool: Promtool, source: Source, tmp_path: Path) -> None:
    pack = pack_of(promtool, tmp_path, (*PRESENCE, "replicas"), f"{{ source: '{source}' }}")
    hung = Phase(minutes=100, drafts_per_minute=0, requests_per_minute=0, running=8)
    gone, well, minutes = Phase(minutes=100, present=False), Phase(minutes=BEFORE + 100), BEFORE + 100
    quiet = Phase(minutes=minutes, running=1)

    def group(*phases: Phase, first: Phase = well) -> list[Series]:
        return service(first, source=source) + of_engine(service(*phases, source=source), "1")

    cases = (
        Case(
            name="hung without a queue",
            series=group(WELL, hung),
            firing={BEFORE + 6: QUIET} | throughout(range(BEFORE + 14, minutes, 10), STALLED),
        ),
        Case(
            name="the only engine hung, of a busy service",
            series=service(Phase(minutes=90), hung, source=source),
            firing={96: QUIET} | throughout(range(104, 190, 10), STALLED),
        ),
        # vLLM #22545.
        Case(
            name="aborted and hardly used",
            series=group(WELL, dataclasses.replace(hung, running=2), first=quiet),
            firing=throughout(range(0, minutes, 4)),
        ),
        Case(
            name="its series vanish",
            series=group(WELL, gone),
            firing={BEFORE + 20: QUIET} | throughout(range(BEFORE + 34, minutes, 10), DOWN),
        ),
        Case(
            name="restarted with one engine",
            series=service(WELL, Phase(minutes=4, up=False), Phase(minutes=96, restart=True), source=source)
            + of_engine(service(WELL, gone, source=source), "1"),
            firing=throughout(range(0, minutes, 4)),
        ),
    )
    pack.run(*cases, every=EVERY)
    [stalled], [lost] = pack.fired((minutes - 2, cases[0]), (minutes - 4, cases[3]), every=EVERY)
    for alert in (stalled, lost):
        assert alert.labels["pod"] == "chat-0"
        assert alert.labels["engine"] == "1"
        assert "chat-0" in alert.annotations["description"]
        assert "ngine 1" in alert.annotations["description"]


def test_a_service_that_was_removed_is_forgotten_after_a_day(
    promtool: Promtool, source: Source, tmp_path: Path
) -> None:
    pack = pack_of(promtool, tmp_path, ("speculation", "alerts-presence"), f"{{ source: '{source}' }}")
    removed = [
        each
        for each in service(Phase(minutes=60), Phase(minutes=1600, present=False), source=source)
        if any(name in each.name for name in ("up", "requests_running", "generation_tokens"))
    ]
    pack.run(
        Case(name="removed", series=removed, firing={100: {DOWN}, 1480: {DOWN}, 1560: QUIET}),
        every=4,
    )


def test_counters_lost_on_friday_evening_are_told_on_monday(promtool: Promtool, tmp_path: Path) -> None:
    """Context waits for business hours."""
    pack = pack_of(promtool, tmp_path, ("speculation", "history", "alerts-pack"), "{}")
    friday, monday = 17 * 60, (3 * 24 + 9) * 60
    away, plain = Phase(minutes=5 * 24 * 60 - friday, present=False), Phase(minutes=5 * 24 * 60 - friday)
    names = ("draft", "accepted_tokens_total", "generation_tokens_total", "step_latency_seconds_count")
    series = service(Phase(minutes=friday), away) + service(
        Phase(minutes=friday, present=False), plain, speculative=False, labels=SECOND
    )
    pack.run(
        Case(
            name="lost on Friday",
            series=[each for each in series if any(name in each.name for name in names)],
            firing={monday: {"SpecDecodeDataUntrusted info counters_missing"}, 5 * 24 * 60 - 30: QUIET},
        ),
        every=30,
    )


def test_latency_speaks_through_restarts_and_gaps(promtool: Promtool, tmp_path: Path) -> None:
    pack = pack_of(
        promtool,
        tmp_path,
        ("speculation", "latency", "epoch", "baselines", "regression", "tails", "alerts-latency"),
        "{}",
    )
    slow = {**STEADY, "tpot": slower(STEADY["tpot"], 3.0)}

    def beside_a_control(*phases: Phase) -> list[Series]:
        control = service(Phase(minutes=200), speculative=False, families=("tpot",), labels=CONTROL)
        return service(*phases, families=("tpot",)) + control

    pack.run(
        Case(
            name="a restart every forty minutes",
            series=beside_a_control(
                *again_and_again(Phase(minutes=3, up=False), Phase(minutes=37, restart=True, latency=slow))
            ),
            values={198: steady(P99, 60)},
        ),
        Case(
            name="no scrape for 20 minutes",
            series=beside_a_control(
                WELL,
                Phase(minutes=70, latency=slow),
                Phase(minutes=20, present=False),
                Phase(minutes=90, latency=slow),
            ),
            values={198: steady(P99, 140)},
        ),
        every=EVERY,
    )


def test_services_without_a_name_are_named_after_their_job(promtool: Promtool, tmp_path: Path) -> None:
    pack = pack_of(promtool, tmp_path, ("speculation",), "{ source: 'vllm' }")
    nameless = {"inference_service": "", "cluster": "", "namespace": ""}

    def one(name: str, *curve: float, job: str, instance: str) -> list[Series]:
        labels = nameless | {"job": job, "pod": name, "instance": instance}
        return service(Phase(minutes=40, curve=curve), source="vllm", labels=labels)

    ratio = "inference_service:specdec_acceptance:ratio_rate30m"
    pack.run(
        Case(
            name="two jobs of one model",
            series=one("a", 0.9, 0.7, job="chat", instance="10.0.0.1:8000")
            + one("b", 0.2, 0.0, job="code", instance="10.0.0.2:8000")
            + one("c", 0.6, 0.4, job="code", instance="10.0.0.3:8000"),
            values={38: {f'{ratio}{{inference_service="chat"}}': 0.8, f'{ratio}{{inference_service="code"}}': 0.3}},
        ),
    )
