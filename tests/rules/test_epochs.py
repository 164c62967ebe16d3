"""History is compared within an epoch: a change on purpose alerts nobody, and a regression that lasts stays one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from rules.scenario import CHAT, NOWHERE, SECOND, STEADY, Case, Pack, Phase, Series, Source, service, slower, with_tail

STEP = 15  # minutes between two samples, and between two evaluations
HOUR = 60 // STEP
MEAN, DROPPED = "SpecDecodeP99Regression warning mean", "SpecDecodeAcceptanceLow warning"
P99_PAGE = "SpecDecodeP99Regression critical tail"
QUIET: set[str] = set()
# Hours before a change. promtool evaluates every group at every step, so 24 hours of history take six.
CHANGE = 8
REST = 4
AFTER = range(60 * CHANGE, 60 * (CHANGE + REST), STEP)
# Days of the whole pack would take too long.
OF_LATENCY = ("epoch", "history", "latency", "baselines", "regression", "tails", "alerts-latency")
OF_HISTORY = 'inference_service:specdec_latency_seconds:mean_baseline{sli="tpot",baseline_source="history"}'
GOOD, POOR, LONGER = (0.9, 0.8, 0.7), (0.55, 0.45, 0.4), (0.9, 0.8, 0.7, 0.4, 0.2)
USUAL = STEADY["tpot"]
SLOW = with_tail(slower(USUAL, 1.4), 0.12, 0.15)

Change = Mapping[str, object]
EAGLE: Change = {"curve": GOOD, "method": "eagle3"}
NGRAM: Change = {"curve": POOR, "method": "ngram"}
MORE: Change = {"curve": LONGER, "method": "eagle3"}
OFF: Change = {"curve": (), "method": None, "speculative": False}
REPLACED = {"pod": "chat-9", "instance": "10.0.0.9:10409"}
NEXT = {"pod": "chat-8", "instance": "10.0.0.8:10409"}


def pod(
    what: Change, hours: Iterable[tuple[int, float | None]], source: Source, labels: Mapping[str, str] | None = None
) -> list[Series]:
    """One pod, by (hours, how many times slower than usual; none: it does not exist)."""
    settings = dict(what)
    curve: tuple[float, ...] = settings.pop("curve")  # type: ignore[assignment]
    phases = [
        Phase(
            minutes=count * HOUR,
            curve=curve,
            latency={"tpot": slower(USUAL, times) if times != 1.4 else SLOW},
            requests_per_minute=900,
            drafts_per_minute=9000,
            present=times is not None,
        )
        if times is not None
        else Phase(minutes=count * HOUR, curve=curve, latency={"tpot": USUAL}, present=False)
        for count, times in hours
    ]
    return service(*phases, families=("tpot",), source=source, labels=labels, **settings)  # type: ignore[arg-type]


def changed(
    before: Change, after: Change, times: float, source: Source, more: Mapping[str, str] | None = None
) -> list[Series]:
    """New pods with another configuration, all at once."""
    extra = dict(more or {})
    return pod(before, [(CHANGE, 1), (REST, None)], source, extra) + pod(
        after, [(CHANGE, None), (REST, times)], source, REPLACED | extra
    )


def rolled(before: Change, after: Change, times: float, source: Source) -> list[Series]:
    """Two pods, one by one with an hour between."""
    return (
        pod(before, [(CHANGE, 1), (REST, None)], source)
        + pod(before, [(CHANGE + 1, 1), (REST - 1, None)], source, SECOND)
        + pod(after, [(CHANGE, None), (REST, times)], source, REPLACED)
        + pod(after, [(CHANGE + 1, None), (REST - 1, times)], source, NEXT)
    )


def test_nobody_hears_of_a_change_on_purpose(either_pack: Pack, source: Source) -> None:
    quiet = dict.fromkeys(AFTER, QUIET)
    gone: dict[int, dict[str, float | None]] = {60 * CHANGE - STEP: {OF_HISTORY: 0.024}, AFTER[-1]: {OF_HISTORY: None}}
    cases = [
        Case(name="off", series=changed(EAGLE, OFF, 1.4, source), firing=quiet, values=gone),
        Case(name="off, no cluster", series=changed(EAGLE, OFF, 1.4, source, NOWHERE), firing=quiet),
        Case(name="off, one by one", series=rolled(EAGLE, OFF, 1.4, source), firing=quiet),
        Case(name="on, and slower", series=changed(OFF, EAGLE, 1.4, source), firing=quiet),
        Case(name="more k", series=changed(EAGLE, MORE, 1.4, source), firing=quiet),
        Case(name="less k", series=changed(MORE, {**EAGLE, "curve": POOR}, 1.4, source), firing=quiet),
        Case(
            name="a restart, and slower",
            series=changed(EAGLE, EAGLE, 1.4, source),
            firing={60 * CHANGE + 75: {MEAN, P99_PAGE}},
        ),
        Case(
            name="a restart, and worse drafts",
            series=changed(EAGLE, {**EAGLE, "curve": POOR}, 1, source),
            firing={60 * CHANGE + 90: {DROPPED}},
        ),
    ]
    if source == "exporter":
        newer = [
            Series(one.name, {**one.labels, "vllm_version": "0.33.0"}, one.values)
            if one.labels.get("pod") == REPLACED["pod"] and one.name == "specdec_predictor_info"
            else one
            for one in changed(EAGLE, EAGLE, 1.4, source)
        ]
        unknown = [one for one in changed(EAGLE, EAGLE, 1.4, source) if one.name != "specdec_predictor_info"]
        poor = pod({**EAGLE, "curve": POOR}, [(CHANGE, None), (REST, 1)], source)
        hours: list[float | None] = [0.8] * (HOUR * (CHANGE + REST))
        older = [*poor, Series("inference_service:specdec_acceptance:ratio_rate1h", CHAT, hours)]
        cases += [
            Case(name="of unknown facts", series=unknown, firing={60 * CHANGE + 75: {MEAN, P99_PAGE}}),
            Case(name="hours of an older pack", series=older, firing={60 * CHANGE + 90: {DROPPED}}),
            Case(name="method", series=changed(EAGLE, NGRAM, 1, source), firing=quiet),
            Case(name="method, one by one", series=rolled(EAGLE, NGRAM, 1, source), firing=quiet),
            Case(name="release", series=newer, firing=quiet),
        ]
    either_pack.only(*OF_LATENCY, "speculation", "alerts-acceptance").run(*cases, every=STEP, step=STEP)


@pytest.mark.nightly
def test_a_lasting_regression_stays_until_its_last_good_hours_are_too_old(pack: Pack) -> None:
    """After one day of history. Then what is slow is normal, and a day later it is the baseline."""

    def hourly(*hours: tuple[int, float]) -> list[Series]:
        return pod(EAGLE, hours, "exporter")

    day, slow = 26, {MEAN, P99_PAGE}  # a day of history
    nights = [part for _ in range(7) for part in ((2, 1.4), (22, 1))]
    pack.only(*OF_LATENCY).run(
        Case(
            name="for ever",
            series=hourly((day, 1), (8 * 24, 1.4)),
            firing={60 * (day + hour): slow for hour in range(3, 5 * 24, 3)}
            | {60 * (day + 7 * 24): QUIET, 60 * (day + 8 * 24): QUIET},
            values={60 * (day + 8 * 24): {OF_HISTORY: 0.047}},
        ),
        Case(
            name="mended after two days",
            series=hourly((day, 1), (48, 1.4), (24, 1)),
            firing={60 * (day + 47): slow, 60 * (day + 50): QUIET, 60 * (day + 71): QUIET},
        ),
        Case(
            name="a job of two hours every night",
            series=hourly((24, 1), *nights),
            firing={60 * (24 * night + hour): QUIET for night in (5, 6, 7) for hour in range(24)},
        ),
        Case(
            name="and for ever, after some nights",
            series=hourly((24, 1), *nights[:8], (72, 1.4)),
            firing={60 * (24 * 5 + hour): slow for hour in range(7, 72, 3)},
        ),
        every=60,
        step=STEP,
    )


def test_a_renamed_model_is_no_news(either_pack: Pack, source: Source) -> None:
    first, then = Phase(minutes=40), Phase(minutes=60)
    gone, not_yet = Phase(minutes=60, present=False), Phase(minutes=40, present=False)
    renamed = service(first, gone, source=source)
    renamed += service(not_yet, then, source=source, labels={**REPLACED, "model_name": "llama-v2"})
    either_pack.run(Case(name="new pods", series=renamed, firing=dict.fromkeys(range(40, 100, 4), QUIET)), every=4)
