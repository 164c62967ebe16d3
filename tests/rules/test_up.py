"""Outages, restarts and hangs of hours, as a person on call judges them: told once, steadily, until they end."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from rules.scenario import NOWHERE, SECOND, Case, Pack, Phase, Series, Source, groups_with, replica, service
from support.promtool import Promtool

QUIET: set[str] = set()
DOWN_PAGE = "SpecDecodeTargetDown critical"
GONE = "SpecDecodeTargetDown warning gone"
REPLICA = "SpecDecodeTargetDown warning replica"
LOOP_PAGE = "SpecDecodeRestartLoop critical"
LOOP = "SpecDecodeRestartLoop warning"
STALLED = "SpecDecodeEngineStalled critical"
Life = Callable[..., list[Series]]
BEFORE = 20
END = BEFORE + 240
WELL = Phase(minutes=BEFORE)
ALWAYS = Phase(minutes=END)


@pytest.fixture
def life(source: Source) -> Life:
    """Phases of a replica, told by either source."""
    return partial(service, source=source)


@pytest.fixture
def presence(either_pack: Pack) -> Pack:
    return either_pack.only("drafts", "alerts-up", "alerts-restarts")


@pytest.fixture
def loops(presence: Pack) -> Pack:
    """Alertmanager holds back what TargetDown says meanwhile."""
    return presence.alone("SpecDecodeRestartLoop")


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


def late(pack: Pack) -> Pack:
    """A ruler whose alerts see each record one evaluation late."""
    return dataclasses.replace(pack, groups=pack.groups[::-1])


def unscraped(life: Life, number: int) -> list[Series]:
    """A target that ceases to answer Prometheus itself."""
    series = life(WELL, gone(240), labels=replica(number))
    up = {one.name: [1.0] * BEFORE + [0.0] * 240 for one in series if one.name == "up"}
    return [dataclasses.replace(one, values=up.get(one.name, one.values)) for one in series]


def of_engine(series: Iterable[Series], engine: str) -> list[Series]:
    """The same of another engine of the pod."""
    own = [one for one in series if "engine" in one.labels]
    return [dataclasses.replace(one, labels={**one.labels, "engine": engine}) for one in own]


# --- Down -------------------------------------------------------------------------------------------------------------


def test_what_is_away_is_told_until_it_is_back(presence: Pack, life: Life) -> None:
    nowhere = Series("up", {"job": "node", "instance": "10.0.0.7:9100"}, [1.0] * END)
    vanished = throughout(range(BEFORE + 30, BEFORE + 115, 5), GONE) | {BEFORE + 125: QUIET}
    late_page = throughout(range(112, 180), DOWN_PAGE)
    down = {BEFORE + 4: QUIET} | throughout(range(BEFORE + 6, END, 2), DOWN_PAGE)
    cases = (
        Case(name="all down", series=life(WELL, away(240)) + life(WELL, away(240), labels=SECOND), firing=down),
        Case(name="no target answers", series=unscraped(life, 0) + unscraped(life, 1), firing=down),
        Case(
            name="back after two hours",
            series=life(WELL, away(120), anew(120)),
            firing={BEFORE + 119: {DOWN_PAGE}} | throughout(range(BEFORE + 127, END, 2)),
        ),
        Case(
            name="one of two down",
            series=life(ALWAYS) + life(WELL, away(60), anew(180), labels=SECOND),
            firing={BEFORE + 19: QUIET}
            | throughout(range(BEFORE + 22, BEFORE + 60), REPLICA)
            | throughout(range(BEFORE + 66, END)),
        ),
        Case(
            name="all pods gone",
            series=[*life(WELL, absent(240), labels=NOWHERE), nowhere],
            firing={BEFORE + 10: QUIET, BEFORE + 17: {GONE}} | vanished,
        ),
        Case(
            name="unreadable before its targets vanished",
            series=life(WELL, away(10), absent(230)),
            firing={BEFORE + 4: QUIET, BEFORE + 8: {DOWN_PAGE}} | vanished,
        ),
        Case(name="it never starts", series=life(absent(20), away(240)), firing={38: QUIET, 42: {DOWN_PAGE}}),
        Case(
            name="not back from zero", series=life(WELL, idle(10), gone(60), away(90)), firing={108: QUIET} | late_page
        ),
    )
    for pack in (presence, late(presence)):
        pack.run(*cases, every=1)


def test_what_is_no_outage_is_quiet(presence: Pack, life: Life) -> None:
    rolling: list[Series] = []
    for number in range(8):  # some replica is away for 48 minutes, and none for more than six
        rolling += life(Phase(minutes=30 + 6 * number), away(6), anew(END - 36 - 6 * number), labels=replica(number))
    series = {
        "scaled in": life(ALWAYS) + life(WELL, gone(240), labels=SECOND),
        "a scrape fails now and then": life(*again_and_again(away(2), Phase(minutes=28))),
        "a first start of 12 minutes": life(absent(20), away(12), anew(228)),
        "a second replica loads for 18 minutes": life(ALWAYS) + life(absent(20), away(18), anew(222), labels=SECOND),
        "a rolling update": rolling,
        "to zero and back": life(*[WELL, idle(10), gone(60), away(14)] * 2),
        "to zero for six minutes": life(WELL, idle(10), gone(6), away(14), anew(160)),
        "its last scrape fails": life(*[WELL, idle(10), away(2), gone(60)] * 2),
        "one of two goes then the idle other": life(Phase(minutes=30), idle(8), gone(60))
        + life(Phase(minutes=30), gone(60), labels=SECOND),
        "removed without requests": life(idle(20), gone(240)),
        "started again with one engine": life(WELL, away(4), anew(220)) + of_engine(life(WELL, absent(220)), "1"),
    }
    cases = [Case(name=name, series=each, firing=throughout(range(0, 208, 2))) for name, each in series.items()]
    for pack in (presence, late(presence)):
        pack.run(*cases, every=1)


def test_the_last_replica_made_anew_is_no_service_that_vanished(presence: Pack, life: Life) -> None:
    series = life(WELL, gone(100)) + life(absent(22), away(3), anew(95), labels=replica(7))
    presence.run(Case(name="anew", series=series, firing=throughout(range(120))), every=1)


def test_both_prefill_pods_down_are_told_and_their_replicas_are_not(presence: Pack, life: Life) -> None:
    series = life(Phase(minutes=80), labels={"llm_isvc_role": "decode"})
    for number in (1, 2):
        series += life(WELL, away(60), labels={"llm_isvc_role": "prefill"} | replica(number))
    case = Case(name="prefill", series=series, firing={24: QUIET} | throughout(range(26, 80), DOWN_PAGE))
    presence.run(case, every=1)
    [[alert]] = presence.fired((78, case))
    assert alert.annotations["summary"] == "eu-1/prod/chat (prefill) is down: no replica answers."


def test_a_whole_service_down_tells_no_replica_that_others_carry_its_load(presence: Pack, life: Life) -> None:
    pods = [each for number in range(3) for each in life(WELL, away(60), labels=replica(number))]
    [alerts] = presence.fired((78, Case(name="down", series=pods)))
    assert [(one.labels["severity"], one.labels.get("reason")) for one in alerts] == [("critical", None)]


def test_a_ticket_names_the_pod(presence: Pack, life: Life) -> None:
    series = life(Phase(minutes=80)) + life(WELL, away(60), labels=replica(1))
    [alerts] = presence.fired((78, Case(name="two", series=series + unscraped(life, 2))))
    assert [one.annotations["summary"] for one in alerts] == [
        "Pod chat-1 of eu-1/prod/chat does not answer.",
        "Pod chat-2 of eu-1/prod/chat does not answer.",
    ]


def test_a_predictor_of_which_only_the_log_can_be_read_is_not_down(pack: Pack) -> None:
    """Its counters come from the log then. When that ends as well, it is."""
    series = service(Phase(minutes=120), absent(40))
    logged = [one for one in series if "draft" in one.name or "accepted" in one.name]
    logged += [dataclasses.replace(one, values=[0.0] * 160) for one in series if one.name == "specdec_up"]
    case = Case(name="log", series=logged, firing=throughout(range(30, 120)) | {130: {DOWN_PAGE}})
    pack.only("drafts", "alerts-up", "alerts-restarts").run(case, every=1)


@pytest.mark.parametrize("minutes", [12, 40, 200])
def test_samples_that_stop_are_no_outage_of_services(minutes: int, presence: Pack, life: Life) -> None:
    """Remote write is away, or Prometheus is. One service does not come back after it."""
    back = BEFORE + minutes
    many = life(WELL, absent(minutes), Phase(minutes=60))
    many += life(WELL, absent(minutes), Phase(minutes=60), labels={"inference_service": "code", "job": "code"})
    bad = life(WELL, absent(minutes), away(60), labels={"inference_service": "bad", "job": "bad"})
    presence.run(
        Case(name="away", series=many, firing=throughout(range(0, back + 60, 2))),
        Case(name="bad", series=bad, firing=throughout(range(back + 4)) | {back + 21: {DOWN_PAGE}}),
        every=1,
    )


def test_targets_of_one_address_in_two_clusters_are_not_mixed(presence: Pack, life: Life, source: Source) -> None:
    """Pods and services of the same names; some have no label of a service."""
    for named in ("chat", "") if source == "vllm" else ("chat",):
        series = []
        for cluster, last in (("a", Phase(minutes=60)), ("b", away(60))):
            series += life(WELL, last, labels={"cluster": cluster, "inference_service": named})
        [alerts] = presence.fired((78, Case(name="two", series=series)))
        assert [(one.labels["alertname"], one.labels["cluster"]) for one in alerts] == [("SpecDecodeTargetDown", "b")]


def test_a_pod_is_not_held_against_one_of_another_cluster(presence: Pack, life: Life) -> None:
    """In `a` a target was scaled in; one with its address cannot be reached in `b`."""
    series = []
    for cluster, last in (("a", gone(60)), ("b", away(60))):
        series += life(Phase(minutes=80), labels={"cluster": cluster})
        series += life(WELL, last, labels=SECOND | {"cluster": cluster})
    [alerts] = presence.fired((78, Case(name="two", series=series)))
    assert [(one.labels["pod"], one.labels["cluster"]) for one in alerts] == [("chat-1", "b")]


def test_a_service_at_zero_is_not_down_where_another_has_its_address(presence: Pack, life: Life) -> None:
    series = life(WELL, idle(10), gone(70))
    series += life(absent(30), Phase(minutes=20), away(50), labels={"inference_service": "code", "pod": "code-0"})
    [alerts] = presence.fired((80, Case(name="zero", series=series)))
    assert [one.labels["inference_service"] for one in alerts] == ["code"]


def test_services_without_a_label_are_named_after_their_job(vllm_pack: Pack) -> None:
    pack = vllm_pack.only("drafts", "alerts-up", "alerts-restarts")
    low = (Phase(minutes=80, curve=(0.2, 0.0)),)
    series = []
    for number, (job, phases) in enumerate([("chat", (WELL, away(60))), ("code", low), ("code", low)]):
        labels = {**NOWHERE, **replica(number), "inference_service": "", "job": job}
        series += service(*phases, source="vllm", labels=labels)
    other = Series("up", {"job": "node", "instance": "10.0.0.7:9100"}, [1.0] * BEFORE + [0.0] * 60)
    ratio = 'inference_service:specdec_acceptance:ratio30m{inference_service="code"}'
    case = Case(name="jobs", series=[*series, other], values={78: {ratio: 0.1}}, firing={78: {DOWN_PAGE}})
    pack.run(case, every=1)
    [[alert]] = pack.fired((78, case))
    assert alert.annotations["summary"] == "chat is down: no replica answers."


# --- Restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [4, 6, 10])
def test_a_crash_loop_is_one_page_and_ends_soon(minutes: int, loops: Pack, life: Life) -> None:
    times = 90 // minutes // 2
    third, fixed = BEFORE + 4 * minutes, BEFORE + 2 * minutes * times
    series = life(WELL, *[away(minutes), anew(minutes)] * times, Phase(minutes=130))
    firing = throughout(range(third + 2, fixed), LOOP_PAGE, LOOP)
    firing |= throughout(range(fixed + 30, fixed + 48), LOOP) | throughout(range(fixed + 68, fixed + 130))
    loops.run(Case(name="loop", series=series, firing=firing), every=1)


def test_a_crash_loop_before_the_first_token(loops: Pack, life: Life) -> None:
    """Then no counter begins again."""
    series = life(*again_and_again(away(4), dataclasses.replace(idle(2), restart=True)))
    firing = {BEFORE + 4: QUIET} | throughout(range(BEFORE + 20, END, 2), LOOP_PAGE, LOOP)
    loops.run(Case(name="never", series=series, firing=firing), every=1)


def test_restarts_that_are_told_to_nobody_at_night(loops: Pack, life: Life) -> None:
    """Tickets where other replicas answer, or it is seldom; nothing for single restarts."""
    one_of_eight = life(*again_and_again(away(4), anew(4)))
    one_of_eight += [each for number in range(1, 8) for each in life(ALWAYS, labels=replica(number))]
    ended = BEFORE + 4 * 8
    two = life(*again_and_again(away(4), anew(4))[:9], Phase(minutes=END - ended))
    two += life(Phase(minutes=ended + 60), away(6), anew(END - ended - 66), labels=SECOND)
    seldom = life(*again_and_again(away(3), anew(37)))
    loops.run(
        Case(name="one of eight", series=one_of_eight, firing=throughout(range(BEFORE + 30, END, 2), LOOP)),
        Case(name="every forty minutes", series=seldom, firing=throughout(range(BEFORE + 90, END, 2), LOOP)),
        Case(name="one looped, later another restarts", series=two, firing=throughout(range(ended + 65, END, 2))),
        every=1,
    )


@pytest.mark.parametrize("every", [3, 4])
def test_scrapes_that_time_out_are_no_restart_page(every: int, loops: Pack, life: Life, source: Source) -> None:
    """And the text says what it is."""
    series = life(*again_and_again(away(1), Phase(minutes=every - 1)))
    about = next(one.labels for one in series if one.name == "up")
    timeouts = [float(max(0, (minute - BEFORE + every) // every)) for minute in range(END)]
    series.append(Series("specdec_fetch_failures_total", {**about, "reason": "timeout"}, timeouts))
    case = Case(name="timeouts", series=series, firing=throughout(range(BEFORE + 20, 250, 2), LOOP))
    loops.run(case, every=1)
    if source == "exporter":
        [[alert]] = loops.fired((240, case))
        told = rf"In 3h, nothing restarted, and chat-0 could not be read {180 // every} times\. In 30m, "
        told += r"\d+ of 3[01] fetches failed, most by timeout\."
        assert re.fullmatch(told, alert.annotations["description"])


def test_replicas_behind_one_target_look_like_restarts_without_the_exporter(vllm_pack: Pack) -> None:
    """Nothing in vLLM's own series tells whose they are."""
    calm = Phase(minutes=END, drafts_per_minute=200, requests_per_minute=20)
    in_turn = [
        dataclasses.replace(
            one, values=[both[n % 2] for n, both in enumerate(zip(one.values, other.values, strict=True))]
        )
        for one, other in zip(service(ALWAYS, source="vllm"), service(calm, source="vllm"), strict=True)
    ]
    case = Case(name="in turn", series=in_turn, firing=throughout(range(BEFORE + 20, END, 20), LOOP))
    vllm_pack.only("drafts", "alerts-up", "alerts-restarts").run(case)


