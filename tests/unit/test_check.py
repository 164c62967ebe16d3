"""The smoke check against real HTTP servers that answer what real predictors answered."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import math
import re
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from rich.console import Console

from specdec_exporter.baseline.writing import write_baseline
from specdec_exporter.commands.check import check
from specdec_exporter.config import Duration, PredictorSettings, WebSettings
from specdec_exporter.histogram import Histogram
from specdec_exporter.inspection import livecheck
from specdec_exporter.inspection.examination import LogReading
from specdec_exporter.inspection.exportercheck import examine_exporter
from specdec_exporter.serving import serve as exporter_process
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.state.record import PredictorState
from specdec_exporter.terminal.check import print_examination
from support import running
from support.builders import CAPTURES, FIXTURES, engine, started
from support.exposition import render
from support.processes import EXPORTER, child
from support.recordings import recording
from support.running import Predictor
from unit.test_fetch import answer, serving
from web import statuses

INTERVAL = 0.05


def body(capture: str, name: str) -> bytes:
    return (CAPTURES / capture / name).read_bytes()


@pytest.fixture
async def predictor() -> AsyncIterator[Predictor]:
    async with running.predictor() as playing:
        playing.version = None
        yield playing


class Result:
    """Exit code and text; ``lines`` are the findings, unwrapped, by subject."""

    def __init__(self, code: int, text: str, stderr: str) -> None:
        self.code = code
        self.stderr = stderr
        self.text = text
        self.flat = " ".join(text.split())

    def finding(self, subject: str) -> str:
        found = re.findall(rf"(?:PASS|WARN|FAIL) {subject}: .*?(?= (?:PASS|WARN|FAIL) |$)", self.flat)
        assert found, f"no line about {subject} in:\n{self.text}"
        return str(found[-1])


Check = Callable[..., Awaitable[Result]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("COLUMNS", "100")

    async def run_check(url: str, *log_paths: str, **options: Any) -> Result:
        options = {"timeout_seconds": 5, "window_seconds": INTERVAL, **options}
        with running.printed() as found:
            code = await check(url, log_paths=log_paths, **options)
        return Result(code, found.out, found.err)

    return run_check


def log(capture: str) -> str:
    return str(CAPTURES / capture / "server.log")


K3 = "0.25.1-draft_model-k3"
Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve an exporter in this process that has read each predictor twice; return its URL."""
    async with contextlib.AsyncExitStack() as stack:

        async def serving(*predictors: PredictorSettings, **web_settings: Any) -> str:
            listening = WebSettings(listen_addresses=("127.0.0.1:0",), **web_settings)
            runtime = await stack.enter_async_context(started(*predictors, web=listening, window=Duration(600)))
            site = exporter_process._site(runtime)
            runner = await exporter_process._bind(site, listening.listen_addresses)
            stack.push_async_callback(runner.cleanup)
            for _ in range(2):
                await runtime.refresh(5)
            return f"http://127.0.0.1:{runner.addresses[0][1]}"

        yield serving


# --- what a good predictor looks like ---


async def test_a_predictor_that_drafts_well_passes(predictor: Predictor, run: Check) -> None:
    predictor.bodies = [
        body("0.25.1-draft_model-k3", "metrics-0-before-any-request.txt"),
        body("0.25.1-draft_model-k3", "metrics-1-p90.txt"),
    ]
    predictor.version = "0.25.1"
    result = await run(predictor.url, log("0.25.1-draft_model-k3"))
    assert result.finding("Drafting").startswith("PASS Drafting: 464 drafts of 1,392 tokens")
    # The counters of minutes in an instant are a large batch.
    assert result.finding("Acceptance").startswith("PASS Acceptance: 81.6% (break-even 50%, assumed")
    told = r"PASS Length: mean acceptance length 3\.45; at \d+ requests in decode about 2\.50 pay off, assumed"
    assert re.match(told, result.finding("Length"))
    assert "vLLM 0.25.1, V1, 1 engine, model tiny" in result.finding("Release")
    assert "method draft_model, draft model /models/draft, k = 3" in result.finding("Speculation")
    assert "Verdict: not measured" in result.text
    assert re.search(r"^ +0 +█+.? +90\.1%", result.text, re.MULTILINE)


# --- what does not pay: warnings, exit code 2 ---


