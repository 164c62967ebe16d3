"""The status page, as a real browser renders it from a real server with the real headers."""

from __future__ import annotations

import itertools
import re
from typing import Any, get_args

import msgspec
import pytest

from specdec_exporter.predictor.facts.failures import explained
from specdec_exporter.predictor.versions import KnownPitfall, WarningCount
from specdec_exporter.speculation.benefit import BreakEven
from specdec_exporter.speculation.evidence import Evidence, StateName
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.verdict import GOOD, WORDS, Verdict, VerdictCode
from specdec_exporter.state.status import BaselineStatus, EngineStatus, LogStatus, PredictorStatus
from specdec_exporter.web.page import PAGE
from support.builders import known
from unit.test_verdict import drafted
from web.browser import Browser, Exporter
from web.statuses import LOADS, MEASURED, NOW, UNKNOWN, an_hour, figures, predictor, status, verdict

NONE = "\N{EN DASH}"  # what stands for a figure that there is not

pytestmark = pytest.mark.debian


# --- what a reader sees ----------------------------------------------------------------------------------------------


async def test_the_figures_their_thresholds_and_their_context_are_shown(browser: Browser) -> None:
    async with Exporter([status(predictor())]).serving() as exporter:
        await browser.open(exporter.url)
        text = await browser.text()
    for words in (
        "llama-70b ✓ Healthy drafting",
        "A headline for healthy",
        "acceptance 61.2% (break-even 50%, assumed)",
        "What to do: Nothing to do.",
        "Method eagle3",
        "Draft model yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",
        "k 3 vLLM 0.32.0, V1 engine",
        "Engines 2",
        "Model meta-llama/Llama-3.3-70B-Instruct",
        "Endpoint http://127.0.0.1:8080",
        "Figures over the last 5 min from the metrics: 12,345 drafts, 22,665 of 37,035 draft tokens accepted",
        "Acceptance rate 61.2% ✓ at or above the assumed break-even of 50%",
        "Mean acceptance length 2.84 tokens ✓ at or above the assumed break-even of 1.21 at 3.5 requests in decode",
        "Tokens per step 2.71 tokens",
        "Mean draft length 3.00 of 3",
        "Requests now 7 running 3.5 per engine 2 waiting",
        "KV cache 43% in use",
        "Since the predictor started: 58.3% accepted, length 2.75",
        "0 79.3% 79.3% 1 61.1% 77.0% 2 43.2% 70.7%",
        "10 intervals without drafts",
        "async_scheduling_off Steps are scheduled one by one. 3",
        "data_parallel_disables_log Several API servers log no statistics. (vLLM since 0.15.1) Read the metrics.",
        "1,234 spec-decode lines in 120,000 lines, last line 4 s before this status.",
        "✓ 0 unreadable lines, up to date.",
        "Engines (2)",
        "ago. Updates every 5 s.",
        "the upper limit of the speed-up",
        "specdec-exporter 9.8.7",
    ):
        assert words in text
    assert "NaN" not in text
    assert "undefined" not in text
    assert "null" not in text


async def test_figures_that_need_the_number_of_verified_tokens_are_not_shown(browser: Browser) -> None:
    window = figures(
        acceptance_ratio=None,
        mean_draft_length=None,
        mean_acceptance_length=1.72,
        per_position=(0.72,),
        conditional=(0.72,),
    )
    points = tuple(msgspec.structs.replace(point, acceptance_ratio=None) for point in an_hour())
    partly = predictor(
        adaptive_verification=True,
        window=window,
        lifetime=window,
        history=points,
        break_even=BreakEven(basis="assumed", acceptance_ratio=0.5, mean_acceptance_length=2.5),
        verdict=verdict("watch"),
        engines=(),
    )
    async with Exporter([status(partly)]).serving() as exporter:
        await browser.open(exporter.url)
        text = await browser.text()
        plots = await browser.script("return document.querySelectorAll('.plot').length")
    why = "vLLM verifies only part of each draft; it does not count which."
    for words in (
        "Verification adaptive",
        "Figures over the last 5 min from the metrics: 12,345 drafts, 22,665 draft tokens accepted",
        f"Mean acceptance length 1.72 tokens 1 + accepted / drafts Acceptance rate \u2013 {why} Tokens per step",
        "Since the predictor started: length 1.72",
        f"0 72.0% 72.0% {why}",
        f"Acceptance rate, last hour {why}",
    ):
        assert words in text
    assert "Mean draft length \u2013" not in text
    assert "below the assumed" not in text  # that break-even is too high, so a shorter length may pay
    assert not plots
    assert not {"NaN", "undefined", "null"} & set(text.split())