# --- Engines ----------------------------------------------------------------------------------------------------------


def test_an_engine_that_hangs_is_paged(presence: Pack, life: Life) -> None:
    hangs = {"running": hung(100), "waiting": hung(100, 0, 5)}
    cases = [
        Case(
            name=reason,
            series=life(Phase(minutes=120)) + of_engine(life(WELL, phase), "1"),
            firing={26: QUIET} | throughout(range(34, 120), f"{STALLED} {reason}"),
        )
        for reason, phase in hangs.items()
    ]
    alone = life(Phase(minutes=90), hung(100), Phase(minutes=10))
    firing = {96: QUIET} | throughout(range(102, 190), f"{STALLED} service") | {199: QUIET}
    presence.run(*cases, Case(name="alone", series=alone, firing=firing), every=1)
    [[alert]] = presence.fired((118, cases[0]))
    assert alert.annotations["summary"] == "Engine 1 of pod chat-0 of eu-1/prod/chat (llama) hangs: 8 requests run."


def test_numbers_that_stay_after_all_clients_gave_up_page_nobody(presence: Pack, life: Life) -> None:
    """vLLM #22545: requests still run, it says."""
    series = {
        "hardly used": life(Phase(minutes=200, running=1)) + of_engine(life(WELL, hung(180, 2)), "1"),
        "busy, idle, and a few": life(Phase(minutes=65), idle(10), Phase(minutes=5), hung(120)),
        "idle before": life(idle(40), Phase(minutes=20), hung(140)),
        "young": life(Phase(minutes=30), hung(170)),
    }
    cases = [Case(name=name, series=each, firing=throughout(range(0, 200, 2))) for name, each in series.items()]
    presence.run(*cases, every=1)