async def test_a_v0_predictor_is_judged_by_its_lifetime_ratio(predictor: Predictor, run: Check) -> None:
    predictor.bodies = [body("0.9.2-v0-ngram-k5", "metrics-5-idle.txt")]
    predictor.version = "0.9.2"
    result = await run(predictor.url, log("0.9.2-v0-ngram-k5"))
    assert result.code == 0
    assert "lifetime ratio" in result.finding("vLLM up to 0.9.2")
    assert "since the predictor started" in result.finding("Drafting")
    assert "70.4% (break-even" in result.finding("Acceptance")


# --- against a baseline ---


def recorded(directory: Path, seconds: float, model: str = "tiny", **more: Any) -> str:
    """The file of a baseline without speculation."""
    path = str(directory / "baseline.yaml")
    write_baseline(path, recording("quiet hour", [seconds] * 1000, model_name=model, **more))
    return path


def timed(seconds: float) -> bytes:
    """Metrics of 1,000 drafts of three tokens, 80 % accepted, and 1,000 requests that took ``seconds`` a token."""
    bounds = (0.01, 0.1, math.inf)
    counts = tuple(1000.0 if seconds <= bound else 0.0 for bound in bounds)
    drafted = msgspec.structs.replace(
        engine(1000.0, (800.0,) * 3, requests=1000),
        prompt_tokens=None,
        time_per_output_token=Histogram(bounds, counts, 1000 * seconds),
    )
    return render([drafted])


async def test_a_predictor_that_is_slower_than_without_speculation_is_harmful(
    predictor: Predictor, run: Check, tmp_path: Path
) -> None:
    predictor.bodies = [timed(0.08)]
    result = await run(predictor.url, baseline_path=recorded(tmp_path, 0.02))
    assert result.code == 2
    assert "Verdict: harmful" in result.text
    assert result.finding("Speed").startswith("WARN Speed: time per output token 80.0 ms over 1,000 requests")
    assert "speed-up 0.25" in result.finding("Speed")
    assert result.finding("Baseline").startswith("PASS Baseline: quiet hour, of 1,000 requests")
    found = json.loads((await run(predictor.url, baseline_path=str(tmp_path / "baseline.yaml"), output="json")).text)
    assert (found["level"], found["verdict"]["code"], found["status"]["model_names"]) == ("WARN", "harmful", ["tiny"])
    assert found["basis"]["time_per_output_token_seconds"] == pytest.approx(0.08)


@pytest.mark.parametrize("by_exporter", [False, True])
async def test_a_baseline_of_another_model_is_not_compared(
    predictor: Predictor, serve: Serve, run: Check, tmp_path: Path, by_exporter: bool
) -> None:
    predictor.bodies = [timed(0.08)]
    file = recorded(tmp_path, 0.02, model="another")
    if by_exporter:
        result = await run(await serve(PredictorSettings(name="chat", url=predictor.url, baseline=file)))
    else:
        result = await run(predictor.url, baseline_path=file)
        assert "Verdict: not measured" in result.text
    assert result.code == 2
    assert result.finding("Baseline").startswith("WARN Baseline: quiet hour is not compared")


# --- how long it reads ---


