"""Outages, restarts and hangs of hours, as a person on call judges them: told once, steadily, until they end."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from promtool import Promtool
from rules.conftest import rendered
from rules.scenario import (
    NOWHERE,
    SECOND,
    Case,
    Pack,
    Phase,
    Series,
    Source,
    replica,
    service,
)

QUIET: set[str] = set()
DOWN_PAGE = "SpecDecodeTargetDown critical"
GONE = "SpecDecodeTargetDown warning gone"
REPLICA = "SpecDecodeTargetDown warning replica"
LOOP_PAGE = "SpecDecodeRestartLoop critical"
LOOP = "SpecDecodeRestartLoop warning"
STALLED = "SpecDecodeEngineStalled critical"

BEFORE = 20
END = BEFORE + 240
HOURS = range(BEFORE + 20, END, 20)
WELL = Phase(minutes=BEFORE)
ALWAYS = Phase(minutes=END)
REST = Phase(minutes=END - BEFORE)


@pytest.fixture
def presence(source: Source, promtool: Promtool, tmp_path: Path) -> Pack:
    return Pack(promtool, rendered(source), tmp_path).only("drafts", "alerts-up")


@pytest.fixture
def loops(presence: Pack) -> Pack:
    """Alertmanager holds back what TargetDown says meanwhile."""
    kept = [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert") in {None, "SpecDecodeRestartLoop"}]}
        for group in presence.groups
    ]
    return dataclasses.replace(presence, groups=kept)


def away(minutes: int) -> Phase:
    """The targets are there, and nothing can be read."""
    return Phase(minutes=minutes, up=False)


def gone(minutes: int) -> Phase:
    return Phase(minutes=minutes, removed=True)


def absent(minutes: int) -> Phase:
    """No samples, and nobody knows that there will be none."""
    return Phase(minutes=minutes, present=False)


def idle(minutes: int) -> Phase:
    return Phase(minutes=minutes, drafts_per_minute=0, requests_per_minute=0, running=0)


def hung(minutes: int, running: float = 8, waiting: float = 0) -> Phase:
    """Frozen: vLLM's front end serves the last gauges."""
    return dataclasses.replace(idle(minutes), running=running, waiting=waiting)


def anew(minutes: int) -> Phase:
    return Phase(minutes=minutes, restart=True)


