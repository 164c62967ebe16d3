"""A start that fails is found in the log, once, by its cause; nothing else is, least of all what a user writes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import msgspec.yaml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter.commands.analyze import analyze
from specdec_exporter.inspection.examination import failed_starts
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.predictor.facts.failures import UNKNOWN, explained, known_cause, load_failures
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, ServerReady, StartFailure
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.versions import parse_release
from specdec_exporter.state.observing import observe_event
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from support.builders import FIXTURES
from support.running import printed
from support.userstext import PLACES

FAILED = sorted((FIXTURES / "starts" / "failed").glob("*.log"))
HEALTHY = sorted([*(FIXTURES / "captures").glob("*/server.log"), *(FIXTURES / "starts").glob("*.log")])
CAUSES = {
    "unknown-method": "unknown_method",
    "unknown-key": "unknown_key",
    "invalid-json": "invalid_json",
    "unknown-argument": "unknown_argument",
    "no-draft-model": "draft_model_missing",
    "no-k": "num_speculative_tokens_missing",
    "missing-draft": "model_not_found",
    "draft-not-in-cache": "model_not_found",
    "missing-model": "model_not_found",
    "missing-weights": "weights_missing",
    "other-vocabulary": "vocabulary_mismatch",
    "draft-tensor-parallel": "draft_tensor_parallel",
    "tensor-parallel-key": "draft_tensor_parallel",
    "no-multiple": "num_speculative_tokens_no_multiple",
    "missing-package": "missing_package",
    "lookup-window": "prompt_lookup",
    "attention-backend": "attention_backend",
    "too-long": "context_too_long",
    "heads": "parallel_size",
    "cache-too-large": "cpu_memory",
    "empty-variable": UNKNOWN,
    "port-in-use": "port_in_use",
}
ARGUMENTS = "(APIServer pid=7) INFO 11-23 00:10:24 [api_utils.py:286] non-default args: {'model': 'm'}"
READY = "(APIServer pid=7) INFO 11-23 00:10:48 [entry.py:140] Starting vLLM server on http://127.0.0.1:8000"
STATS = (
    "(APIServer pid=7) INFO 11-23 00:11:08 [loggers.py:273] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 2.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, "
    "Prefix cache hit rate: 0.0%"
)
ENDED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
CAUSE = "ValueError: Target and draft model should have the same vocabulary size."


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    holds: list[str]
    fails: list[str]


CASES = msgspec.yaml.decode((FIXTURES / "facts" / "failures.yaml").read_bytes(), type=dict[str, Cases])


def read(*texts: str | bytes, step: int | None = None) -> list[Event]:
    """The events about starts; ``step``: whole lines are given to the scanner in buffers of about so many bytes."""
    log = b"".join(text.encode() if isinstance(text, str) else text for text in texts)
    scanner = LogScanner(ReaderCounters(), trust="auto")
    found: list[Event] = []
    lines, buffer = log.splitlines(keepends=True), bytearray()
    for line in lines:
        buffer += line
        if step is not None and len(buffer) >= step and line.endswith(b"\n"):
            found += scanner.scan(buffer, len(buffer))
            buffer = bytearray()
    end = buffer.rfind(b"\n") + 1
    found += [*scanner.scan(buffer, end), *scanner.finish(bytes(buffer[end:]))]
    return [event for event in found if isinstance(event, StartFailure | ServerReady)]


def codes(*texts: str | bytes, step: int | None = None) -> list[str]:
    return [event.failure if isinstance(event, StartFailure) else "ready" for event in read(*texts, step=step)]


def lines(*texts: str) -> str:
    return "".join(f"{text}\n" for text in texts)


def cause_of(path: Path) -> str:
    return CAUSES[path.stem.partition("-")[2]]


# --- real servers ---


@pytest.mark.parametrize("path", FAILED, ids=lambda path: path.stem)
def test_a_real_start_that_failed_is_a_finding(path: Path) -> None:
    (event,) = read(path.read_bytes())
    assert isinstance(event, StartFailure)
    assert event.failure == cause_of(path)
    assert codes(path.read_bytes(), step=700) == [event.failure]
    with printed() as found:
        assert analyze([str(path)]) == 1
    report = " ".join(found.out.split())
    assert report.index("FAIL Start: the server did not start") < report.index("Configuration")
    assert " ".join(load_failures()[event.failure].action.split())[:40] in report


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_healthy_start_has_no_finding_wherever_its_log_ends(path: Path) -> None:
    log = path.read_bytes().splitlines(keepends=True)
    assert codes(*log) == []
    for end in range(0, min(len(log), 200), 23):
        assert codes(*log[:end]) == []


def test_a_crash_loop_counts_each_try_once_until_a_start_succeeds() -> None:
    tries = [path.read_bytes() for path in FAILED]
    expected = [cause_of(path) for path in FAILED]
    for step in (None, 5000):
        assert sorted(codes(*tries, step=step)) == sorted(expected)
    healthy = (FIXTURES / "captures" / "0.32.0-draft_model-k3" / "server.log").read_bytes()
    assert codes(*tries, healthy)[-1] == "ready"
    assert codes(healthy, tries[-1]) == [expected[-1]]


def test_only_a_failed_last_start_is_a_failure(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    for after, status in (("", 1), (lines(ARGUMENTS, READY), 2), (lines(ARGUMENTS, STATS), 2)):  # nothing is drafted
        log.write_text(lines(ARGUMENTS, CAUSE) + after)
        for output in ("text", "jsonl"):
            with printed() as found:
                assert analyze([str(log)], output=output) == status
            assert "vocabulary_mismatch" in found.out


# --- framing ---


@pytest.mark.parametrize("path", FAILED[:1], ids=lambda path: path.stem)
def test_a_failed_start_is_read_in_every_framing(path: Path) -> None:
    said = path.read_text().splitlines()
    cri = "".join(f"2026-11-23T00:10:24.1Z stderr F {line}\n" for line in said)
    docker = "".join(json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-11-23"}) + "\n" for line in said)
    compose = "".join(f"vllm-1  | {line}\n" for line in said)
    for log in (cri, docker, compose, "".join(f"{line}\r\n" for line in said)):
        assert codes(log) == [cause_of(path)]


GEMMA = """\
Traceback (most recent call last):
  File "/usr/local/bin/vllm", line 8, in <module>
    sys.exit(main())
pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig
  Value error, {said} [type=value_error, input_value=ArgsKwargs((), {{'method': 's3cret'}}), input_type=ArgsKwargs]
    For further information visit https://errors.pydantic.dev/2.12/v/value_error"""
METHOD = """\
pydantic_core._pydantic_core.ValidationError: 2 validation errors for SpeculativeConfig
method
  Input should be 'ngram', 'medusa', 'eagle' or 'suffix' [type=literal_error, input_value='ngrm', input_type=str]
    For further information visit https://errors.pydantic.dev/2.12/v/literal_error
num_speculative_token
  Unexpected keyword argument [type=unexpected_keyword_argument, input_value=5, input_type=int]"""
EAGLE3 = "Eagle3 is only supported for ['llama', 'qwen'] models. Got x.model_type='gemma3_text'"
NEVER_SEEN = "Cats cannot draft for dogs."
TRIES = [
    (GEMMA.format(said=EAGLE3), "target_without_eagle3", f"SpeculativeConfig: Value error, {EAGLE3}"),
    (GEMMA.format(said=NEVER_SEEN), UNKNOWN, f"SpeculativeConfig: Value error, {NEVER_SEEN}"),
    (METHOD, "unknown_method", "SpeculativeConfig.method: Input should be 'ngram', 'medusa', 'eagle' or 'suffix'"),
]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "(APIServer pid=1) ",
        "(EngineCore pid=9) ERROR 11-23 00:10:40 [core.py:1] ",
        "Nov 10 10:00:00 gpu1 vllm[17]: ",
        "2026-11-10 10:00:00,123  ERROR  worker | ",
        "[2026-06-24 01:33:27.448305][UC][E] ",
    ],
)
@pytest.mark.parametrize(("error", "code", "message"), TRIES)
def test_the_line_below_a_validation_error_is_the_cause(prefix: str, error: str, code: str, message: str) -> None:
    (event,) = read(lines(ARGUMENTS, *(f"{prefix}{line}" for line in error.splitlines()), ENDED))
    assert isinstance(event, StartFailure)
    assert (event.failure, event.message) == (code, message)


def test_a_known_error_counts_behind_the_prefix_of_any_collector() -> None:
    for prefix in ("Nov 10 10:00:00 gpu1 vllm[17]: ", "[2026-06-24 01:33:27][UC][E] "):
        (event,) = read(lines(ARGUMENTS, f"{prefix}{CAUSE}"))
        assert isinstance(event, StartFailure)
        assert (event.failure, event.message) == ("vocabulary_mismatch", CAUSE)


# --- what is not known ---