async def test_a_long_window_is_read_more_than_twice_and_says_so(
    predictor: Predictor, run: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(livecheck, "_READING_SECONDS", 0.05)
    monkeypatch.setattr(livecheck, "_SHORT_SECONDS", 0.05)
    names = ("metrics-0-before-any-request.txt", "metrics-1-p90.txt", "metrics-2-p60.txt")
    predictor.bodies = [body(K3, name) for name in names]
    result = await run(predictor.url, window_seconds=0.2)
    assert predictor.requests == 5
    assert result.stderr == ""  # progress is for a terminal
    assert re.search(r"0\.[2-9] s +since start", result.text)


async def test_a_signal_ends_the_command_with_a_report(predictor: Predictor) -> None:
    predictor.bodies = [body("0.25.1-draft_model-k3", "metrics-1-p90.txt")]
    with child(*EXPORTER, "check", predictor.url, "--window=1h") as check:
        while not predictor.requests:
            await asyncio.sleep(0.05)
        check.send_signal(signal.SIGINT)
        stdout, stderr = await asyncio.to_thread(check.communicate)
    assert (check.returncode, stderr) == (0, b"")
    assert "0 to look at, 0 failed" in stdout.decode()


# --- a running exporter ---


@pytest.mark.parametrize("path", ["", "/", "/metrics", "/api/v1/status"])
async def test_an_exporter_tells_its_own_window_at_once(
    predictor: Predictor, serve: Serve, run: Check, path: str
) -> None:
    predictor.bodies = [body(K3, name) for name in ("metrics-0-before-any-request.txt", "metrics-1-p90.txt")]
    predictor.version = "0.25.1"
    url = await serve(PredictorSettings(name="chat", url=predictor.url))
    result = await run(url + path, window_seconds=3600)
    assert result.code == 0
    found = f"reads chat at {predictor.url}; figures of its window of 600 s"
    assert found in result.finding("Exporter")
    assert result.finding("Drafting").startswith("PASS Drafting: 464 drafts of 1,392 tokens")
    assert result.finding("Verdict").startswith("PASS Verdict: Probably pays: 3.45 tokens a step; at ")
    assert "vLLM 0.25.1, V1, 1 engine, model tiny" in result.finding("Release")
    assert re.search(r"^ +0 +█+.? +90\.1%", result.text, re.MULTILINE)


async def test_an_exporter_says_which_flags_it_does_not_use(predictor: Predictor, serve: Serve, run: Check) -> None:
    predictor.bodies = [body(K3, "metrics-1-p90.txt")]
    url = await serve(PredictorSettings(name="chat", url=predictor.url))
    assert "Not used: --window, --predictor.log-path. " in (await run(url, log(K3), window_seconds=60.0)).flat
    assert "Not used" not in (await run(url, window_seconds=livecheck.WINDOW_SECONDS)).flat


async def test_the_warnings_in_the_log_of_an_exporter_are_shown(
    predictor: Predictor, serve: Serve, run: Check, tmp_path: Path
) -> None:
    predictor.bodies = [body(K3, "metrics-1-p90.txt")]
    path = tmp_path / "server.log"
    path.write_bytes(b"")
    url = await serve(PredictorSettings(name="chat", url=predictor.url, log_paths=(str(path),)))
    path.write_bytes((CAPTURES / APISERVERS / "server.log").read_bytes())
    async with asyncio.timeout(20):
        while "Warnings in the log" not in (result := await run(url)).flat:
            await asyncio.sleep(0.05)
    assert re.search(r"Warnings in the log .*?stats_logging_disabled, \d x \(vLLM", result.flat)


@pytest.mark.parametrize(
    ("changes", "title"),
    [({}, "Figures"), ({"old": True, "age_seconds": 40.0}, "Old figures"), ({"up": False}, "Old figures")],
)
def test_figures_that_could_not_be_read_anew_are_called_old(changes: dict[str, Any], title: str) -> None:
    status = statuses.predictor(**changes)
    written = io.StringIO()
    examination = examine_exporter(statuses.status(status), status, load_policy())
    print_examination(Console(file=written, width=100), examination, status)
    assert f"\n{title}\n" in written.getvalue()


async def test_of_several_predictors_each_is_told_and_the_worst_one_counts(
    predictor: Predictor, serve: Serve, run: Check
) -> None:
    predictor.bodies = [body(K3, "metrics-1-p90.txt")]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
        url = await serve(PredictorSettings(name="gone", url=nobody), PredictorSettings(name="chat", url=predictor.url))
        result = await run(url, output="json")
    gone, chat = map(json.loads, result.text.splitlines())
    assert result.code == 1
    assert (gone["level"], gone["status"]["inference_service"]) == ("FAIL", "gone")
    assert (chat["level"], chat["status"]["inference_service"]) == ("PASS", "chat")
    assert [each["subject"] for each in gone["findings"]] == ["Exporter", "Metrics"]
    assert "cannot connect" in gone["findings"][1]["found"]


async def test_a_log_that_an_exporter_cannot_read_is_a_warning(
    predictor: Predictor, serve: Serve, run: Check, tmp_path: Path
) -> None:
    predictor.bodies = [body(K3, "metrics-1-p90.txt")]
    path = str(tmp_path / "gone" / "vllm.log")
    result = await run(await serve(PredictorSettings(name="chat", url=predictor.url, log_paths=(path,))))
    assert result.code == 2
    assert f"WARN Log: there is no log file at {path} yet" in result.flat


@pytest.mark.parametrize("by_exporter", [False, True])
async def test_several_processes_behind_a_url_are_a_warning(
    predictor: Predictor, serve: Serve, run: Check, monkeypatch: pytest.MonkeyPatch, by_exporter: bool
) -> None:
    monkeypatch.setattr(PredictorState, "process_count", 3)
    predictor.bodies = [body(K3, "metrics-1-p90.txt")]
    result = await run(await serve(PredictorSettings(url=predictor.url)) if by_exporter else predictor.url)
    assert result.code == 2
    assert result.finding("Predictor").startswith("WARN Predictor: 3 processes answer at this URL. Counts add up all")


@pytest.mark.parametrize(
    ("capture", "names", "words"),
    [
        (
            K3,
            ("metrics-2-p60.txt", "metrics-3-p30.txt"),
            r"(Verdict: May lose|Length: mean acceptance length 1\.42; at \d+ requests in decode about 2\.50 pay off)",
        ),
        ("0.32.0-baseline-nospec", ("metrics-1-after.txt",), "Speculation: Speculative decoding is off"),
        ("0.25.1-ngram-k5", ("metrics-3-low.txt", "metrics-4-no-match.txt"), "Drafting: Tokens are generated, but"),
        (K3, ("metrics-0-before-any-request.txt",), "Drafting: nothing was drafted yet"),
    ],
)
async def test_what_does_not_pay_is_a_warning_of_the_predictor_and_of_its_exporter(
    predictor: Predictor, serve: Serve, run: Check, *, capture: str, names: tuple[str, ...], words: str
) -> None:
    predictor.bodies = [body(capture, name) for name in names]
    alone = await run(predictor.url)
    predictor.requests = 0
    result = await run(await serve(PredictorSettings(name="chat", url=predictor.url)))
    assert re.search(f"WARN {words}", alone.flat)
    assert re.search(f"WARN {words}", result.flat)
    assert alone.code == result.code == 2


# --- what cannot work: failures, exit code 1 ---


@pytest.mark.parametrize(
    ("families", "said"),
    [
        (("nv_inference_count", "nv_inference_exec_count"), "This is Triton: its metrics tell nothing of drafts"),
        (("tgi_queue_size", "tgi_batch_current_size"), "This is Text Generation Inference: what it tells of drafts is"),
    ],
)
async def test_an_engine_that_tells_nothing_of_drafts_is_named(
    predictor: Predictor, run: Check, families: tuple[str, ...], said: str
) -> None:
    predictor.bodies = ["".join(f"{name} 5\n" for name in families).encode()]
    result = await run(predictor.url)
    assert result.code == 1
    assert f"FAIL Statistics: {said}" in result.flat
    assert "LMDeploy" in result.flat
    predictor.bodies = [f"{families[0]} 5\n".encode()]  # a single family may be another program's
    assert "This is" not in (await run(predictor.url)).flat


async def test_of_another_engine_it_tells_what_that_counts_and_what_not(predictor: Predictor, run: Check) -> None:
    capture = FIXTURES / "engines" / "llamacpp" / "b11434-big-counts"
    predictor.bodies = [(capture / f"metrics-{name}.txt").read_bytes() for name in ("000-after", "after-small-2")]
    result = await run(predictor.url, log(K3))
    assert result.code == 0
    assert "llama.cpp of unknown release, 1 engine, model not known" in result.finding("Release")
    assert "it tells no latencies" in result.finding("Release")
    assert result.finding("Speculation").endswith("on, k = 48")
    assert "it is not read: only vLLM's is, and llama.cpp answers" in result.finding("Log")
    assert "compare results of vllm bench serve" in result.flat
    assert "baseline record" not in result.flat


async def test_nobody_listening_is_a_failure_with_a_hint(run: Check) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        result = await run(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert result.code == 1
    assert "8080" in result.finding("Metrics")
    assert "Verdict: no metrics" in result.text


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        pytest.param({"status": 500}, "answered 500 Internal Server Error", id="500"),
        pytest.param({"body": b"<html><body>Grafana"}, "found '<html><body>Grafana'", id="HTML"),
        pytest.param({"body": b'{"detail":"x"}'}, """found '{"detail":"x"}'""", id="JSON"),
        pytest.param({"body": b""}, "found nothing", id="empty"),
        pytest.param({"body": b"\xff\xfe\x00"}, "found UTF-16", id="garbage"),
    ],
)
async def test_a_server_that_answers_no_metrics_is_a_failure_and_never_said_not_to_answer(
    predictor: Predictor, serve: Serve, run: Check, answers: dict[str, Any], found: str
) -> None:
    vars(predictor).update(answers)
    for url in (predictor.url, await serve(PredictorSettings(url=predictor.url))):
        result = await run(url)
        assert result.code == 1
        assert re.match(rf"FAIL Metrics: GET http://127.0.0.1:\d+.*{re.escape(found)}.* -> ", result.finding("Metrics"))
        assert "not answer" not in result.flat
        assert "reach" not in result.flat


