"""``analyze --responses``, by what a real server answered and logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click import UsageError

from specdec_exporter.bounds import LINE_BYTES
from specdec_exporter.commands.analyze import analyze
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from support.builders import CAPTURES, FIXTURES, saved_response
from support.running import commanded, printed

RESPONSES = str(FIXTURES / "responses" / "0.32.0-ngram-k5.jsonl")
GATEWAY = str(FIXTURES / "responses" / "0.32.0-gateway.jsonl")
GATEWAY_LOG = str(FIXTURES / "responses" / "0.32.0-gateway.log")
LOG = str(FIXTURES / "responses" / "0.32.0-ngram-k5.log")


class Result:
    """Exit code, and what was written."""

    def __init__(self, logs: list[str], responses: list[str], **options: Any) -> None:
        with printed() as found:
            self.code = analyze(logs, responses=responses, **options)
        self.out, self.err = found.out, found.err

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def by_kind(summary: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Requests by grouping and group."""
    found: dict[str, dict[str, int]] = {}
    for each in summary["groups"]:
        found.setdefault(each["by"], {})[each["value"]] = each["group"]["requests"]
    return found


def test_what_a_gateway_stored_of_a_real_server_is_told_apart_by_kind() -> None:
    summary = Result([GATEWAY_LOG], [GATEWAY], output="jsonl", header="X-Tenant").objects[-1]
    every = summary["all"]
    assert (every["requests"], every["drafts"], every["draft_tokens"], every["accepted_tokens"]) == (8, 35, 173, 38)
    assert by_kind(summary) == {
        "adapter": {"tiny": 7, "sql-lora": 1},
        "temperature": {"0": 5, "(0,0.5]": 1, "(0.5,0.8]": 1, "(0.8,1]": 1},
        "prompt_length": {"1 to 256": 8},
        "structured": {"no": 7, "yes": 1},
        "header": {"acme": 5, "globex": 3},
    }
    # The log alone tells the temperature of a request that names none.
    without_log = by_kind(Result([], [GATEWAY], output="jsonl").objects[-1])
    assert without_log["temperature"] == {"0": 5, "(0,0.5]": 1, "(0.5,0.8]": 1, "unknown": 1}
    assert "header" not in without_log


def test_the_report_shows_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    report = Result([GATEWAY_LOG], [GATEWAY], header="X-Tenant").out
    for words in (
        *(
            "By adapter or served name",
            "sql-lora",
            "By temperature",
            "(0.5,0.8]",
            "By prompt length, tokens",
            "By structured output",
            "By X-Tenant",
        ),
        *("acme", "Least accepted requests", "None: no request has 50 drafts"),
    ):
        assert words in report
    assert "w16" not in report


def test_the_least_accepted_requests_are_listed_without_those_that_chance_decides(tmp_path: Path) -> None:
    def saved(name: str, drafts: int, accepted: int) -> str:
        return json.dumps(saved_response([drafts - accepted, accepted], id=name, model="m")) + "\n"

    path = tmp_path / "saved.jsonl"
    path.write_text(
        "".join(saved(f"r{index}", 100, 100 - index) for index in range(30))
        + saved("short", 49, 0)
        + saved("none", 0, 0)
    )
    summary = Result([], [str(path)], output="jsonl").objects[-1]
    assert [each["request_id"] for each in summary["least_accepted"]] == [f"r{index}" for index in range(29, 19, -1)]
    assert summary["least_accepted"][0] == {
        "request_id": "r29",
        "model": "m",
        "acceptance_ratio": 0.71,
        "drafts": 100,
    }
    assert summary["least_accepted_min_drafts"] == 50
    report = Result([], [str(path)]).out
    assert "r29" in report
    assert "short" not in report.partition("Least accepted requests")[2].partition("Of the requests")[0]


def test_a_long_line_is_skipped_and_said(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"x" * LINE_BYTES + b"\n" + Path(RESPONSES).read_bytes())
    result = Result([], [str(path)])
    assert f"1 lines longer than {LINE_BYTES // 1024} KiB, which were skipped" in " ".join(result.out.split())
    assert "6 responses" in result.out