async def test_the_page_needs_nothing_but_its_own_origin_and_breaks_no_policy(browser: Browser) -> None:
    async with Exporter([status(predictor())]).serving() as exporter:
        await browser.open(exporter.url)
        assert await browser.complaints() == []
        assert set(exporter.requests) == {"/behind/ingress/api/v1/status"}
        links = await browser.script("return [...document.querySelectorAll('footer a')].map(link => link.href)")
        assert links == [exporter.url + path for path in ("metrics", "api/v1/status", "-/healthy", "-/ready")]


async def test_the_policy_is_in_force(browser: Browser) -> None:
    """Also shows that the complaints which the other tests expect none of would be heard."""
    async with Exporter([status(predictor())]).serving() as exporter:
        await browser.open(exporter.url)
        await browser.script(
            "const script = document.createElement('script'); script.textContent = 'window.intruder = 1';"
            "document.body.append(script); document.body.setAttribute('style', 'color: red');"
        )
        assert await browser.script("return window.intruder") is None
        complaints = " ".join(await browser.complaints())
    assert "script-src" in complaints
    assert "style-src" in complaints


HOSTILE = '<img src=x onerror="window.intruder=1">\'";--></script>\u202eesrever\u0000' + "verylongname" * 30


async def test_hostile_names_are_text_and_nothing_else(browser: Browser) -> None:
    hostile = predictor(
        HOSTILE,
        url=HOSTILE,
        up=False,
        up_reason=HOSTILE,
        model_names=(HOSTILE, HOSTILE),
        inference_engine_version=HOSTILE,
        engine_generation=HOSTILE,
        method=HOSTILE,
        draft_model=HOSTILE,
        engines=tuple(EngineStatus(model_name=HOSTILE, engine=HOSTILE, window=None, lifetime=None) for _ in range(2)),
        warnings=(WarningCount(code=HOSTILE, count=1, meaning=HOSTILE, releases=HOSTILE, action=HOSTILE),),
        pitfalls=(KnownPitfall(code=HOSTILE, releases=HOSTILE, meaning=HOSTILE, action=HOSTILE, costly=True),),
        verdict=Verdict(code="broken", headline=HOSTILE, reasons=(HOSTILE,), action=HOSTILE),
    )
    async with Exporter([status(hostile, predictor())]).serving() as exporter:
        await browser.resize(360)
        await browser.open(exporter.url)
        assert await browser.complaints() == []
        assert await browser.script("return window.intruder") is None
        assert await browser.script("return document.querySelectorAll('img, main script, main a').length") == 0
        assert await browser.script("return document.querySelector('h2').textContent") == HOSTILE
        assert await overflow(browser) <= 0
        target = await browser.script(
            "document.querySelector('nav a').click(); return document.querySelector(':target')?.className"
        )
    assert target == "card bad"


async def overflow(browser: Browser) -> int:
    script = "const root = document.documentElement; return root.scrollWidth - root.clientWidth"
    return int(await browser.script(script))


def long_curve() -> PredictorStatus:
    ratios = tuple(0.9**i for i in range(1, 33))
    curve = figures(per_position=ratios, conditional=(0.9,) * 32, mean_draft_length=11.0, short_drafts=True)
    return predictor("suffix", num_speculative_tokens=32, window=curve)


async def test_no_width_scrolls_sideways(browser: Browser) -> None:
    everything = status(long_curve(), predictor("a"), predictor("b", state="idle", window=None, lifetime=None))
    async with Exporter([everything]).serving() as exporter:
        await browser.open(exporter.url)
        await browser.script("document.querySelectorAll('details').forEach(details => { details.open = true })")
        for width in (320, 360, 800, 1600):
            await browser.resize(width)
            assert await browser.script("return document.documentElement.clientWidth") <= width
            assert await overflow(browser) <= 0


