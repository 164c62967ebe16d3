"""What a collector or another formatter makes of vLLM's lines says the same as the lines themselves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import (
    ALL_KINDS,
    REPORT_KINDS,
    EngineConfig,
    Event,
    SpecDecoding,
    StartFailure,
)
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.sources.inputs import LogInputs
from support.builders import FIXTURES
from support.loglines import CONFIG, SPEC, STATS, parse, without_place
from support.userstext import PARTS

TAGS = {CONFIG: "core.py:114", STATS: "loggers.py:310", SPEC: "metrics.py:120"}
LOGGERS = {CONFIG: "vllm.v1.engine.core", STATS: "vllm.v1.metrics.loggers", SPEC: "vllm.v1.metrics.loggers"}
TIME = "2026-11-20T21:44:52.123456Z"
BINARY: Final = "\x1b[36m"


def printed(message: str) -> str:
    return f"(APIServer pid=7) INFO 11-20 21:44:52 [{TAGS[message]}] {message}"


def coloured(message: str) -> bytes:
    return f"{BINARY}(APIServer pid=7){BINARY} INFO 11-20 21:44:52 [{TAGS[message]}] {message}".encode()


def row(*fields: str) -> str:
    written = io.StringIO()
    csv.writer(written).writerow(fields)
    return written.getvalue().rstrip()


def exported(message: str) -> bytes:
    """As journalctl -o export writes a field with control characters: name, length, bytes."""
    said = coloured(message)
    return b"__CURSOR=s=1\nMESSAGE\n" + len(said).to_bytes(8, "little") + said + b"\n"


def record(message: str) -> dict[str, Any]:
    attributes = [{"key": "log.file.name", "value": {"stringValue": "0.log"}}]
    return {"timeUnixNano": "1795211092000000000", "body": {"stringValue": printed(message)}, "attributes": attributes}


def otlp(records: list[dict[str, Any]], **scope: object) -> str:
    resource = {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": "vllm-0"}}]}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{**scope, "logRecords": records}]}]})


def by_line(form: Callable[[str], str | bytes]) -> Callable[[], bytes]:
    """A log of three messages, each in this form."""

    def log() -> bytes:
        lines = [form(message) for message in TAGS]
        return b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)

    return log


FORMS: dict[str, Callable[[], bytes]] = {
    "journalctl": by_line(lambda m: f"Nov 20 21:44:52 node-1 vllm[7]: {printed(m)}"),
    "journalctl -o short-iso": by_line(lambda m: f"2026-11-20T21:44:52+0000 node-1 vllm[7]: {printed(m)}"),
    "journalctl -o json": by_line(lambda m: json.dumps({"_PID": "7", "PRIORITY": "6", "MESSAGE": printed(m)})),
    "journalctl -o json, bytes": by_line(
        lambda m: json.dumps({"_PID": "7", "MESSAGE": list(coloured(m))}, separators=(",", ":"))
    ),
    "journalctl -o export": by_line(lambda m: f"__CURSOR=s=1\nMESSAGE={printed(m)}\n_PID=7\n"),
    "journalctl -o export, bytes": by_line(exported),
    "kubectl --prefix --timestamps": by_line(lambda m: f"[pod/vllm-0/server] {TIME} {printed(m)}"),
    "docker": by_line(lambda m: json.dumps({"log": f"{printed(m)}\n", "stream": "stderr", "time": TIME})),
    "CRI": by_line(lambda m: f"{TIME} stderr F {printed(m)}"),
    "compose": by_line(lambda m: f"vllm-1  | {printed(m)}"),
    "stern": by_line(lambda m: f"vllm-0 server {printed(m)}"),
    "logcli": by_line(lambda m: f'{TIME} {{app="vllm", pod="vllm-0", path="/v1/\\"x\\""}} {printed(m)}'),
    "logcli -o jsonl": by_line(
        lambda m: json.dumps({"labels": {"app": "vllm"}, "line": printed(m), "timestamp": TIME})
    ),
    "logcli, JSON": by_line(
        lambda m: f'{TIME} {{app="vllm"}} {json.dumps({"levelname": "INFO", "name": LOGGERS[m], "message": m})}'
    ),
    "gcloud": lambda: json.dumps(
        [{"insertId": "1", "textPayload": printed(m), "timestamp": TIME} for m in TAGS], indent=2
    ).encode() + b"\n",
    "gcloud, jsonPayload": lambda: json.dumps(
        [{"jsonPayload": {"message": printed(m), "pid": 7}, "timestamp": TIME} for m in TAGS], indent=2
    ).encode() + b"\n",
    "jsonPayload.message": by_line(lambda m: json.dumps({"jsonPayload": {"message": printed(m)}, "severity": "INFO"})),
    "Datadog, CSV": by_line(lambda m: row(TIME, "node-1", "vllm", printed(m))),
    "CloudWatch, CSV": by_line(lambda m: row("2026-11-20 21:44:52.123", "stream/1", printed(m))),
    "Datadog, JSON": by_line(
        lambda m: json.dumps({"id": "x", "content": {"service": "vllm", "message": printed(m), "timestamp": TIME}})
    ),
    "Datadog, API": by_line(
        lambda m: json.dumps({"type": "log", "attributes": {"attributes": {"a": 1}, "message": printed(m)}})
    ),
    "OTLP": by_line(lambda m: otlp([record(m)])),
    "OTLP, a batch": lambda: otlp([record(m) for m in TAGS]).encode() + b"\n",
    "OTLP, vLLM's own logger": by_line(
        lambda m: otlp([{"body": {"stringValue": m}}], scope={"name": LOGGERS[m]})
    ),
    "loguru": by_line(lambda m: f"2026-11-20 21:44:52.123 | INFO     | {LOGGERS[m]}:log:271 - {m}"),
    "Dynamo": by_line(lambda m: f"{TIME}  INFO {TAGS[m].partition('.')[0]}.log: {m}"),
    "Dynamo, JSON": by_line(
        lambda m: json.dumps(
            {"time": TIME, "level": "INFO", "target": f"{TAGS[m].partition('.')[0]}.log", "line": 271, "message": m}
        )
    ),
    "loguru, JSON": by_line(
        lambda m: json.dumps(
            {
                "text": f"2026-11-20 21:44:52.123 | INFO     | {LOGGERS[m]}:log:271 - {m}\n",
                "record": {"level": {"name": "INFO"}, "message": m, "name": LOGGERS[m]},
            }
        )
    ),
    "structlog": by_line(lambda m: f"{TIME} [info     ] {m} [{LOGGERS[m]}]"),
    "UC": by_line(lambda m: f"[2026-11-20 21:44:52.123456][UC][I] {m} [5001,5001][{TAGS[m]},log]"),
    "DJL": by_line(lambda m: f"[INFO ] PyProcess - W-210-model-stdout: {printed(m)}"),
    "TorchServe": by_line(lambda m: f"2026-11-20T21:44:52,123 [INFO ] W-9000-m_1.0-stdout MODEL_LOG - {printed(m)}"),
    "SkyPilot": by_line(lambda m: f"(task, rank=0, pid=3021, ip=10.0.0.7) {printed(m)}"),
    "Ray": by_line(lambda m: f"(ServeReplica:a pid=8, ip=10.0.0.7) {printed(m)} [repeated 2x across cluster]"),
    "Ray, the first time": by_line(
        lambda m: f"(S pid=8) {printed(m)}{BINARY} [repeated 2x across cluster] (Ray deduplicates logs by default. Set "
        f"RAY_DEDUP_LOGS=0 to disable log deduplication, or see https://docs.ray.io/x.html for more options.){BINARY}"
    ),
    "fields with tabs": by_line(lambda m: f"{TIME}\tvllm\tserver\t{printed(m)}"),
    "srun -l": by_line(lambda m: f"0: {printed(m)}"),
    "envelopes in envelopes": by_line(
        lambda m: json.dumps({"log": json.dumps({"message": f"{TIME} stderr F {printed(m)}"}) + "\n"})
    ),
}  # fmt: skip


def read_as_served(log: bytes) -> tuple[list[Event], ReaderCounters]:
    counters = ReaderCounters()
    scanner = LogScanner(counters, trust="server", kinds=ALL_KINDS - {StartFailure})
    return scanner.scan(bytearray(log), len(log)) + scanner.finish(), counters


@pytest.mark.parametrize("form", FORMS)
def test_a_log_says_the_same_in_every_form(form: str, tmp_path: Path) -> None:
    expected = [without_place(parse(message)) for message in TAGS]
    served, counters = read_as_served(FORMS[form]())
    (tmp_path / "log").write_bytes(FORMS[form]())
    inputs = LogInputs([str(tmp_path / "log")])
    for events in (served, list(inputs.events(REPORT_KINDS))):
        plain = [without_place(event) for event in events]
        for said, message in zip(plain, expected, strict=True):
            if isinstance(said, SpecDecoding):
                assert (said.engine, said.requests_running) == ("000", 2)
                assert without_place(parse(SPEC)) == message
                assert said.accepted_tokens == 9
            else:
                assert said == message
    for found in (counters, inputs.counters):
        assert (found.parse_errors, found.unsigned_lines, dict(found.dropped)) == (0, 0, {})


@pytest.mark.parametrize("path", sorted((FIXTURES / "logformats").glob("*.log")), ids=lambda path: path.stem)
def test_a_log_of_an_operator_counts_for_serve_and_for_analyze(path: Path) -> None:
    events, counters = read_as_served(path.read_bytes())
    (window,) = (event for event in events if isinstance(event, SpecDecoding))
    assert (window.accepted_tokens, window.draft_tokens, window.num_speculative_tokens) == (1909, 3579, 3)
    assert window.engine == "000"
    assert window.timestamp is not None
    assert (counters.parse_errors, dict(counters.dropped)) == (0, {})
    configs = [event for event in events if isinstance(event, EngineConfig)]
    assert [(config.method, config.num_speculative_tokens) for config in configs] == [("eagle3", 3)] * (
        path.stem == "uc"
    )


@pytest.mark.parametrize(
    "prefix",
    ["", "2026-11-20 21:44:52.123 | INFO     | logging:callHandlers:1706 - ", f"{TIME}  INFO ", "[pod/vllm-0/server] "],
)
def test_a_message_without_a_writer_counts_on_trust_alone(prefix: str) -> None:
    assert isinstance(parse(f"{prefix}{SPEC}"), SpecDecoding)
    events, counters = read_as_served(f"{prefix}{SPEC}\n".encode())
    assert (events, counters.dropped["untrusted_lines"]) == ([], 1)


# --- what users write in the same forms ---

FORGED: Final[dict[str, Callable[[str], str]]] = {
    "another logger in JSON": lambda text: json.dumps({"name": "vllm.renderers.hf", "message": text}),
    "an application's JSON": lambda text: json.dumps({"logger": "chat", "message": text, "extra": {"message": text}}),
    "a header of a request in JSON": lambda text: json.dumps({"status": 200, "x_request_id": text, "authority": text}),
    "a body of a request in JSON": lambda text: json.dumps(
        {"level": "info", "payload": {"message": text, "log": text}, "body": {"stringValue": text, "message": text}}
    ),
    "a request's JSON": lambda text: json.dumps({"messages": [{"role": "user", "content": text}], "prompt": text}),
    "an answer's JSON": lambda text: json.dumps({"output": {"text": text}, "user": {"message": text}}),
    "an object over many lines": lambda text: json.dumps({"prompt": text, "content": text}, indent=2),
    "a list of Python's": lambda text: f"ValueError: {['x', text]!r}",
    "behind another logger": lambda text: f"2026-11-20 21:44:52,123 INFO chat: {text}",
    "behind a level": lambda text: f"INFO:chat:{text}",
    "behind vLLM's other logger": lambda text: f"[2026-11-20 21:44:52,123] [INFO] [vllm.renderers.hf] {text}",
    "a row behind a sentence": lambda text: f"prompt: {row('x', text)}",
    "labels behind a sentence": lambda text: f'you said {{a="b"}} {text}',
    "an exception": lambda text: f"ValueError: {text}",
    "a sentence": lambda text: f"They asked me: {text}",
    "a suffix": lambda text: f"They asked me: {text} [5001,5001][loggers.py:271,log]",
    "Ray's suffix": lambda text: f"(S pid=8) They asked: {text} [repeated 2x across cluster]",
    "too many names": lambda text: f"a-1 b-2 c-3 d-4 {text}",
    "a long prefix": lambda text: f"{'x-' * 600} {text}",
}  # fmt: skip


@pytest.mark.parametrize("place", FORGED)
def test_no_text_of_a_user_counts_in_any_form(place: str) -> None:
    for text in PARTS:
        log = "".join(f"{FORGED[place](said)}\n" for said in (text, f"x, {text}", f'"{text}"', f"x: {text}"))
        events, counters = read_as_served(log.encode(errors="replace"))
        assert events == [], text
        assert counters.parse_errors == 0


def test_a_message_under_an_unknown_key_counts_on_trust_alone_and_never_hides_another() -> None:
    line = json.dumps({"odd": f"{printed(SPEC)}, Free slots: 7", "log": printed(STATS)})
    said, _ = read_as_served(f"{line}\n".encode())
    assert [without_place(event) for event in said] == [without_place(parse(STATS))]
    line = json.dumps({"odd": printed(SPEC)})
    _, counters = read_as_served(f"{line}\n".encode())
    assert counters.dropped["untrusted_lines"] == 1
    assert without_place(parse(line)) == without_place(parse(SPEC))


def test_the_first_line_that_does_not_count_is_told() -> None:
    counters = ReaderCounters()
    scanner = LogScanner(counters, trust="server")
    log = bytearray(f"{SPEC}\n{STATS}\n{printed(SPEC)[:-20]}\n".encode())
    assert scanner.scan(log, len(log)) == []
    assert (counters.dropped["untrusted_lines"], counters.parse_errors) == (2, 1)
    assert (counters.first_untrusted or "").startswith("SpecDecoding metrics: Mean")
    assert ": (APIServer pid=7) INFO" in (counters.first_unreadable or "")