def test_where_the_log_says_that_drafts_are_verified_in_part_no_acceptance_is_told(tmp_path: Path) -> None:
    start = (CAPTURES / "0.32.0-draft_model-k3" / "server.log").read_text()
    log = tmp_path / "adaptive.log"
    adaptive = start.replace("'num_speculative_tokens': 3}", "'enable_adaptive_verification': True}")
    log.write_text(adaptive + Path(GATEWAY_LOG).read_text())
    report = Result([str(log)], [GATEWAY]).out.partition("Requests: 8")[2]
    assert PARTLY_VERIFIED in " ".join(report.split())
    assert "%" not in report
    for words in ("Acceptance", "Least accepted", " rate "):
        assert words not in report
    length = 1 + 38 / 35
    assert f"Mean length {length:.2f} tokens per draft" in " ".join(report.split())
    assert "By prompt length" in report
    *lines, summary = Result([str(log)], [GATEWAY], output="jsonl").objects
    assert not [each for each in lines if "settings" in each]  # the documented keys only
    assert summary["partly_verified"]
    assert ([each["found"] for each in summary["findings"]], summary["least_accepted"]) == ([PARTLY_VERIFIED], [])
    assert not Result([GATEWAY_LOG], [GATEWAY], output="jsonl").objects[-1]["partly_verified"]


def test_nothing_of_a_text_is_passed_on() -> None:
    for result in (Result([LOG], [RESPONSES], output="jsonl"), Result([LOG], [RESPONSES])):
        assert " w8" not in result.out
        assert '"text"' not in result.out


def test_junk_is_counted_with_the_first_reason(tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(b"\xff\x00\n" + Path(RESPONSES).read_bytes() + b'{"cut": ')
    assert "2 lines that are no response (the first: not UTF-8)" in " ".join(Result([], [str(mixed)]).out.split())


def test_responses_without_any_record_say_how_to_get_them(tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"id": "cmpl-1", "choices": [{"text": "hi"}]}\n')
    result = Result([], [str(plain)])
    assert result.code == 2
    assert "--per-request-spec-decode-metrics" in result.out


def test_a_file_that_cannot_be_read_is_named_and_the_others_count(tmp_path: Path) -> None:
    result = Result([], [str(tmp_path / "gone.jsonl"), RESPONSES], output="jsonl")
    assert result.code == 1
    assert "gone.jsonl: No such file or directory" in result.err
    assert result.objects[-1]["all"]["requests"] == 6


def test_no_empty_line_stands_for_a_log_that_cannot_be_read() -> None:
    with printed() as found:
        assert analyze(["/nowhere.log"], responses=[RESPONSES]) == 1
    assert found.out.startswith(RESPONSES)


def test_a_header_needs_responses_and_must_not_be_secret() -> None:
    for arguments, words in (
        (("--header", "X-Tenant", LOG), "--header needs --responses"),
        (("--header", "Cookie", "--responses", RESPONSES), "probably secret"),
    ):
        with pytest.raises(UsageError, match=words):
            commanded("analyze", *arguments)


def test_the_command_reads_no_stdin_for_responses_alone() -> None:
    code, text = commanded("analyze", "--responses", RESPONSES, told=b"not read")
    assert (code, "6 responses" in text) == (0, True)


def test_tokens_past_the_end_of_an_answer_are_told_apart(tmp_path: Path) -> None:
    """vllm#56101: a step may accept tokens behind the one that ends the answer."""
    path = tmp_path / "responses.jsonl"
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    whole = {"prompt_tokens": 12, "completion_tokens": 8}
    answers = [saved_response([0, 0, 0, 0, 0, 1], usage=usage), saved_response([0, 0, 1, 0, 0, 0], usage=whole)]
    path.write_text("\n".join(map(json.dumps, answers)))

    every = Result([], [str(path)], output="jsonl").objects[-1]["all"]
    assert (every["mean_acceptance_length"], every["mean_given_length"]) == (4.5, 3.0)
    text = " ".join(Result([], [str(path)]).out.split())
    assert "Given length 3.00 without tokens past the end of an answer" in text

    path.write_text(json.dumps(saved_response([0, 0, 1, 0, 0, 0])))
    assert Result([], [str(path)], output="jsonl").objects[-1]["all"]["mean_given_length"] is None