async def cards(browser: Browser) -> dict[str, str]:
    """What a reader sees of each predictor who unfolds its card, by its name."""
    found = await browser.script(
        "document.querySelectorAll('.folded').forEach(folded => { folded.open = true });"
        "return [...document.querySelectorAll('.card')]"
        ".map(card => [card.querySelector('h2').textContent, card.innerText])"
    )
    return {name: " ".join(text.split()) for name, text in found}


STATE_WORDS: dict[StateName, str] = {
    "unreachable": "No current figures: the exporter has no metrics of the predictor",
    "stats_disabled": "No figures: the predictor answers, but exposes no engine statistics.",
    "speculation_off": "No figures: no draft was counted, so there is nothing to measure.",
    "idle": "No drafts in the last 5 min, because the predictor generated nothing",
    "not_drafting": "No drafts in the last 5 min, although the predictor generates tokens",
    "drafting": "No figures yet: each figure needs two readings",
}


def without_figures(state: StateName) -> PredictorStatus:
    return predictor(
        state,
        state=state,
        up=state != "unreachable",
        up_reason="connection refused" if state == "unreachable" else None,
        age_seconds=1.0,
        window=None,
        lifetime=None,
        history=(),
        engines=(),
        log=None,
        method=None,
        inference_engine_version=None,
        engine_generation=None,
        num_speculative_tokens=None,
        requests_running=None,
        requests_waiting=None,
        kv_cache_usage_ratio=None,
        mean_acceptance_length_min=None,
    )


async def test_without_figures_the_page_says_why_and_what_to_do(browser: Browser) -> None:
    async with Exporter([status(*map(without_figures, STATE_WORDS))]).serving() as exporter:
        await browser.open(exporter.url)
        found = await cards(browser)
        assert await browser.complaints() == []
    assert found.keys() == STATE_WORDS.keys()
    for state, words in STATE_WORDS.items():
        text = found[state]
        assert words in text
        assert ("✕ Cannot be read: connection refused" in text) == (state == "unreachable")
        assert "Acceptance rate 0" not in text
        assert "Method not known" in text
        assert "The exporter reads no log" in text
        assert "NaN" not in text


