"""Alerts about acceptance: the incident fires, and what looks like it does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from promtool import Promtool
from rules.scenario import CHAT, FLAG, NOWHERE, SECOND, Case, Pack, Phase, Series, Source, groups_with, replica, service

HEALTHY = (0.85, 0.72, 0.59)  # 0.72
COLLAPSED = (0.5, 0.25, 0.15)  # 0.30
MODEST = (0.6, 0.4, 0.26)  # 0.42
LONGER = (0.85, 0.72, 0.59, 0.47, 0.37, 0.28, 0.2, 0.14)  # the same head with k 8: 0.45
PAGE = "SpecDecodeAcceptanceLow critical"
TICKET = "SpecDecodeAcceptanceLow warning low"
OUTLIER = "SpecDecodeReplicaOutlier warning poor_drafts"


def test_a_collapse_is_a_ticket_within_25_minutes_and_resolves_after_recovery(pack: Pack) -> None:
    phases = (
        Phase(minutes=60, curve=HEALTHY),
        Phase(minutes=60, curve=COLLAPSED),
        Phase(minutes=70, curve=HEALTHY),
    )
    firing = {60: set[str](), 85: {TICKET}, 118: {TICKET}, 185: set[str]()}
    pack.run(
        Case(name="with cluster and namespace", series=service(*phases), firing=firing),
        Case(name="without them", series=service(*phases, labels=NOWHERE), firing=firing),
        Case(name="policy from the exporter", series=service(*phases, minimum=0.5, method=None), firing=firing),
        every=1,
    )


def test_a_collapse_of_a_release_that_counts_no_drafts(pack: Pack) -> None:
    """0.8.3 and 0.8.4 count draft tokens and accepted tokens only."""
    phases = (Phase(minutes=60, curve=HEALTHY), Phase(minutes=60, curve=COLLAPSED))
    missing = ("specdec_drafts_total", "specdec_accepted_tokens_per_position_total")
    few = [dataclasses.replace(phase, drafts_per_minute=60) for phase in phases]
    series, of_few = ([one for one in service(*given) if one.name not in missing] for given in (phases, few))
    case = Case(name="two counters", series=series, firing={60: set(), 85: {TICKET}})
    pack.run(case, Case(name="too few of them", series=of_few, firing={85: set()}), every=1)

    ((ticket,),) = pack.fired((85, case))
    assert f"{TICKET}: Acceptance is 30% over the last 5m and 3" in str(ticket)
    assert "The acceptance by position is unknown." in str(ticket)


def test_what_is_no_collapse_stays_silent(pack: Pack) -> None:
    silent: dict[int, set[str]] = {minute: set() for minute in range(20, 121, 5)}
    healthy = Phase(minutes=60, curve=HEALTHY)
    pack.run(
        Case(
            name="0.42 is normal for n-gram lookup",
            series=service(Phase(minutes=120, curve=MODEST), method="ngram", minimum=0.3),
            firing=silent,
        ),
        Case(
            name="five drafts in half an hour",
            series=service(
                healthy,
                Phase(minutes=60, curve=(0.0, 0.0, 0.0), drafts_per_minute=5 / 30, requests_per_minute=0.1),
            ),
            firing=silent,
        ),
        Case(
            name="1200 drafts of twelve requests",
            series=service(
                Phase(minutes=120, curve=MODEST, drafts_per_minute=40, requests_per_minute=0.4), families=("ttft",)
            ),
            firing=silent,
            values={110: {"inference_service:specdec_drafts:effective30m": 75.71}},
        ),
        Case(
            name="a dip of three minutes",
            series=service(healthy, Phase(minutes=3, curve=(0.05, 0.0, 0.0)), Phase(minutes=57, curve=HEALTHY)),
            firing=silent,
        ),
        Case(
            name="idle",
            series=service(healthy, Phase(minutes=60, drafts_per_minute=0, requests_per_minute=0, running=0)),
            firing={119: set()},
        ),
        Case(
            name="a restart",
            series=service(healthy, Phase(minutes=60, curve=HEALTHY, restart=True)),
            firing=silent,
        ),
        Case(
            name="speculation off",
            series=service(Phase(minutes=120), speculative=False),
            firing=silent,
        ),
        Case(
            name="nearly all is accepted",
            series=service(Phase(minutes=120, curve=(0.995, 0.99, 0.985))),
            firing=silent,
        ),
        Case(
            name="a cliff after the second of five positions",
            series=service(Phase(minutes=120, curve=(0.99, 0.98, 0.6, 0.05, 0.01)), minimum=0.3),
            firing=silent,
        ),
        Case(
            name="drafts shorter than k",
            series=service(Phase(minutes=120, curve=(1.0, 1.0, 1.0, 0.0, 0.0), draft_length=3.0)),
            firing=silent,
        ),
        Case(
            name="almost nothing of a few drafts",
            series=service(Phase(minutes=120, curve=(0.06, 0.02, 0.01), drafts_per_minute=20, requests_per_minute=2)),
            firing=silent,
        ),
        Case(
            name="the small replica is bad, the service is not",
            series=service(Phase(minutes=120, curve=HEALTHY, drafts_per_minute=1000))
            + service(
                Phase(minutes=120, curve=(0.1, 0.0, 0.0), drafts_per_minute=100),
                labels=SECOND,
            ),
            firing={20: set(), 110: {OUTLIER}},
        ),
    )


def test_as_many_drafts_of_many_requests_are_proof(pack: Pack) -> None:
    short_answers = Phase(minutes=120, curve=MODEST, drafts_per_minute=40, requests_per_minute=40)
    drafts = "inference_service:specdec_drafts:effective30m"
    pack.run(
        Case(
            name="one draft each",
            series=service(short_answers, families=("ttft",)),
            firing={110: {TICKET}},
            values={110: {drafts: 1200}},
        ),
        Case(
            name="more requests than drafts",
            series=service(dataclasses.replace(short_answers, requests_per_minute=80), families=("ttft", "tpot")),
            firing={110: {TICKET}},
            values={110: {drafts: 1200}},
        ),
        Case(
            name="an answer longer than the window is a request",
            series=service(dataclasses.replace(short_answers, requests_per_minute=0), families=("ttft",)),
            firing={110: set()},
            values={110: {drafts: 6.635}},
        ),
        Case(
            name="requests that nobody counts",
            series=service(short_answers),
            firing={110: set()},
            values={110: {drafts: 75.71}},
        ),
    )


def test_without_the_sidecar_an_unknown_load_is_neither_low_nor_good(promtool: Promtool, tmp_path: Path) -> None:
    """A scrape without the histogram of steps, of a service whose method is named."""
    named = "{ source: 'vllm', vllm_method_selectors: { eagle3: 'inference_service=~\".+\"' } }"
    verdict = "inference_service:specdec_verdict:enum"
    curve = (0.72, 0.5, 0.36, 0.28, 0.24)  # 0.42 with k 5: good at light load, low at a heavy one
    light = service(Phase(minutes=60, curve=curve, in_decode=3.0), source="vllm")
    unknown = [one for one in light if not one.name.endswith("_latency_seconds_sum")]
    Pack(promtool, groups_with(named), tmp_path).run(
        Case(name="light", series=light, firing={50: set()}, values={50: {verdict: 1}}),
        Case(name="unknown", series=unknown, firing={50: set()}, values={50: {verdict: 2}}),
        every=2,
    )


def test_replicas_that_differ_by_method_or_load_count_together_and_an_idle_one_not_at_all(pack: Pack) -> None:
    minimum, verdict = "inference_service:specdec_acceptance_min:threshold", "inference_service:specdec_verdict:enum"
    old = service(Phase(minutes=120, curve=MODEST), method="eagle3", minimum=0.5)
    new = service(Phase(minutes=120, curve=MODEST), method="ngram", minimum=0.3, labels=SECOND)
    busy = service(Phase(minutes=120, curve=MODEST))
    light = service(Phase(minutes=120, curve=MODEST), minimum=0.12, watch=0.36, labels=SECOND)
    nothing = service(Phase(minutes=120, curve=MODEST, drafts_per_minute=0, requests_per_minute=0), labels=SECOND)
    idle = [one for one in nothing if "policy" not in one.name]  # the exporter says no level without drafts
    pack.run(
        Case(name="two methods", series=old + new, firing={60: set(), 110: set()}, values={60: {minimum: 0.4}}),
        # Green is what all replicas are, each at its load.
        Case(name="two loads", series=busy + light, firing={110: set()}, values={110: {minimum: 0.31, verdict: 2}}),
        Case(
            name="one is idle",
            series=busy + idle,
            firing={110: {TICKET}},
            values={110: {minimum: 0.5, verdict: 2}},
        ),
        Case(
            name="an exporter that knows no levels",
            series=[one for one in busy if "policy" not in one.name],
            firing={110: {TICKET}},
            values={110: {minimum: 0.5, verdict: 2}},
        ),
        Case(
            name="an exporter that knows one level for all lengths",
            series=[one for one in service(Phase(minutes=120, curve=LONGER)) if not one.name.endswith("_watch")],
            firing={110: set()},
            values={110: {minimum: 0.5}},
        ),
    )


def test_a_drop_below_the_own_baseline(pack: Pack) -> None:
    low = (0.75, 0.55, 0.38)  # 0.56: above the minimum of 0.5
    recorded = Series("specdec_baseline_acceptance_ratio", CHAT, [0.72] * 380)
    pack.run(
        Case(
            name="history",
            series=service(
                Phase(minutes=180, curve=HEALTHY), Phase(minutes=110, curve=low), Phase(minutes=90, curve=HEALTHY)
            ),
            firing={180: set(), 285: {TICKET}, 379: set()},
        ),
        Case(
            name="a recorded baseline, for hours",
            series=[*service(Phase(minutes=300, curve=low), Phase(minutes=79, curve=HEALTHY)), recorded],
            firing={30: set(), 75: {TICKET}, 180: {TICKET}, 299: {TICKET}, 379: set()},
        ),
        Case(
            name="no baseline, no alert",
            series=service(Phase(minutes=40, curve=HEALTHY), Phase(minutes=60, curve=low)),
            firing={99: set()},
        ),
    )


def test_a_replica_with_the_wrong_head(pack: Pack) -> None:
    def replicas(*curves: tuple[float, ...], requests_per_minute: float = 60) -> list[Series]:
        return [
            one
            for number, curve in enumerate(curves)
            for one in service(
                Phase(minutes=100, curve=curve, requests_per_minute=requests_per_minute),
                labels=replica(number),
                families=("ttft",),
            )
        ]

    pack.run(
        Case(name="one of three", series=replicas(HEALTHY, HEALTHY, MODEST), firing={95: {OUTLIER}}),
        Case(name="three alike", series=replicas(HEALTHY, HEALTHY, (0.8, 0.7, 0.55)), firing={95: set()}),
        Case(
            name="three requests each",
            series=replicas(HEALTHY, HEALTHY, MODEST, requests_per_minute=0.1),
            firing={95: set()},
        ),
        Case(name="one of two", series=replicas(HEALTHY, (0.65, 0.5, 0.38)), firing={95: {OUTLIER}}),
        Case(name="two alike", series=replicas(HEALTHY, (0.7, 0.55, 0.45)), firing={95: set()}),
        Case(name="one with a longer draft", series=replicas(HEALTHY, LONGER), firing={95: set()}),
        Case(
            name="one that is gone",
            series=replicas(HEALTHY, HEALTHY)
            + service(
                Phase(minutes=80, curve=MODEST),
                Phase(minutes=20, curve=MODEST, removed=True),
                labels=replica(2),
                families=("ttft",),
            ),
            firing={78: {OUTLIER}, 96: set()},
        ),
    )


def test_an_incident_with_pauses_is_one(pack: Pack) -> None:
    """Acceptance swings: what fired goes on firing, and ends with the incident."""
    swinging = [Phase(minutes=12, curve=(1.4 * rate, rate, 0.6 * rate)) for rate in (0.3, 0.44)] * 9
    series = service(Phase(minutes=60, curve=HEALTHY), *swinging, Phase(minutes=72, curve=HEALTHY))
    steady = {minute: {TICKET} for minute in range(160, 60 + 9 * 24, 4)}
    pack.run(Case(name="12 minutes low, 12 less low", series=series, firing={**steady, 346: set()}))


# --- What was wrong once ----------------------------------------------------------------------------------------------


def gap(series: list[Series], lost: range) -> list[Series]:
    def kept(one: Series) -> list[float | None]:
        return [None if minute in lost else value for minute, value in enumerate(one.values)]

    return [dataclasses.replace(one, values=kept(one)) for one in series]


def test_nobody_is_woken_without_half_an_hour_of_almost_nothing(pack: Pack) -> None:
    nothing, bad = (0.03, 0.01, 0.005), (0.06, 0.02, 0.01)
    quiet = {minute: set[str]() for minute in range(4, 60, 2)}
    pack.run(
        Case(
            name="the first 10 minutes of a new service are bad",
            series=service(Phase(minutes=10, curve=bad), Phase(minutes=50, curve=HEALTHY)),
            firing={7: {TICKET}, 20: {TICKET}, 26: {TICKET}, 40: set(), 58: set()},
        ),
        Case(
            name="a new service that is bad",
            series=service(Phase(minutes=60, curve=nothing)),
            firing={7: {TICKET}, 20: {TICKET}, 28: {TICKET}, 40: {PAGE, TICKET}},
        ),
        Case(
            name="without samples for 15 minutes of it",
            series=gap(service(Phase(minutes=150, curve=nothing)), range(80, 95)),
            firing={minute: {PAGE, TICKET} for minute in range(100, 148, 4)},
        ),
        Case(
            name="well again, but not in the mean of 30 minutes",
            series=service(Phase(minutes=60, curve=nothing), Phase(minutes=40, curve=HEALTHY)),
            firing={58: {PAGE, TICKET}, 78: {TICKET}},
        ),
        Case(
            name="k 7 with 1.56 tokens a step",
            series=service(Phase(minutes=60, curve=(0.4, 0.1, 0.04, 0.02, 0, 0, 0))),
            firing={50: {TICKET}},
        ),
        Case(
            name="k 15 with a tenth of its tokens at light load",
            series=service(Phase(minutes=60, curve=(0.7, 0.4, 0.2, 0.1, 0.05, *(0.0,) * 10)), minimum=0.09, watch=0.25),
            firing=quiet,
        ),
        every=1,
    )


@pytest.mark.parametrize("source", ["exporter", "vllm"])
def test_one_length_is_a_ticket_in_a_large_batch_and_a_flag_in_a_small_one(either_pack: Pack, source: Source) -> None:
    tokens_3_1, tokens_1_5 = (0.72, 0.5, 0.35, 0.24, 0.15, 0.09, 0.05), (0.4, 0.08, 0.02, 0, 0, 0, 0)
    told = {  # requests in decode, curve, what the exporter assumes, what fires
        "large batch": (200.0, tokens_3_1, 0.5, {TICKET, FLAG}),
        "small batch": (3.0, tokens_3_1, 0.09, {FLAG}),
        "in between": (16.0, tokens_3_1, 0.295, {FLAG}),
        "small batch with 1.5 tokens a step": (3.0, tokens_1_5, 0.09, {TICKET, FLAG}),
        "small batch with a good draft": (3.0, HEALTHY, 0.12, set[str]()),
    }
    either_pack.run(
        *(
            Case(
                name=name,
                series=service(
                    Phase(minutes=60, curve=curve, in_decode=load), minimum=level, watch=0.65, source=source
                ),
                firing={50: alerts},
                flags=True,
            )
            for name, (load, curve, level, alerts) in told.items()
        ),
        every=2,
    )


def test_a_longer_draft_than_that_of_the_file_is_no_fall(pack: Pack) -> None:
    longer = (0.85, 0.72, 0.6, 0.3, 0.1)  # 0.51, and 3.57 tokens a step
    minutes = 110
    file = [
        Series("specdec_baseline_acceptance_ratio", CHAT, [0.72] * minutes),
        Series("specdec_baseline_mean_acceptance_length", CHAT, [3.16] * minutes),
    ]
    fallen = Case(name="k as recorded", series=service(Phase(minutes=minutes, curve=(0.75, 0.55, 0.38))) + file)
    pack.run(
        Case(name="k 3 to 5", series=service(Phase(minutes=minutes, curve=longer)) + file, firing={105: set()}),
        dataclasses.replace(fallen, firing={20: set(), 105: {TICKET}}),
        every=2,
    )
    ((ticket,),) = pack.fired((105, fallen), every=2)
    assert "56% over 30m on eu-1/prod/chat (llama). In its baseline file it was 72%." in str(ticket)


def test_the_text_tells_what_is_accepted_now(pack: Pack) -> None:
    case = Case(
        name="2 percent",
        series=service(Phase(minutes=60, curve=HEALTHY), Phase(minutes=30, curve=(0.04, 0.015, 0.005))),
    )
    ((ticket,),) = pack.fired((82, case), every=2)
    assert f"{TICKET}: Acceptance is 2% over the last 5m and 1" in str(ticket)