def test_adapters_that_come_and_go_tell_nobody_to_restart_a_pod(presence: Pack, life: Life) -> None:
    series = life(Phase(minutes=120))
    for name, phases in {
        "comes": (absent(30), Phase(minutes=30), absent(60)),
        "used": (Phase(minutes=30), idle(90)),
        "never": (idle(120),),
    }.items():
        own = life(*phases, labels={"model_name": name})
        series += [one for one in own if "generation_tokens" in one.name]
    presence.run(Case(name="lora", series=series, firing=throughout(range(120))), every=1)


# --- KServe's own labels ----------------------------------------------------------------------------------------------

CURVE = (0.8, 0.6)
FIGURES = {
    "inference_service:specdec_drafts:increase30m": 18000,
    "inference_service:specdec_acceptance:ratio30m": 0.7,
    "inference_service:specdec_generation_tokens:rate5m": 25,
    "inference_service:specdec_requests:increase30m": 1800,
    'inference_service:specdec_latency:seconds30m{sli="tpot", stat="mean"}': 0.024,
    "inference_service:specdec_engines:count": 1,
}


def scraped_twice(series: Iterable[Series]) -> list[Series]:
    """KServe's two scrape jobs of one pod; one renames vLLM's metrics."""
    return [
        dataclasses.replace(one, name=name, labels={**one.labels, "job": job})
        for one in series
        for name, job in ((one.name, "engine-default"), (one.name.replace("vllm:", "kserve_vllm:"), "engine"))
    ]