NO_DRAFTS = figures(
    drafts=0.0,
    draft_tokens=0.0,
    accepted_tokens=0.0,
    acceptance_ratio=None,
    mean_acceptance_length=None,
    mean_draft_length=None,
    per_position=(),
    conditional=(),
)
SEVERAL = KnownPitfall(
    code="several_processes",
    releases="",
    meaning="2 processes answer at this URL. Counts add up both; gauges show one at a time.",
    action="Point each exporter at one pod.",
    costly=True,
)
BASELINE = BaselineStatus(
    name="no speculation",
    recorded_at="",
    recorded_timestamp=NOW - 3 * 86400,
    duration_seconds=1800,
    interrupted=False,
    model_name="tiny",
    vllm_version="0.32.0",
    served=True,
    refusal=None,
    remarks=(),
    acceptance_ratio=None,
    mean_acceptance_length=None,
    mean_latency_seconds={"time_per_output_token_seconds": 0.0125, "request_latency_seconds": 2.5},
)
REFUSED = msgspec.structs.replace(
    BASELINE,
    served=False,
    refusal="it is of model 'a', the predictor serves b",
    remarks=("hardware not given (--hardware)", "interrupted after 60 s"),
    acceptance_ratio=0.5,
    mean_acceptance_length=2.5,
)
SHOWN: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "no drafts": (
        {"state": "not_drafting", "window": NO_DRAFTS, "lifetime": None},
        (
            f"Acceptance rate {NONE} accepted / draft tokens",
            "although the predictor generates tokens",
            "Tokens per step 2.71",
        ),
    ),
    "below the limits": (
        {"window": figures(rate=0.05), "verdict": verdict("broken")},
        (
            "✕ Broken",
            "5.0% ▼ below the assumed break-even of 50%",
            "1.15 tokens ▼ below the assumed break-even of 1.21",
        ),
    ),
    "measured": (
        {
            "break_even": BreakEven(basis="measured", acceptance_ratio=0.07, mean_acceptance_length=1.21),
            "measured": MEASURED,
            "by_load": LOADS,
        },
        (
            "Speed-up 1.84x ✓ at or above the break-even of 1.00x",
            "at the same load; 95% between 1.79x and 1.90x at 6.4 requests in decode per engine, the mean of 3 min",
            "Acceptance rate 61.2% ✓ at or above the measured break-even of 7%",
            "By load, since the exporter started",
            f"up to 4 2 min 20.3 ms 2.20 {NONE}",
            "up to 8 now 60 min 22.5 ms 2.23 1.84x",
        ),
    ),
    "not known yet": (
        {"measured": UNKNOWN, "by_load": LOADS},
        (f"Speed-up {NONE} Not known: only 30 decoding steps so far. To know, wait for more traffic.",),
    ),
    "short drafts in the log": (
        {
            "window": figures(source="log", short_drafts=True, mean_draft_length=1.9, conditional=(0.793, None, 0.7)),
            "log": LogStatus(windows=1, lines=2, parse_errors=1, bytes_behind=3_500_000, last_line_timestamp=None),
        },
        (
            "from the log:",
            "Short drafts. A draft holds 1.90 tokens on average, not k = 3.",
            f"1 61.1% {NONE} 2",
            "1 spec-decode line in 2 lines, no line read so far.",
            "! 1 unreadable line, 3.3 MiB behind.",
        ),
    ),
    "a log that cannot be read": (
        {
            "log": msgspec.structs.replace(
                known(predictor().log), problem="there is no log file at /var/log/vllm.log yet"
            )
        },
        ("! Not read: there is no log file at /var/log/vllm.log yet",),
    ),
    "old figures": (
        {"age_seconds": 40.0, "old": True},
        ("! Old: figures of 40 s ago",),
    ),
    "a young exporter": (
        {"history": an_hour()[-1:]},
        ("Acceptance rate, last 60 s", "latest 42.2%, each over 5 min"),
    ),
    "no read so far": (
        {"age_seconds": None, "up": False, "up_reason": "not read yet", "state": "unreachable"},
        ("no metrics", "… Not read yet"),
    ),
    "several processes": (
        {"processes": 2, "pitfalls": (SEVERAL,)},
        ("! 2 processes answer at this URL. Counts add up both; gauges show one at a time. Point each exporter at",),
    ),
    "a baseline": (
        {"baseline": BASELINE},
        (
            "no speculation, recorded 3 days ago over 30 min, without speculation.",
            "Means: time per output token 12.5 ms, end-to-end latency 2.50 s. ✓ Served.",
        ),
    ),
    "a refused baseline": (
        {"baseline": REFUSED},
        (
            "with speculation: acceptance 50.0%, length 2.50.",
            "! Not served: it is of model 'a', the predictor serves b",
            "Remarks: hardware not given (--hardware); interrupted after 60 s.",
        ),
    ),
}


async def test_special_cases_are_explained_in_words(browser: Browser) -> None:
    shown = [predictor(case, **changes) for case, (changes, _) in SHOWN.items()]
    async with Exporter([status(*shown)]).serving() as exporter:
        await browser.open(exporter.url)
        found = await cards(browser)
        title = await browser.script("return document.title")
    assert found.keys() == SHOWN.keys()
    for case, (changes, words) in SHOWN.items():
        assert [each for each in words if each not in found[case]] == []
        recent = changes.get("window", NO_DRAFTS) is not None and not changes.get("old")
        assert ("over the last" in found[case]) == recent
    assert title.startswith("✕ Broken: below the limits")


async def test_history_is_drawn_with_its_gaps_and_its_threshold(browser: Browser) -> None:
    async with Exporter([status(predictor())]).serving() as exporter:
        await browser.open(exporter.url)
        path = await browser.script("return document.querySelector('.plot path').getAttribute('d')")
        line = await browser.script("return document.querySelector('.plot line').getAttribute('y1')")
        label = await browser.script("return document.querySelector('.plot').getAttribute('aria-label')")
        await browser.script(
            "const plot = document.querySelector('.plot'), box = plot.getBoundingClientRect();"
            "const at = share => plot.dispatchEvent(new PointerEvent('pointermove',"
            " {clientX: box.left + share * box.width, clientY: box.top, bubbles: true}));"
            "at(25 / 60)"
        )
        text = await browser.text()
    assert "no drafts" in text
    assert "Acceptance rate, last hour" in text
    assert path.count("M") == 2
    assert path.count("L") == 48
    assert line == "50.0"
    assert "assumed break-even 50%" in label
    assert "10 intervals without drafts" in label


