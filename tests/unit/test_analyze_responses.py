"""``analyze --responses``, by what a real server answered and logged."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builders import FIXTURES
from specdec_exporter.commands.cli import cli
from specdec_exporter.commands.responses import analyze_responses

RESPONSES = str(FIXTURES / "responses" / "0.32.0-ngram-k5.jsonl")
LOG = str(FIXTURES / "responses" / "0.32.0-ngram-k5.log")


class Result:
    """Exit code, and what was written."""

    def __init__(self, logs: list[str], responses: list[str], **options: Any) -> None:
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        err = io.StringIO()
        self.code = analyze_responses(logs, responses, stdout=out, stderr=err, **options)
        out.seek(0)
        self.out, self.err = out.read(), err.getvalue()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def test_the_records_sum_up_to_the_servers_counters() -> None:
    result = Result([], [RESPONSES], output="jsonl")
    assert result.code == 0
    *records, summary = result.objects
    assert [record["kind"] for record in records] == ["response"] * 6
    every = summary["all"]
    assert (every["requests"], every["drafts"], every["draft_tokens"], every["accepted_tokens"]) == (6, 50, 245, 55)
    assert every["per_position"] == pytest.approx([count / 50 for count in (49, 2, 2, 2, 0)])
    assert summary["junk"] == 0
    assert summary["without_record"] > 0  # the stream's earlier chunks, and the request with two choices


def test_the_log_beside_them_tells_the_temperatures() -> None:
    result = Result([LOG], [RESPONSES], output="jsonl")
    assert {each["kind"] for each in result.objects} >= {"engine_config", "request_params", "response", "responses"}
    summary = result.objects[-1]
    assert {group["temperature"]: group["group"]["requests"] for group in summary["by_temperature"]} == {0.0: 5, 0.7: 1}
    assert summary["requests_without_temperature"] == 0


def test_nothing_of_a_text_is_passed_on() -> None:
    for result in (Result([LOG], [RESPONSES], output="jsonl"), Result([LOG], [RESPONSES])):
        assert " w8" not in result.out
        assert '"text"' not in result.out


def test_the_report_has_the_logs_part_and_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    result = Result([LOG], [RESPONSES])
    assert result.code == 0
    for words in (
        "Verdict: not paying, assumed",
        "6 responses with a record of speculation",
        "Acceptance over requests",
        "Exact conditional acceptance by position",
        "By temperature",
    ):
        assert words in result.out
    assert all(len(line) <= 100 for line in result.out.splitlines())


def test_junk_is_counted_with_the_first_reason(tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(b"\xff\x00\n" + Path(RESPONSES).read_bytes() + b'{"cut": ')
    assert "2 lines that are no response (the first: not UTF-8)" in " ".join(Result([], [str(mixed)]).out.split())


def test_responses_without_any_record_say_how_to_get_them(tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"id": "cmpl-1", "choices": [{"text": "hi"}]}\n')
    result = Result([], [str(plain)])
    assert result.code == 0
    assert "--per-request-spec-decode-metrics" in result.out


def test_a_file_that_cannot_be_read_is_named_and_the_others_count(tmp_path: Path) -> None:
    result = Result([], [str(tmp_path / "gone.jsonl"), RESPONSES], output="jsonl")
    assert result.code == 1
    assert "gone.jsonl: No such file or directory" in result.err
    assert result.objects[-1]["all"]["requests"] == 6


def test_the_command_reads_no_stdin_for_responses_alone() -> None:
    result = CliRunner().invoke(cli, ["analyze", "--responses", RESPONSES], input="not read", standalone_mode=False)
    assert result.return_value == 0
    assert "6 responses" in result.output