@pytest.mark.parametrize("location", ["/login", "https://sso.example/login"])
async def test_a_login_in_front_is_named_and_not_the_port(run: Check, location: str) -> None:
    page = web.Response(body=b"<!doctype html><title>Sign in</title>", content_type="text/html")
    async with serving(("/metrics", answer(status=302, Location=location)), ("/login", page)) as url:
        result = await run(url)
    assert result.code == 1
    assert re.search(r"was redirected to \S+/login", result.finding("Metrics"))
    assert "as a login does" in result.finding("Metrics")
    assert "port of vLLM" not in result.flat


@pytest.mark.parametrize(
    ("status", "hint"),
    [(404, "/version says vLLM 0.32.0"), (401, "Give the credentials"), (429, "overloaded"), (503, "overloaded")],
)
async def test_only_a_wrong_path_on_the_right_server_is_called_wrong(
    predictor: Predictor, run: Check, status: int, hint: str
) -> None:
    predictor.bodies, predictor.status, predictor.version = [b""], status, "0.32.0"
    result = await run(predictor.url)
    assert result.code == 1
    assert hint in result.finding("Metrics")
    assert ("without a path" in result.flat) is (status == 404)


@pytest.mark.parametrize("by_exporter", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "said", "verdict"),
    [
        ("spec_decode_num_drafts_total", "NaN", "is NaN", "watch"),  # draft tokens tell
        ("spec_decode_num_accepted_tokens_total", "-5", "is negative", "unknown"),
        ("generation_tokens_total", "+Inf", "is infinite, or too large for a count", "unknown"),
    ],
)
async def test_a_counter_that_is_no_count_is_named(
    predictor: Predictor, serve: Serve, run: Check, *, name: str, value: str, said: str, verdict: str, by_exporter: bool
) -> None:
    bodies = (body(K3, each) for each in ("metrics-2-p60.txt", "metrics-3-p30.txt"))
    pattern = re.compile(rf"^(vllm:{name}{{.*?}}) .*$", re.MULTILINE)
    predictor.bodies = [pattern.sub(rf"\1 {value}", each.decode()).encode() for each in bodies]
    result = await run(await serve(PredictorSettings(url=predictor.url)) if by_exporter else predictor.url)
    assert result.code == 2
    assert f"WARN Predictor: vllm:{name} {said}" in result.flat
    assert f"Verdict: {verdict}" in result.text
    assert "traffic" not in result.flat
    assert " - draft" not in result.flat