async def test_the_worst_comes_first_and_each_card_has_an_anchor(browser: Browser) -> None:
    codes = get_args(VerdictCode)
    each = [predictor(f"service {code}", verdict=verdict(code)) for code in codes]
    async with Exporter([status(*each)]).serving() as exporter:
        await browser.open(exporter.url)
        order = await browser.script("return [...document.querySelectorAll('h2')].map(name => name.textContent)")
        targets = await browser.script(
            "return [...document.querySelectorAll('nav a')].map(link => {"
            " link.click(); return document.querySelector(':target').querySelector('h2').textContent })"
        )
    assert [name.removeprefix("service ") for name in order] == list(WORDS)  # the worst comes first
    assert targets == order


async def test_only_a_measurement_is_green(browser: Browser) -> None:
    each = [predictor(code, verdict=verdict(code)) for code in GOOD]
    async with Exporter([status(*each)]).serving() as exporter:
        await browser.open(exporter.url)
        badges = await browser.script(
            "return Object.fromEntries([...document.querySelectorAll('.badge')].map(badge => ["
            " badge.closest('.card').querySelector('h2').textContent,"
            " [badge.textContent, getComputedStyle(badge).color]]))"
        )
        tones = await browser.script(
            "return ['good', 'idle'].map(tone => {"
            " const mark = document.body.appendChild(Object.assign(document.createElement('p'), {className: tone}));"
            " mark.style.color = 'var(--tone)'; return getComputedStyle(mark).color })"
        )
    assert badges == {"healthy": ["✓ Healthy", tones[0]], "not_measured": ["? Not measured", tones[1]]}
    assert tones[0] != tones[1]


async def test_a_chip_tells_of_the_window_or_nothing(browser: Browser) -> None:
    """It has no room to say that a figure is of the lifetime."""
    drafting, idle = predictor("drafting"), predictor("idle", state="idle", window=None, verdict=verdict("idle"))
    async with Exporter([status(drafting, idle)]).serving() as exporter:
        await browser.open(exporter.url)
        chips = await browser.script("return [...document.querySelectorAll('nav a')].map(chip => chip.innerText)")
    assert [" ".join(chip.split()) for chip in chips] == ["✓ Healthy drafting: 61.2% accepted", "… Idle idle"]


async def test_many_predictors_are_in_natural_order_and_those_that_need_nobody_are_folded(browser: Browser) -> None:
    names = [f"c{number}" for number in range(1, 13)]
    each = [predictor(name, verdict=verdict("slower" if name in ("c2", "c10") else "healthy")) for name in names]
    async with Exporter([status(*each)]).serving() as exporter:
        await browser.open(exporter.url)
        order = await browser.script("return [...document.querySelectorAll('h2')].map(name => name.textContent)")
        folded = "return [...document.querySelectorAll('details.folded:not([open]) h2')].map(name => name.textContent)"
        closed = await browser.script(folded)
        tall = await browser.script("return document.querySelector('#predictor-c12').getBoundingClientRect().height")
        headline = await browser.script("return document.querySelector('#predictor-c12').innerText")
        await browser.script("[...document.querySelectorAll('nav a')].at(-1).click()")
        await browser.until("return document.querySelector('#predictor-c12 details').open")
        await browser.refresh_now()
        still_open = set(order) - set(await browser.script(folded))
    others = [name for name in names if name not in ("c2", "c10")]
    assert order == ["c2", "c10", *others]
    assert closed == others
    assert tall < 100
    assert headline.endswith("A headline for healthy")
    assert still_open == {"c2", "c10", "c12"}