def test_kserves_own_labels_and_prefix(promtool: Promtool, tmp_path: Path) -> None:
    config = "{ source: 'vllm', vllm_prefix: 'kserve_vllm:', vllm_service_label: 'llm_isvc_name' }"
    labels = {"inference_service": "", "llm_isvc_name": "kserve.chat", "llm_isvc_role": "both"}
    phases = (Phase(minutes=60, curve=CURVE), away(20))
    series = scraped_twice(service(*phases, source="vllm", families=("tpot",), labels=labels))
    case = Case(name="kserve", series=series, values={56: FIGURES}, firing={56: QUIET, 70: {DOWN_PAGE}})
    Pack(promtool, groups_with(config), tmp_path).only("drafts", "latency", "alerts-up", "alerts-restarts").run(
        case, every=1
    )


def test_prefill_pods_are_no_part_of_the_service(either_pack: Pack, life: Life, source: Source) -> None:
    """One token per request, and vLLM observes a time per output token of 0 for it."""
    prefill = Phase(minutes=60, drafts_per_minute=0, requests_per_minute=120, latency={"tpot": ((0.0, 1.0),)})
    decode = Phase(minutes=60, curve=CURVE)
    series = life(decode, families=("tpot",), labels={"llm_isvc_role": "decode"})
    series += life(prefill, families=("tpot",), labels={**SECOND, "llm_isvc_role": "prefill"})
    if source == "vllm":
        series = scraped_twice(series)
    case = Case(name="roles", series=series, values={56: FIGURES}, firing={56: QUIET})
    either_pack.run(case, every=4)


def test_a_bad_canary_is_named_by_its_revision(either_pack: Pack, life: Life) -> None:
    """One request in twenty goes to it, so the figures of the service hardly move."""
    canary = Phase(minutes=60, curve=(0.06, 0.02, 0.01), requests_per_minute=3, drafts_per_minute=30)
    series = life(Phase(minutes=60, drafts_per_minute=570), labels={"revision": "stable"})
    series += life(canary, labels={**SECOND, "revision": "canary"})
    [[told]] = either_pack.fired((56, Case(name="revisions", series=series)), every=4)
    assert told.labels["alertname"] == "SpecDecodeReplicaOutlier"
    assert "chat-1 (engine 0, revision canary)" in told.annotations["summary"]