def test_an_unknown_cause_is_told_with_the_line_that_ended_the_first_traceback() -> None:
    engine = "(EngineCore pid=9) ERROR 11-23 00:10:40 [core.py:1] "
    log = lines(
        ARGUMENTS,
        f"{engine}EngineCore failed to start.",
        f"{engine}KeyError: 'handled'",
        f"{engine}During handling of the above exception, another exception occurred:",
        f"{engine}ZeroDivisionError: the cause",
        "Exception: WorkerProc initialization failed. See stack trace for root cause.",
        "KeyError: 'printed again'",
        ENDED,
        "AssertionError",
    )
    (event,) = read(log)
    assert isinstance(event, StartFailure)
    assert (event.failure, event.message, event.process) == (UNKNOWN, "ZeroDivisionError: the cause", "EngineCore")
    assert event.timestamp == "11-23 00:10:40"


def test_an_error_after_which_the_process_works_on_is_no_failure() -> None:
    works_on = "(APIServer pid=7) INFO 11-23 00:10:40 [model.py:1] Using max model len 1024"
    assert codes(lines(ARGUMENTS, "ImportError: no triton", works_on)) == []
    assert codes(lines(ARGUMENTS, "ImportError: no triton", READY)) == []


def test_a_start_without_an_end_is_given_up() -> None:
    assert codes(lines(ARGUMENTS, *["loading"] * 20_001, CAUSE)) == []


# --- users ---

said_by_users = st.sampled_from([*(case for cases in CASES.values() for case in cases.holds), ENDED]) | st.text(
    max_size=30
)


@settings(max_examples=60)
@given(st.lists(said_by_users, min_size=1, max_size=4), st.sampled_from(["\n", "\r\n", "\nusage: x\n"]), st.data())
def test_what_users_write_is_no_failed_start(parts: list[str], end: str, data: st.DataObject) -> None:
    text = f"{end}{end.join(parts)}{end}"
    place = PLACES[data.draw(st.sampled_from(sorted(PLACES)))]
    bare = data.draw(st.booleans())
    said = (text if bare else place(text)).encode(errors="replace") + b"\n"
    for log in ((lines(ARGUMENTS, READY), said), (lines(STATS), said), (said, lines(STATS))):
        assert codes(*log) == [], log
        assert codes(*log, step=20) == []


# --- the facts ---


def test_the_facts_are_well_formed() -> None:
    failures = load_failures()
    assert failures.keys() == {*CASES, UNKNOWN}
    for failure in failures.values():
        assert failure.cause.endswith(".")
        assert failure.action.endswith(".")
        assert failure.sources
        assert bool(failure.checked) != bool(failure.unchecked)
        assert all(parse_release(each) for each in failure.checked)
    assert set(CAUSES.values()) <= failures.keys()


@pytest.mark.parametrize("code", CASES)
def test_a_cause_is_found_in_its_lines_only(code: str) -> None:
    for line in CASES[code].holds:
        assert known_cause(line) == code
        assert codes(lines(ARGUMENTS, line)) == [code]
        assert codes(lines(line)) == [code]
    assert all(known_cause(line) != code for line in CASES[code].fails)


def test_no_value_of_an_argument_is_kept() -> None:
    (event,) = read(lines("vllm serve: error: unrecognized arguments: --api-kee s3cret --token=s3cret"))
    assert isinstance(event, StartFailure)
    assert event.message.endswith("--api-kee --token")


# --- the product ---


def failed(state: PredictorState) -> str | None:
    status = status_of(state)
    return status.failed_start.code if status.failed_start else None


def test_a_running_exporter_shows_the_last_failed_start() -> None:
    state = PredictorState("svc", reader=ReaderCounters())
    for event in read(lines(ARGUMENTS, CAUSE, ARGUMENTS, CAUSE)):
        observe_event(state, event)
    assert failed(state) == "vocabulary_mismatch"
    observe_event(state, ServerReady())
    assert failed(state) is None


def test_a_check_fails_by_the_log_unless_the_predictor_answers() -> None:
    story = LogStory()
    story.add(read(lines(ARGUMENTS, CAUSE, ARGUMENTS, CAUSE)))
    (found,) = failed_starts(story.analysis())
    assert found.level == "FAIL"
    assert "2 starts failed" in found.found
    assert found.action == explained("vocabulary_mismatch", "", None).action
    (answered,) = failed_starts(story.analysis(), up=True)
    assert answered.level == "WARN"
    story.add([ServerReady()])
    (earlier,) = failed_starts(story.analysis())
    assert earlier.level == "PASS"