async def test_nothing_that_somebody_must_do_is_folded_away(browser: Browser) -> None:
    fine = [predictor(f"fine-{number}") for number in range(4)]
    unread = LogStatus(windows=0, lines=0, parse_errors=0, bytes_behind=0, last_line_timestamp=None, problem="no file")
    troubled: dict[str, dict[str, Any]] = {
        "failed": {"failed_start": explained("out_of_memory", "CUDA out of memory", None)},
        "mixed": {"pitfalls": (SEVERAL,)},
        "no-log": {"log": unread},
        "refused": {"baseline": REFUSED},
    }
    each = [*fine, *(predictor(name, **changes) for name, changes in troubled.items())]
    async with Exporter([status(*each)]).serving() as exporter:
        await browser.open(exporter.url)
        shown = await browser.script("return [...document.querySelectorAll('h2')].map(name => name.textContent)")
        folded = "return [...document.querySelectorAll('details.folded h2')].map(name => name.textContent)"
        assert set(shown) - set(await browser.script(folded)) == set(troubled)


async def test_who_must_act_reads_since_when(browser: Browser) -> None:
    since = NOW - 27 * 60
    each = [predictor(code, verdict=verdict(code), verdict_since=since) for code in ("harmful", "healthy")]
    older = predictor("older", verdict=verdict("slower"), verdict_since=since, verdict_may_be_older=True)
    async with Exporter([status(*each, older)]).serving() as exporter:
        await browser.open(exporter.url)
        clock = await browser.script(
            f"return new Date({1000 * since}).toLocaleTimeString("
            "[], {hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZoneName: 'short'})"
        )
        found = await cards(browser)
    assert f"harmful ✕ Harmful for 27 min, since {clock} drafting A headline for harmful" in found["harmful"]
    assert "since" not in found["healthy"].partition("A headline")[0]
    assert "Slower for at least 27 min drafting" in found["older"]


OLD: dict[str, dict[str, Any]] = {
    "dead": {
        "up": False,
        "up_reason": "connection refused",
        "state": "unreachable",
        "verdict": verdict("no_metrics"),
        "window": figures(source="log"),
        "age_seconds": 2.0,
    },
    "hanging": {"old": True, "age_seconds": 40.0},
}


@pytest.mark.parametrize("case", OLD)
async def test_old_figures_are_grey_and_have_their_time(browser: Browser, case: str) -> None:
    """Those of a log are as old as its last line, however often the exporter has tried since."""
    old = predictor(case, **OLD[case])
    read = known(known(old.log).last_line_timestamp) if case == "dead" else NOW - 40
    async with Exporter([status(old, predictor("alive"))]).serving() as exporter:
        await browser.open(exporter.url)
        found = await cards(browser)
        time = await browser.script(
            f"return new Date({1000 * read}).toLocaleTimeString([], {{hour: '2-digit', minute: '2-digit', "
            "second: '2-digit', hourCycle: 'h23', timeZoneName: 'short'})"
        )
        grey = await browser.script(
            "return Object.fromEntries([...document.querySelectorAll('.card')].map(card => ["
            " card.querySelector('h2').textContent, [...card.querySelectorAll('.tiles, .plot, table')].map("
            " node => node.closest('.old') !== null && getComputedStyle(node.closest('.old')).filter)]))"
        )
        chips = await browser.script("return [...document.querySelectorAll('nav a')].map(chip => chip.innerText)")
    assert f"Old figures of {time}, " in found[case]
    assert "over the last" not in found[case]
    assert set(grey[case][:3]) == {"grayscale(1)"}
    assert set(grey["alive"]) == {False}
    assert [chip for chip in chips if case in chip and "accepted" in chip] == []


async def test_every_time_has_its_zone(browser: Browser) -> None:
    wrong = predictor("chat", verdict=verdict("slower"), verdict_since=NOW - 3600)
    async with Exporter([status(wrong)]).serving() as exporter:
        await browser.open(exporter.url)
        text = await browser.text()
    times = re.findall(r"\b\d\d:\d\d(?::\d\d)?(.{0,4})", text)
    assert len(times) >= 3
    assert [zone for zone in times if not re.match(r" (UTC|GMT|[A-Z])", zone)] == []


