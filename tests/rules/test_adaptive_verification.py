"""vLLM verifies only part of each draft and counts all of it as drafted: what that hides is not judged."""

from __future__ import annotations

import dataclasses

from rules.scenario import (
    CONTROL,
    SECOND,
    SLOW_MINUTES,
    STEADY,
    Case,
    Pack,
    Phase,
    Source,
    groups_with,
    service,
    slower,
)

RECORD = "inference_service:specdec_"
VERDICT = f"{RECORD}verdict:enum"
PAGE, TICKET = "SpecDecodeAcceptanceLow critical", "SpecDecodeAcceptanceLow warning"
# The whole draft is verified while the load is light, and one position of it in big batches.
CURVES = {"dspark": (0.72, 0.52, 0.37, 0.27, 0.19, 0.14, 0.1), "eagle3": (0.72, 0.52, 0.37)}
LIGHT, MINUTES = 90, 240
WITHHELD = (
    "acceptance:ratio_rate30m",
    "acceptance:ratio_rate5m",
    "acceptance:ratio_rate1h",
    "acceptance:fell_from2h",
    "replica_acceptance:ratio_rate30m",
)
NO_RATE: dict[str, float | None] = dict.fromkeys(RECORD + each for each in WITHHELD)
SENTENCE = "vLLM verifies only part of each draft; it does not count which."


def busy(minutes: int, method: str = "eagle3", first: float = 0.72, **different: object) -> Phase:
    given = {"drafts_per_minute": 2400.0, "requests_per_minute": 240.0, "running": 24.0}
    curve = (first, *[0.0] * (len(CURVES[method]) - 1))
    return Phase(minutes=minutes, curve=curve, **(given | different))  # type: ignore[arg-type]


def light(minutes: int, method: str = "eagle3") -> Phase:
    return Phase(minutes=minutes, curve=CURVES[method])


# The rules that read vLLM's own metrics, told which services verify a part and which methods they have.
TOLD = """
    local named(name) = 'inference_service=~".*%s.*"' % name;
    {
      source: 'vllm',
      vllm_method_selectors: { dspark: named('dspark'), eagle3: named('eagle3') },
      vllm_adaptive_verification_selector: named('adaptive'),
    }
"""


def test_load_rises_and_nobody_hears_of_acceptance(source: Source, pack: Pack) -> None:
    """The counters of a good draft whose later tokens are no longer verified."""

    def case(name: str, method: str, verification: str, told: set[str], values: dict[str, float | None]) -> Case:
        phases = (light(LIGHT, method), busy(MINUTES - LIGHT, method))
        known: dict[str, float | None] = {
            f"{RECORD}acceptance_length:mean30m": 1.72,
            f"{RECORD}first_position_acceptance:ratio_rate30m": 0.72,
        }
        return Case(
            name=f"{name} {method}",
            series=service(
                *phases,
                source=source,
                method=method,
                verification=verification,
                minimum={"dspark": 0.15}.get(method, 0.5),
                families=("ttft",),
            ),
            firing={LIGHT: set(), 150: told, 200: told, 239: told},
            values={200: known | values},
        )

    told = pack if source == "exporter" else dataclasses.replace(pack, groups=groups_with(TOLD))
    told.run(
        case("adaptive", "dspark", "adaptive", set(), NO_RATE | {VERDICT: 2}),
        case("adaptive", "eagle3", "adaptive", set(), NO_RATE | {VERDICT: 2}),
        case("full", "dspark", "full", {TICKET}, {VERDICT: 2, f"{RECORD}acceptance:ratio_rate30m": 0.103}),
        case("unknown", "eagle3", "", {TICKET}, {VERDICT: 2, f"{RECORD}acceptance:ratio_rate30m": 0.24}),
        every=SLOW_MINUTES,
    )


def test_without_the_setting_vllms_own_metrics_tell_nothing(vllm_pack: Pack) -> None:
    series = service(light(LIGHT), busy(MINUTES - LIGHT), source="vllm", families=("ttft",))
    vllm_pack.run(
        Case(name="eagle3", series=series, firing={LIGHT: set(), 150: {TICKET}}, values={150: {VERDICT: 2}}),
        every=SLOW_MINUTES,
    )