def again_and_again(*phases: Phase) -> list[Phase]:
    whole = sum(phase.minutes for phase in phases)
    return [WELL, *phases * ((END - BEFORE) // whole)]


def throughout(minutes: Iterable[int], *alerts: str) -> dict[int, set[str]]:
    return {minute: set(alerts) for minute in minutes}


def node(minutes: int) -> Series:
    """Something else in the cluster."""
    return Series("up", {"cluster": "eu-1", "job": "node", "instance": "10.0.0.7:9100"}, [1.0] * minutes)


# --- Down -------------------------------------------------------------------------------------------------------------


def test_what_is_away_is_told_until_it_is_back(presence: Pack, source: Source) -> None:
    def one(*phases: Phase, labels: dict[str, str] | None = None) -> list[Series]:
        return service(*phases, source=source, labels=labels)

    presence.run(
        Case(
            name="all replicas down",
            series=one(WELL, away(240)) + one(WELL, away(240), labels=SECOND),
            firing={BEFORE + 4: QUIET} | throughout(range(BEFORE + 6, END, 2), DOWN_PAGE),
        ),
        Case(
            name="back after two hours",
            series=one(WELL, away(120), anew(120)),
            firing={BEFORE + 119: {DOWN_PAGE}} | throughout(range(BEFORE + 127, END, 2)),
        ),
        Case(
            name="one of two down",
            series=one(ALWAYS) + one(WELL, away(60), anew(180), labels=SECOND),
            firing={BEFORE + 19: QUIET}
            | throughout(range(BEFORE + 22, BEFORE + 60), REPLICA)
            | throughout(range(BEFORE + 66, END)),
        ),
        Case(
            name="all pods gone",
            series=[*one(WELL, absent(240), labels=NOWHERE), dataclasses.replace(node(END), labels={"job": "node"})],
            firing={BEFORE: QUIET} | throughout(range(BEFORE + 20, BEFORE + 115, 5), GONE) | {BEFORE + 125: QUIET},
        ),
        Case(name="it never starts", series=one(absent(20), away(240)), firing={38: QUIET, 42: {DOWN_PAGE}}),
        Case(
            name="unreadable before its targets vanished",
            series=one(WELL, away(10), absent(230)),
            firing={BEFORE + 4: QUIET, BEFORE + 8: {DOWN_PAGE}}
            | throughout(range(BEFORE + 30, BEFORE + 115, 5), GONE)
            | {BEFORE + 125: QUIET},
        ),
        every=1,
    )


def test_what_is_no_outage_is_quiet(presence: Pack, source: Source) -> None:
    def one(*phases: Phase, labels: dict[str, str] | None = None) -> list[Series]:
        return service(*phases, source=source, labels=labels)

    rolling: list[Series] = []
    for number in range(8):  # some replica is away for 48 minutes, and none for more than six
        rolling += one(Phase(minutes=30 + 6 * number), away(6), anew(END - 36 - 6 * number), labels=replica(number))
    series = {
        "scaled in": one(ALWAYS) + one(WELL, gone(240), labels=SECOND),
        "a scrape fails now and then": one(*again_and_again(away(2), Phase(minutes=28))),
        "a first start of 12 minutes": one(absent(20), away(12), anew(228)),
        "a second replica loads for 18 minutes": one(ALWAYS) + one(absent(20), away(18), anew(222), labels=SECOND),
        "a rolling update": rolling,
        "to zero and back": one(*[WELL, idle(10), gone(60), away(14)] * 2),
        "to zero for a quarter of an hour": one(WELL, idle(10), gone(15), away(14), anew(150)),
        "its last scrape fails": one(*[WELL, idle(10), away(2), gone(60)] * 2),
        "one of two goes then the idle other": one(Phase(minutes=30), idle(8), gone(60))
        + one(Phase(minutes=30), gone(60), labels=SECOND),
        "removed without requests": one(idle(20), gone(240)),
    }
    presence.run(
        *(Case(name=name, series=each, firing=throughout(range(0, 208, 2))) for name, each in series.items()),
        every=1,
    )


def test_it_does_not_come_back_from_zero(presence: Pack, source: Source) -> None:
    series = service(WELL, idle(10), gone(60), away(90), source=source)
    firing = throughout(range(106)) | throughout(range(112, 180), DOWN_PAGE)
    presence.run(Case(name="zero", series=series, firing=firing), every=1)


def test_the_last_replica_made_anew_is_no_service_that_vanished(presence: Pack, source: Source) -> None:
    first = service(WELL, gone(100), source=source)
    other = service(absent(22), away(3), anew(95), source=source, labels=replica(7))
    presence.run(Case(name="anew", series=first + other, firing=throughout(range(120))), every=1)


def test_both_prefill_pods_down_are_told_and_their_replicas_are_not(presence: Pack, source: Source) -> None:
    series = service(Phase(minutes=80), source=source, labels={"llm_isvc_role": "decode"})
    for number in (1, 2):
        labels = {"llm_isvc_role": "prefill"} | replica(number)
        series += service(WELL, away(60), source=source, labels=labels)
    firing = {BEFORE + 4: QUIET} | throughout(range(BEFORE + 6, 80), DOWN_PAGE)
    presence.run(Case(name="prefill", series=series, firing=firing), every=1)
    [[alert]] = presence.fired((78, Case(name="prefill", series=series)))
    assert alert.annotations["summary"] == "eu-1/prod/chat (prefill) is down: no replica answers."


def test_a_whole_service_down_tells_no_replica_that_others_carry_its_load(presence: Pack, source: Source) -> None:
    pods = [each for number in range(3) for each in service(WELL, away(60), source=source, labels=replica(number))]
    [alerts] = presence.fired((78, Case(name="down", series=pods)))
    assert [(one.labels["severity"], one.labels.get("reason")) for one in alerts] == [("critical", None)]


def test_a_ticket_names_the_pod(presence: Pack, source: Source) -> None:
    series = service(Phase(minutes=80), source=source) + service(WELL, away(60), source=source, labels=replica(1))
    lost = [one for one in service(WELL, away(60), labels=replica(2)) if one.name == "up"]
    series += [dataclasses.replace(lost[0], values=[1.0] * BEFORE + [0.0] * 60)]
    [alerts] = presence.fired((78, Case(name="two", series=series)))
    assert [one.annotations["summary"] for one in alerts] == [
        "Pod chat-1 of eu-1/prod/chat does not answer.",
        "Pod chat-2 of eu-1/prod/chat does not answer.",
    ]


def test_a_predictor_of_which_only_the_log_can_be_read_is_not_down(promtool: Promtool, tmp_path: Path) -> None:
    """Its counters come from the log then. When that ends as well, it is."""
    drafted = ("draft", "accepted")
    series = service(Phase(minutes=120), absent(40))
    logged = [one for one in series if any(part in one.name for part in drafted)]
    logged += [dataclasses.replace(one, values=[0.0] * 160) for one in series if one.name == "specdec_up"]
    pack = Pack(promtool, rendered("exporter"), tmp_path).only("drafts", "alerts-up")
    firing = throughout(range(30, 120)) | {130: {DOWN_PAGE}}
    pack.run(Case(name="log", series=logged, firing=firing), every=1)


# --- Whose samples? ---------------------------------------------------------------------------------------------------


def test_samples_that_stop_are_no_outage_of_services(presence: Pack, source: Source) -> None:
    """Remote write is away, or Prometheus is: for 12 minutes, for 40, for good."""
    for minutes in (12, 40, 200):
        many = [
            each
            for name in ("chat", "code", "mail")
            for each in service(
                WELL, absent(minutes), Phase(minutes=60), source=source, labels={"inference_service": name, "job": name}
            )
        ]
        bad = service(WELL, absent(minutes), away(60), source=source, labels={"inference_service": "bad", "job": "bad"})
        presence.run(
            Case(name="away", series=many, firing=throughout(range(0, BEFORE + minutes + 60, 2))),
            Case(
                name="and one does not come back",
                series=bad,
                firing=throughout(range(BEFORE + minutes + 4)) | {BEFORE + minutes + 21: {DOWN_PAGE}},
            ),
            every=1,
        )


def test_a_service_that_vanishes_alone_is_told(presence: Pack, source: Source) -> None:
    series = service(Phase(minutes=80), absent(60), source=source)
    firing = {90: QUIET, 97: {GONE}, 138: {GONE}}
    presence.run(Case(name="alone", series=[*series, node(140)], firing=firing), every=1)


def test_targets_of_one_address_in_two_clusters_are_not_mixed(presence: Pack, source: Source) -> None:
    """Pods and services of the same names; some have no label of a service."""
    for named in ("chat", "") if source == "vllm" else ("chat",):
        series = []
        for cluster, last in (("a", Phase(minutes=60)), ("b", away(60))):
            series += service(WELL, last, source=source, labels={"cluster": cluster, "inference_service": named})
        [alerts] = presence.fired((78, Case(name="two", series=series)))
        assert [(one.labels["alertname"], one.labels["cluster"]) for one in alerts] == [("SpecDecodeTargetDown", "b")]


def test_a_pod_is_not_held_against_one_of_another_cluster(presence: Pack, source: Source) -> None:
    """In `a` a target was scaled in; one with its address cannot be reached in `b`."""
    series = []
    for cluster, last in (("a", gone(60)), ("b", away(60))):
        series += service(Phase(minutes=80), source=source, labels={"cluster": cluster})
        series += service(WELL, last, source=source, labels=SECOND | {"cluster": cluster})
    [alerts] = presence.fired((78, Case(name="two", series=series)))
    assert [(one.labels["pod"], one.labels["cluster"]) for one in alerts] == [("chat-1", "b")]


def test_a_service_at_zero_is_not_down_where_another_has_its_address(presence: Pack, source: Source) -> None:
    code = {"inference_service": "code", "pod": "code-0"}
    series = service(WELL, idle(10), gone(70), source=source)
    series += service(absent(30), Phase(minutes=20), away(50), source=source, labels=code)
    [alerts] = presence.fired((80, Case(name="zero", series=series)))
    assert [one.labels["inference_service"] for one in alerts] == ["code"]


def test_services_without_a_label_are_named_after_their_job(promtool: Promtool, tmp_path: Path) -> None:
    pack = Pack(promtool, rendered("vllm"), tmp_path).only("drafts", "alerts-up")

    def one(pod: str, *phases: Phase, job: str, instance: str) -> list[Series]:
        labels = NOWHERE | {"inference_service": "", "job": job, "pod": pod, "instance": instance}
        return service(*phases, source="vllm", labels=labels)

    low = Phase(minutes=80, curve=(0.2, 0.0))
    series = one("a", WELL, away(60), job="chat", instance="10.0.0.1:8000")
    series += one("b", low, job="code", instance="10.0.0.2:8000")
    series += one("c", low, job="code", instance="10.0.0.3:8000")
    other = Series("up", {"job": "node", "instance": "10.0.0.7:9100"}, [1.0] * BEFORE + [0.0] * 60)
    ratio = 'inference_service:specdec_acceptance:ratio30m{inference_service="code"}'
    case = Case(name="jobs", series=[*series, other], values={78: {ratio: 0.1}}, firing={78: {DOWN_PAGE}})
    pack.run(case, every=1)
    [[alert]] = pack.fired((78, case))
    assert alert.annotations["summary"] == "chat is down: no replica answers."


# --- Restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [4, 6, 10])
def test_a_crash_loop_is_one_page_and_ends_soon(minutes: int, loops: Pack, source: Source) -> None:
    times = 90 // minutes // 2
    third, fixed = BEFORE + 4 * minutes, BEFORE + 2 * minutes * times
    series = service(WELL, *[away(minutes), anew(minutes)] * times, Phase(minutes=130), source=source)
    firing = throughout(range(third + 2, fixed), LOOP_PAGE, LOOP)
    firing |= throughout(range(fixed + 30, fixed + 48), LOOP) | throughout(range(fixed + 68, fixed + 130))
    loops.run(Case(name="loop", series=series, firing=firing), every=1)


def test_restarts_that_are_told_to_nobody_at_night(loops: Pack, source: Source) -> None:
    """Tickets where other replicas answer, or it is seldom; nothing for single restarts."""
    one_of_eight = service(*again_and_again(away(4), anew(4)), source=source)
    for number in range(1, 8):
        one_of_eight += service(ALWAYS, source=source, labels=replica(number))
    ended = BEFORE + 4 * 8
    two = service(*again_and_again(away(4), anew(4))[:9], Phase(minutes=END - ended), source=source)
    two += service(Phase(minutes=ended + 60), away(6), anew(END - ended - 66), source=source, labels=SECOND)
    seldom = service(*again_and_again(away(3), anew(37)), source=source)
    loops.run(
        Case(name="one of eight", series=one_of_eight, firing=throughout(range(BEFORE + 30, END, 2), LOOP)),
        Case(name="every forty minutes", series=seldom, firing=throughout(range(BEFORE + 90, END, 2), LOOP)),
        Case(name="one looped, later another restarts", series=two, firing=throughout(range(ended + 65, END, 2))),
        every=1,
    )


def test_it_dies_before_its_first_token(loops: Pack, source: Source) -> None:
    """Then no counter begins again."""
    series = service(*again_and_again(away(4), dataclasses.replace(idle(2), restart=True)), source=source)
    firing = {BEFORE + 4: QUIET} | throughout(range(BEFORE + 20, END, 2), LOOP_PAGE, LOOP)
    loops.run(Case(name="never", series=series, firing=firing), every=1)


@pytest.mark.parametrize("every", [3, 4])
def test_scrapes_that_time_out_are_no_critical_restart_loop(every: int, loops: Pack, source: Source) -> None:
    """And the text says what it is."""
    series = service(*again_and_again(away(1), Phase(minutes=every - 1)), source=source)
    about = next(one.labels for one in series if one.name == "up")
    timeouts = [float(max(0, (minute - BEFORE + every) // every)) for minute in range(END)]
    series.append(Series("specdec_fetch_failures_total", about | {"reason": "timeout"}, timeouts))
    case = Case(name="timeouts", series=series, firing=throughout(range(BEFORE + 20, 250, 2), LOOP))
    loops.run(case, every=1)
    if source == "exporter":
        [[alert]] = loops.fired((240, case))
        told = alert.annotations["description"]
        assert told.startswith(
            f"In 3h, chat-0 restarted 0 times, and chat-0 could not be read {180 // every} times. In 30m, "
        )
        assert re.search(r", (7|8|10) of 3[01] fetches failed, most with: timeout\.$", told)


def test_replicas_behind_one_target_look_like_restarts_without_the_exporter(promtool: Promtool, tmp_path: Path) -> None:
    """Nothing in vLLM's own series tells whose they are."""
    calm = Phase(minutes=END, drafts_per_minute=200, requests_per_minute=20)
    in_turn = [
        dataclasses.replace(
            one, values=[both[n % 2] for n, both in enumerate(zip(one.values, other.values, strict=True))]
        )
        for one, other in zip(service(ALWAYS, source="vllm"), service(calm, source="vllm"), strict=True)
    ]
    pack = Pack(promtool, rendered("vllm"), tmp_path).only("drafts", "alerts-up")
    pack.run(Case(name="in turn", series=in_turn, firing=throughout(HOURS, LOOP)), every=2)


def test_a_ruler_whose_alerts_see_records_late_tells_the_same(presence: Pack, source: Source) -> None:
    late = dataclasses.replace(presence, groups=presence.groups[::-1])
    down = service(WELL, away(60), Phase(minutes=80), away(60), source=source)
    firing = {BEFORE + 4: QUIET, BEFORE + 7: {DOWN_PAGE}, BEFORE + 59: {DOWN_PAGE}}
    firing |= throughout(range(BEFORE + 67, BEFORE + 144)) | {BEFORE + 147: {DOWN_PAGE}}
    zero = service(*[WELL, idle(10), gone(60), away(14)] * 2, source=source)
    late.run(
        Case(name="down, back, and down", series=down, firing=firing),
        Case(name="to zero and back", series=zero, firing=throughout(range(208))),
        every=1,
    )


# --- Engines ----------------------------------------------------------------------------------------------------------


def of_engine(series: Iterable[Series], engine: str) -> list[Series]:
    """The same of another engine of the pod."""
    own = [one for one in series if "engine" in one.labels]
    return [dataclasses.replace(one, labels={**one.labels, "engine": engine}) for one in own]


def test_an_engine_that_hangs_is_paged(presence: Pack, source: Source) -> None:
    long = BEFORE + 100

    def group(*phases: Phase, first: Phase = Phase(minutes=long)) -> list[Series]:  # noqa: B008
        return service(first, source=source) + of_engine(service(*phases, source=source), "1")

    hangs = {BEFORE + 6: QUIET} | throughout(range(BEFORE + 14, long), f"{STALLED} running")
    busy = Phase(minutes=90)
    cases = (
        Case(name="one of two, without a queue", series=group(WELL, hung(100)), firing=hangs),
        Case(
            name="one of two, with a queue",
            series=group(WELL, hung(100, 0, 5)),
            firing={BEFORE + 6: QUIET} | throughout(range(BEFORE + 14, long), f"{STALLED} waiting"),
        ),
        Case(
            name="the only one, of a busy service",
            series=service(busy, hung(100), Phase(minutes=10), source=source),
            firing={96: QUIET} | throughout(range(102, 190), f"{STALLED} service") | {199: QUIET},
        ),
    )
    presence.run(*cases, every=1)
    [alerts] = presence.fired((long - 2, cases[0]))
    assert [one.annotations["summary"] for one in alerts] == [
        "Engine 1 of pod chat-0 (eu-1/prod/chat (llama)) hangs: 8 requests run."
    ]


def test_numbers_that_stay_after_all_clients_gave_up_page_nobody(presence: Pack, source: Source) -> None:
    """vLLM #22545: requests still run, it says."""
    long = 200
    once = Phase(minutes=long, running=1)
    hardly = service(once, source=source) + of_engine(service(WELL, hung(180, 2), source=source), "1")
    twice = service(Phase(minutes=65), idle(10), Phase(minutes=5), hung(120), source=source)
    short = service(idle(40), Phase(minutes=20), hung(140), source=source)
    for name, series in (("hardly used", hardly), ("busy, idle, and a few", twice), ("idle before", short)):
        presence.run(Case(name=name, series=series, firing=throughout(range(0, long, 2))), every=1)


def test_adapters_that_come_and_go_tell_nobody_to_restart_a_pod(presence: Pack, source: Source) -> None:
    lora = {"model_name": "adapter-a"}
    comes = service(absent(30), Phase(minutes=30), absent(60), source=source, labels=lora)
    used = service(Phase(minutes=30), idle(90), source=source, labels=lora | {"model_name": "adapter-b"})
    never = service(idle(120), source=source, labels=lora | {"model_name": "adapter-c"})
    own = [one for one in (*comes, *used, *never) if "generation_tokens" in one.name]
    case = Case(name="lora", series=service(Phase(minutes=120), source=source) + own, firing=throughout(range(120)))
    presence.run(case, every=1)


def test_an_engine_that_is_not_started_again_is_nobodys_page(presence: Pack, source: Source) -> None:
    series = service(WELL, away(4), anew(96), source=source) + of_engine(service(WELL, absent(100), source=source), "1")
    presence.run(Case(name="one engine", series=series, firing=throughout(range(120))), every=1)