async def test_the_page_says_every_ratio_in_percent(browser: Browser) -> None:
    evidence = Evidence(state="drafting", figures=drafted(0.171), method="eagle3", num_speculative_tokens=3)
    shown = predictor("chat", verdict=judge(evidence, load_policy()).verdict)
    async with Exporter([status(shown)]).serving() as exporter:
        await browser.open(exporter.url)
        text = await browser.text()
    assert "acceptance 17.1% (break-even 12%, assumed)" in text
    assert re.findall(r"(?<![\d.])0\.\d\d(?![\d.])", text) == []


# --- how it stays current --------------------------------------------------------------------------------------------


async def test_a_refresh_changes_the_numbers_and_keeps_what_the_reader_opened(browser: Browser) -> None:
    before = status(predictor("a"), predictor("b", verdict=verdict("watch")))
    after = status(predictor("a", window=figures(rate=0.333), verdict=verdict("not_paying")), predictor("c"))
    async with Exporter([before, after]).serving() as exporter:
        await browser.open(exporter.url)
        await browser.script("document.getElementById('predictor-a').querySelector('details').open = true")
        await browser.refresh_now()
        await browser.until("return document.body.innerText.includes('33.3')")
        names = await browser.script("return [...document.querySelectorAll('h2')].map(name => name.textContent)")
        opened = await browser.script(
            "return [...document.querySelectorAll('main details')].map(details => details.open)"
        )
    assert names == ["a", "c"]
    assert opened == [True, False]


async def test_it_asks_again_by_itself_and_not_while_nobody_looks(browser: Browser) -> None:
    answers = [status(predictor(window=figures(rate=rate))) for rate in (0.666, 0.777, 0.888)]
    async with Exporter(answers).serving() as exporter:
        await browser.open(exporter.url)
        await browser.until("return document.body.innerText.includes('77.7')")
        await browser.script("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        await browser.refresh_now()
        assert len(exporter.requests) == 2
        await browser.script("delete document.hidden")
        await browser.refresh_now()
        await browser.until("return document.body.innerText.includes('88.8')")


async def test_an_exporter_that_stops_answering_is_called_out_until_it_is_back(browser: Browser) -> None:
    async with Exporter([status(predictor())]).serving() as exporter:
        await browser.open(exporter.url)
        exporter.silent = True
        await browser.refresh_now()
        await browser.until("return !document.getElementById('notice').hidden")
        text = await browser.text()
        assert "The exporter does not answer (no connection). The figures below are from" in text
        assert "and are not updated" in text
        assert "Not updating." in text
        assert "61.2%" in text
        exporter.silent = False
        await browser.refresh_now()
        await browser.until("return document.getElementById('notice').hidden")
        assert "Updates every 5 s." in await browser.text()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("<html>a proxy's login</html>", "The exporter does not answer (the answer is not JSON)."),
        ('{"predictors": [{}]}', "The page cannot show the exporter's answer"),
        (msgspec.json.encode(status()).decode(), "No predictor is configured"),
    ],
    ids=["HTML", "nothing in it", "none configured"],
)
async def test_an_answer_without_predictors_is_called_out(browser: Browser, answer: str, words: str) -> None:
    async with Exporter([], instead=answer).serving() as exporter:
        await browser.open(exporter.url)
        assert words in await browser.text()


# --- everyone can read it --------------------------------------------------------------------------------------------


async def test_charts_have_words_and_headings_an_order(browser: Browser) -> None:
    async with Exporter([status(predictor())]).serving() as exporter:
        await browser.open(exporter.url)
        labels = await browser.script(
            "return [...document.querySelectorAll('svg')].map(chart => [chart.getAttribute('role'), chart.ariaLabel])"
        )
        headings = await browser.script(
            "return [...document.querySelectorAll('h1, h2, h3')].map(heading => Number(heading.tagName[1]))"
        )
    assert len(labels) == 6
    assert all(role == "img" and label for role, label in labels)
    position = "position 1: 61.1% of drafts, 77.0% if the position before was accepted"
    assert ["img", position] in labels
    assert headings[:2] == [1, 2]
    assert all(deeper - heading <= 1 for heading, deeper in itertools.pairwise(headings))


def test_data_is_never_parsed_as_html_and_nothing_comes_from_elsewhere() -> None:
    source = PAGE.decode()
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\son\w+=|\sstyle=", source)
    assert set(re.findall(r"https?://[^'\"\s]+", source)) == {"http://www.w3.org/2000/svg"}