def test_what_was_partly_verified_within_the_window_counts(pack: Pack) -> None:
    """A rollout, a mixture of both, and restarts."""
    silent: dict[int, set[str]] = {minute: set() for minute in range(40, 240, 8)}
    gone = Phase(minutes=120, present=False)
    rate, minute = f"{RECORD}acceptance:ratio_rate30m", 120 + 25
    old = service(busy(120), Phase(minutes=120, present=False), verification="adaptive")
    new = service(gone, light(120), labels=SECOND, verification="full")
    whole = service(light(240), labels=SECOND, verification="full")
    restarted = busy(80, restart=True)
    # The new pod's log is not read yet at its first scrapes.
    starting = service(gone, busy(120), labels=SECOND)
    (info,) = (one for one in starting if one.name == "specdec_predictor_info")
    untold = [*info.values[:124], *[None] * 116]
    told = [*[None] * 124, *info.values[124:]]
    starting.remove(info)
    starting += [
        dataclasses.replace(info, values=untold),
        dataclasses.replace(info, values=told, labels={**info.labels, "verification": "adaptive"}),
    ]
    pack.run(
        Case(name="switched off", series=old + new, firing=silent, values={minute: {rate: None}, 160: {rate: 0.537}}),
        Case(
            name="switched on",
            series=service(light(120), gone, verification="full")
            + service(gone, busy(120), labels=SECOND, verification="adaptive"),
            firing=silent,
            values={118: {rate: 0.537}, minute: {rate: None}},
        ),
        Case(
            name="one of two replicas",
            series=service(busy(240), verification="adaptive") + whole,
            firing=silent,
            values={200: NO_RATE | {f"{RECORD}acceptance_length:mean30m": 1.898}},
        ),
        Case(
            name="restarts",
            series=service(busy(80), restarted, restarted, verification="adaptive"),
            firing=silent,
        ),
        Case(name="a log that is not read yet", series=old + starting, firing=silent),
    )


def test_the_first_position_tells_whether_the_draft_fits(pack: Pack) -> None:
    broken = service(light(LIGHT), busy(MINUTES - LIGHT, first=0.05), verification="adaptive", families=("ttft",))
    healthy = service(light(MINUTES), verification="adaptive", families=("ttft",))
    few = busy(MINUTES, first=0.05, drafts_per_minute=40.0, requests_per_minute=0.4)
    cases = (
        Case(
            name="broken",
            series=broken,
            firing={LIGHT: set(), 150: {PAGE, TICKET}, 239: {PAGE, TICKET}},
            values={150: NO_RATE | {VERDICT: 5}},
        ),
        Case(
            name="by chance",
            series=service(few, verification="adaptive", families=("ttft",)),
            firing={150: set()},
        ),
        # Not all may be verified, so at least this share of it is accepted.
        Case(name="long enough", series=service(Phase(minutes=90), verification="adaptive"), values={80: {VERDICT: 1}}),
        Case(name="not long enough", series=healthy, firing={150: set()}, values={150: {VERDICT: 2}}),
    )
    pack.run(*cases, every=SLOW_MINUTES)

    ((_, ticket),) = pack.fired((150, cases[0]), every=SLOW_MINUTES)
    assert f"{TICKET}: {SENTENCE} At position 0, acceptance is 5% over 30m on eu-1/prod/chat (llama)" in str(ticket)
    assert "unknown" not in str(ticket)


def test_what_is_measured_is_told(pack: Pack) -> None:
    """By a live control, whatever is accepted."""
    families = ("tpot", "ttft")
    control = service(busy(130), families=families, speculative=False, labels=CONTROL)

    def case(name: str, times: float, verdict: float, *told: str, first: float = 0.72) -> Case:
        latency = {**STEADY, "tpot": slower(STEADY["tpot"], times)}
        series = service(busy(130, first=first, latency=latency), verification="adaptive", families=families)
        return Case(name=name, series=series + control, firing={120: {*told}}, values={120: {VERDICT: verdict}})

    slow = ("SpecDecodeP99Regression critical mean", "SpecDecodeP99Regression warning mean")
    harm = case("harm", 1.6, 4, "SpecDecodeHarmful critical", "SpecDecodeNotPayingOff warning", *slow)
    pack.run(
        harm,
        case("gain", 0.7, 1),
        case("gain, although nothing fits", 0.7, 1, first=0.05),
        case("no gain", 1.0, 3, "SpecDecodeNotPayingOff warning"),
        every=SLOW_MINUTES,
    )

    (told,) = pack.fired((120, harm), every=SLOW_MINUTES)
    texts = [str(one) for one in told if "BaselineMissing" not in str(one)]
    assert len([text for text in texts if SENTENCE in text]) == len(texts) >= 3
    assert not [text for text in texts if "Acceptance is" in text or "unknown" in text]


def test_a_replica_without_drafts_and_a_service_without_counters_are_told(pack: Pack) -> None:
    idle = service(Phase(minutes=100, drafts_per_minute=0), labels=SECOND, verification="adaptive")
    replica = Case(
        name="a replica",
        series=service(busy(100), verification="adaptive") + idle,
        firing={95: {"SpecDecodeReplicaOutlier warning no_drafts"}},
    )
    plain = service(Phase(minutes=120, present=False), busy(100), speculative=False, labels=SECOND)
    counters = Case(
        name="counters",
        series=service(busy(120), Phase(minutes=100, present=False), verification="adaptive") + plain,
        firing={215: {"SpecDecodeDataUntrusted info counters_missing"}},
    )
    pack.run(replica, counters, every=SLOW_MINUTES)

    ((outlier,),) = pack.fired((95, replica), every=SLOW_MINUTES)
    assert f"generates tokens without drafts, while other replicas draft. {SENTENCE}" in str(outlier)