async def test_disabled_statistics_are_a_failure_that_names_the_flag(predictor: Predictor, run: Check) -> None:
    predictor.bodies = [body("0.32.0-draft_model-disable-log-stats", "metrics-1-after.txt")]
    predictor.version = "0.32.0"
    result = await run(predictor.url)
    assert result.code == 1
    assert "/version says vLLM 0.32.0" in result.finding("Statistics")
    assert "--disable-log-stats" in result.finding("Statistics")


async def test_a_predictor_that_goes_away_in_between_is_a_failure(predictor: Predictor, run: Check) -> None:
    predictor.bodies = [body("0.25.1-draft_model-k3", "metrics-1-p90.txt"), b"<html>gateway</html>"]
    result = await run(predictor.url)
    assert result.code == 1
    assert "a later fetch failed" in result.finding("Metrics")


async def test_a_password_in_the_url_is_not_shown(predictor: Predictor, run: Check) -> None:
    predictor.bodies = [body("0.25.1-draft_model-k3", "metrics-1-p90.txt")]
    result = await run(predictor.url.replace("http://", "http://user:secret@"))
    assert result.code == 0
    assert "secret" not in result.text


# --- the log beside it ---


APISERVERS = "0.32.0-draft_model-apiservers2"


@pytest.mark.parametrize(
    ("capture", "name", "version", "found", "believed"),
    [
        (K3, "metrics-4-idle.txt", "0.25.1", "PASS Log: .*hold 100.0% of the draft tokens", True),
        (K3, "metrics-1-p90.txt", "0.25.1", "WARN Log: it holds 6,999 draft tokens, the predictor counts 1,392", True),
        (K3, "metrics-1-p90.txt", "0.26.0", "WARN Log: it comes from vLLM 0.25.1, the predictor runs 0.26.0", False),
        (APISERVERS, "metrics-4-end.txt", "0.32.0", "PASS Log: no spec-decode line. Several API servers", True),
    ],
    ids=["its own", "more than the counters", "of another release", "of two API servers"],
)
async def test_a_log_is_compared_with_counters_and_release(
    predictor: Predictor, run: Check, *, capture: str, name: str, version: str, found: str, believed: bool
) -> None:
    predictor.bodies, predictor.version = [body(capture, name)], version
    result = await run(predictor.url, log(capture))
    assert re.match(found, result.finding("Log"))
    assert ("method draft_model" in result.finding("Speculation")) is believed
    assert result.code == 2 or found.startswith("PASS")


async def test_the_log_is_read_after_the_window_and_before_the_last_counters(
    predictor: Predictor, run: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what vLLM logged meanwhile counts."""
    path = tmp_path / "server.log"
    path.write_bytes(b"")
    predictor.bodies = [body(K3, "metrics-4-idle.txt")]
    read = livecheck.read_log

    def when_read(paths: Sequence[str]) -> LogReading:
        requests.append(predictor.requests)
        path.write_bytes(Path(log(K3)).read_bytes())
        return read(paths)

    requests: list[int] = []
    monkeypatch.setattr(livecheck, "_READING_SECONDS", 0.05)
    monkeypatch.setattr(livecheck, "read_log", when_read)
    result = await run(predictor.url, str(path), window_seconds=0.2)
    assert (requests, predictor.requests) == ([4], 5)
    assert "method draft_model" in result.finding("Speculation")
    assert "hold 100.0% of the draft tokens" in result.finding("Log")


async def test_a_log_that_is_younger_than_a_line_is_not_said_to_have_had_no_traffic(
    predictor: Predictor, run: Check, tmp_path: Path
) -> None:
    start = Path(log(K3)).read_bytes().partition(b"SpecDecoding metrics")[0].rpartition(b"\n")[0] + b"\n"
    start = b"".join(line for line in start.splitlines(keepends=True) if b"throughput" not in line)
    (tmp_path / "log").write_bytes(start)
    predictor.bodies = [body(K3, "metrics-1-p90.txt")]
    result = await run(predictor.url, str(tmp_path / "log"))
    assert "no traffic yet" not in result.flat
    assert "vLLM writes one every 10 s" in result.finding("Log")


async def test_an_unreadable_log_is_a_failure(predictor: Predictor, run: Check, tmp_path: Path) -> None:
    predictor.bodies = [body("0.25.1-draft_model-k3", "metrics-1-p90.txt")]
    result = await run(predictor.url, str(tmp_path / "gone.log"))
    assert result.code == 1
    assert "gone.log: expected the predictor's log" in result.finding("Log")
    assert "81.6% (break-even" in result.finding("Acceptance")


async def test_garbled_lines_are_a_warning(predictor: Predictor, run: Check, tmp_path: Path) -> None:
    text = Path(log("0.25.1-draft_model-k3")).read_text()
    (tmp_path / "log").write_text(re.sub(r"Accepted: \d+ tokens", "Accepted: 999999 tokens", text, count=1))
    predictor.bodies = [body("0.25.1-draft_model-k3", "metrics-4-idle.txt")]
    result = await run(predictor.url, str(tmp_path / "log"))
    assert result.code == 2
    assert "1 lines of vLLM's statistics could not be read" in result.flat
