"""Reading whole logs: real ones, several as one, gzipped, broken, streamed, interrupted."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest

from specdec_exporter.commands.analyze import analyze
from specdec_exporter.inspection.logstory import Analysis, LogStory
from specdec_exporter.predictor.log.events import REPORT_KINDS
from specdec_exporter.predictor.sources.inputs import LogInputs
from support.builders import CAPTURES
from support.loglines import HEADER, SPEC
from support.processes import EXPORTER
from support.running import printed

SPEC_LINE = f"{HEADER}{SPEC}\n"


def capture(name: str) -> str:
    return str(CAPTURES / name / "server.log")


class Run:
    """What a run of ``analyze`` in this process came to."""

    def __init__(self, *paths: str, output: Any = "text", stdin: bytes = b"") -> None:
        with printed() as found:
            self.code = analyze(paths, output=output, stdin=io.BytesIO(stdin))
        self.text, self.stderr = found.out, found.err

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def analysis_of(*paths: str) -> Analysis:
    inputs = LogInputs(paths)
    story = LogStory()
    story.add(inputs.events(REPORT_KINDS))
    assert not inputs.failed
    assert inputs.counters.parse_errors == 0
    return story.analysis()


def truth(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((CAPTURES / name / "truth.json").read_bytes())
    return content


# --- the figures, against what the servers are known to have done ---


@pytest.mark.parametrize("name", ["0.25.1-draft_model-k3", "0.25.1-ngram-k5"])
def test_a_real_log_gives_the_predicted_tokens_to_the_token(name: str) -> None:
    predicted = [phase["predicted"] for phase in truth(name)["phases"]]
    predicted = [phase for phase in predicted if phase]
    analysis = analysis_of(capture(name))
    assert analysis.judged is not None
    figures = analysis.judged.figures
    assert figures is not None
    drafts = sum(phase["num_drafts"] for phase in predicted)
    per_position = [sum(column) for column in zip(*(phase["per_pos"] for phase in predicted), strict=True)]
    assert figures.drafts == drafts
    assert figures.draft_tokens == sum(phase["num_draft_tokens"] for phase in predicted)
    assert figures.accepted_tokens == sum(phase["num_accepted"] for phase in predicted)
    assert figures.per_position == tuple(accepted / drafts for accepted in per_position)


@pytest.mark.parametrize(
    "name", ["0.8.5-driven", "0.9.2-driven", "0.10.2-driven", "0.11.0-driven", "0.20.2-driven", "0.33.0-driven"]
)
def test_every_wording_of_the_line_gives_the_tokens_that_were_fed(name: str) -> None:
    cases = [
        case["expect"] for case in truth(name)["cases"] if case.get("log") and "accepted_per_pos" in case["expect"]
    ]
    objects = [o for o in Run(capture(name), output="jsonl").objects if o["kind"] == "spec_decoding"]
    printed = [(o["accepted_tokens"], o["draft_tokens"]) for o in objects if not o["cumulative"]]
    assert cases
    # these logs go on after the cases
    assert printed[: len(cases)] == [(case["accepted"], case["drafted"]) for case in cases]


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("0.32.0-baseline-nospec", "off", "Speculative decoding is off"),
        ("0.32.0-draft_model-apiservers2", "unknown", "Several API servers"),
        ("0.32.0-draft_model-disable-log-stats", "unknown", "vLLM runs with --disable-log-stats"),
    ],
)
def test_a_real_log_without_lines_says_why(name: str, verdict: str, words: str) -> None:
    run = Run(capture(name))
    assert run.code == 2
    assert f"Verdict: {verdict}" in run.text
    assert words in run.text
    assert run.stderr == ""


def test_a_foreign_log_is_no_failure_but_a_warning(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("hello\n" * 10)
    run = Run(str(tmp_path / "log"))
    assert run.code == 2
    assert "This log holds no line" in run.text
    lines = Run(str(tmp_path / "log"), output="jsonl")
    assert (lines.code, lines.text) == (2, "")


# --- JSON lines ---


def test_json_lines_are_the_recognised_lines_in_order_with_the_documented_keys() -> None:
    run = Run(capture("0.32.0-draft_model-log-requests-color-prefix"), output="jsonl")
    assert "request_params" in {o["kind"] for o in run.objects}
    run = Run(capture("0.25.1-draft_model-k3"), output="jsonl")
    kinds = [o["kind"] for o in run.objects]
    assert kinds.count("spec_decoding") == 4
    assert kinds.index("engine_config") < kinds.index("spec_decoding")
    first = next(o for o in run.objects if o["kind"] == "spec_decoding")
    assert first["engine"] == "000"
    documented = (
        "timestamp accepted_tokens draft_tokens acceptance_ratio mean_acceptance_length bonus_included "
        "accepted_throughput drafted_throughput per_position cumulative num_speculative_tokens"
    )
    assert set(documented.split()) <= first.keys()
    config = next(o for o in run.objects if o["kind"] == "engine_config")
    assert (config["method"], config["speculative"], config["num_speculative_tokens"]) == ("draft_model", True, 3)


def test_lines_that_could_not_be_read_are_told_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(SPEC_LINE.replace("Accepted: 9", "Accepted: 99") + "x\n" + SPEC_LINE)
    run = Run(str(tmp_path / "log"), output="jsonl")
    assert len(run.objects) == 1
    assert "99 tokens were accepted, but only 15 drafted" in run.stderr
    assert "1 lines of vLLM's statistics could not be read" in " ".join(Run(str(tmp_path / "log")).text.split())


# --- inputs ---


def test_lines_that_do_not_count_are_never_called_absent(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(f"INFO 11-20 21:44:52 [loggers.py:1] of vLLM\n{SPEC}\n{SPEC}\n")
    with printed() as shown:
        assert analyze([str(log)]) == 2
    text = " ".join(shown.out.replace("│", " ").split())
    assert "Nothing is known of drafts: 2 lines that look like statistics do not count" in text
    assert "no spec-decode line was logged" not in text


@pytest.mark.parametrize("given", [("log.1", "log"), ("log", "log.1")])
def test_several_files_are_one_story_and_the_rotated_one_is_its_beginning(
    tmp_path: Path, given: tuple[str, str]
) -> None:
    lines = Path(capture("0.9.2-v0-ngram-k5")).read_bytes().splitlines(keepends=True)
    halves = [tmp_path / "log.1", tmp_path / "log"]
    paths = [str(tmp_path / name) for name in given]
    cut = next(i for i, line in enumerate(lines) if b"accepted tokens: 454" in line) + 1
    halves[0].write_bytes(b"".join(lines[:cut]))
    halves[1].write_bytes(b"".join(lines[cut:]))
    account = analysis_of(*paths).judged
    assert account is not None
    assert account.figures is not None
    assert (account.figures.accepted_tokens, account.figures.draft_tokens) == (972, 1380)
    assert account.lifetime == (972, 1380)


def test_rotated_files_come_before_the_one_they_were_cut_from() -> None:
    numbered = ("a.log", "a.log.1", "a.log.10.gz", "a.log.2.gz")
    dated = ("0.log", "0.log.20261120-120000.gz", "0.log.20261121-120000")
    assert LogInputs(["-", *numbered, *dated, "pod-1", "pod-0"]).paths == (
        *("-", "a.log.10.gz", "a.log.2.gz", "a.log.1", "a.log"),
        *("0.log.20261120-120000.gz", "0.log.20261121-120000", "0.log"),
        *("pod-1", "pod-0"),
    )


@pytest.mark.parametrize("prefix", ["{}-1  | ", "[pod/{}-0/vllm] "])
@pytest.mark.parametrize(
    "names", [("0.25.1-draft_model-k3", "0.25.1-ngram-k5"), ("0.9.2-v0-ngram-k5", "0.25.1-draft_model-k3")]
)
def test_servers_that_write_into_one_log_are_told_apart(names: tuple[str, str], prefix: str, tmp_path: Path) -> None:
    """As ``docker compose logs`` and ``kubectl logs --prefix`` print them."""
    logs = [Path(capture(name)).read_text(encoding="utf-8").splitlines(keepends=True) for name in names]
    named = [[prefix.format(name) + line for line in log] for name, log in zip("ab", logs, strict=True)]
    (tmp_path / "log").write_text("".join(chain.from_iterable(zip_longest(*named, fillvalue=""))), encoding="utf-8")

    together = analysis_of(str(tmp_path / "log"))

    alone = [account.figures for name in names for account in analysis_of(capture(name)).accounts if account.windows]
    found = [account.figures for account in together.accounts if account.windows]
    assert sorted(map(str, found)) == sorted(map(str, alone))


def test_gzipped_files_are_read_whatever_their_name(tmp_path: Path) -> None:
    packed = tmp_path / "server.log.1"
    packed.write_bytes(gzip.compress(Path(capture("0.25.1-ngram-k5")).read_bytes()))
    assert analysis_of(str(packed)) == analysis_of(capture("0.25.1-ngram-k5"))


@pytest.mark.parametrize(
    ("encode", "name"),
    [(bz2.compress, "bzip2"), (lzma.compress, "xz"), (lambda log: log.decode().encode("utf-16"), "UTF-16")],
)
def test_another_encoding_is_named(encode: Callable[[bytes], bytes], name: str, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(encode(SPEC_LINE.encode() * 9))
    runs = {"server.log": Run(str(path)), "stdin": Run("-", stdin=path.read_bytes())}
    for where, run in runs.items():
        assert run.code == 1
        assert f"{where}: it is {name}; unpack or convert it" in run.stderr


def test_the_logs_of_check_are_those_that_serve_finds(tmp_path: Path) -> None:
    """Whoever opens a FIFO without a writer waits for ever, deaf to SIGTERM."""
    log, link, fifo = tmp_path / "server.log", tmp_path / "lost.log", tmp_path / "fifo"
    log.write_bytes(SPEC_LINE.encode())
    link.symlink_to(tmp_path / "nothing")
    (tmp_path / "old.log.gz").write_bytes(gzip.compress(SPEC_LINE.encode()))
    os.mkfifo(fifo)

    found = LogInputs.found([f"{tmp_path}/*.log*", str(fifo), f"{tmp_path}/later.log"])
    assert found.paths == (str(log),)
    assert [words.removeprefix(f"{tmp_path}/")[:22] for words in found.failed.values()] == [
        "fifo: cannot be read: ",
        f"no log at {tmp_path}/"[:22],
    ]
    assert LogInputs.found([f"{tmp_path}/later.log"]).paths == ()
    assert LogInputs.found(["-"]).paths == ("-",)


def test_gzip_on_stdin_is_named() -> None:
    run = Run("-", stdin=gzip.compress(SPEC_LINE.encode() * 9))
    assert run.code == 1
    assert "cannot read stdin: it is gzip; unpack or convert it" in run.stderr


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_a_missing_file_is_one_line_on_stderr_and_the_others_are_read(output: str) -> None:
    run = Run("no/such/file", capture("0.25.1-ngram-k5"), output=output)
    assert run.code == 1
    assert run.stderr == "specdec-exporter: cannot read no/such/file: No such file or directory\n"
    assert "380" in run.text


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:200] + b"\0" * 200 + data[400:]])
def test_damaged_gzip_data_is_said_and_what_came_before_counts(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    packed = tmp_path / "server.log.gz"
    content = (SPEC_LINE + os.urandom(50_000).hex() + "\n") * 20
    packed.write_bytes(damage(gzip.compress(content.encode())))
    run = Run(str(packed), capture("0.25.1-ngram-k5"), output="jsonl")
    assert run.code == 1
    assert run.stderr.startswith(f"specdec-exporter: cannot read {packed}: damaged gzip data (")
    assert len(run.stderr.splitlines()) == 1
    assert [o for o in run.objects if o["kind"] == "engine_config"]


def test_progress_is_told_in_bytes_on_disk(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(SPEC_LINE.encode() * 5000)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes() + b"\n"))
    inputs = LogInputs([str(plain), str(packed)])
    told: list[int] = []
    assert sum(1 for _ in inputs.events(REPORT_KINDS, told.append)) == 10_000
    assert told == sorted(told)
    assert told[-1] == inputs.size() == plain.stat().st_size + packed.stat().st_size


@pytest.mark.parametrize("rotated", ["server.log", "server.log.1", "server.log.1.gz"])
def test_the_same_content_counts_once_and_is_named(tmp_path: Path, rotated: str) -> None:
    content = Path(capture("0.25.1-ngram-k5")).read_bytes()
    log, other = tmp_path / "server.log", tmp_path / rotated
    other.write_bytes(gzip.compress(content) if rotated.endswith("gz") else content)
    log.write_bytes(content)
    alone, both = Run(str(log), output="jsonl"), Run(str(log), str(other), output="jsonl")
    assert (both.objects, both.code) == (alone.objects, alone.code)
    assert both.stderr == f"specdec-exporter: {log}: the same as {other}, counted once\n"
    if other != log:
        log.write_bytes(content[:-1] + b" ")  # as long, and another
        assert len(Run(str(log), str(other), output="jsonl").objects) == 2 * len(alone.objects)


def test_an_empty_log_is_called_empty(tmp_path: Path) -> None:
    empty = tmp_path / "server.log"
    empty.write_bytes(b"")
    for run in (Run(str(empty)), Run("-")):
        assert run.code == 2
        assert "The log is empty" in run.text
    # As a log that was rotated a moment ago.
    assert "is empty" not in Run(str(empty), capture("0.25.1-ngram-k5")).text


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_what_is_no_text_is_said_to_be_none(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    program = tmp_path / "program"
    program.write_bytes(pack(Path(sys.executable).read_bytes()[:100_000]))
    run = Run(str(program))
    assert (run.code, run.stderr) == (1, f"specdec-exporter: cannot read {program}: it is not text\n")


def test_a_log_with_holes_and_colours_is_text(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    content = Path(capture("0.25.1-ngram-k5")).read_bytes()
    first, _, rest = content.partition(b"\n")
    log.write_bytes(bytes(3000) + b"\x1b[1;36m" + first + b"\x1b[0m\n" + bytes(3000) + rest)
    assert Run(str(log), output="jsonl").code == 2


@pytest.mark.parametrize("command", ["analyze -", "doctor --manifest -", "serve --predictor.log-path -"])
def test_a_closed_stdin_is_one_line(command: str) -> None:
    words = ["sh", "-c", '"$@" <&-', "sh", *EXPORTER, *command.split()]
    run = subprocess.run(words, check=False, capture_output=True, timeout=60)
    assert (run.returncode, run.stdout) == (1, b"")
    assert run.stderr.splitlines()[-1].endswith(b"stdin is closed")
    assert b"internal error" not in run.stderr


def peak_bytes(log: Path, lines: int) -> int:
    log.write_bytes(SPEC_LINE.encode() * lines)
    story, inputs = LogStory(), LogInputs([str(log)])
    tracemalloc.start()
    try:
        story.add(inputs.events(REPORT_KINDS))
        assert story.windows == lines
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    peak_bytes(tmp_path / "warm-up", 8_000)  # caches fill
    few, many = peak_bytes(tmp_path / "few", 2_000), peak_bytes(tmp_path / "many", 8_000)
    assert many < few + 50_000


STARTS = CAPTURES.parent / "starts"


def test_a_real_server_with_synthetic_acceptance_is_named_so(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text((STARTS / "0.32.0-synthetic.log").read_text() + 20 * SPEC_LINE)
    run = Run(str(log))
    assert "k = 3, synthetic rejection sampling" in " ".join(run.text.split())
    assert "Acceptance is synthetic: it says nothing about the draft" in run.text
    assert "Recommended k" not in run.text
    (first, *_) = Run(str(log), output="jsonl").objects
    assert first["kind"] == "server_arguments"
    assert first["arguments"]["speculative_config"]["rejection_sample_method"] == "synthetic"


# --- whose lines count ---


def test_the_report_says_which_lines_count_without_a_header_and_which_do_not() -> None:
    bare = Run("-", stdin=f"{SPEC}\n{SPEC}\n".encode())
    assert "2 lines count although they name no logger" in " ".join(bare.text.split())
    mixed = f"{HEADER}{SPEC}\n{SPEC}\n".encode()
    assert "1 lines that look like statistics do not count" in " ".join(Run("-", stdin=mixed).text.split())
    as_json = Run("-", stdin=mixed, output="jsonl")
    assert [found["kind"] for found in as_json.objects] == ["spec_decoding"]
    assert "--predictor.log-trust=any" in as_json.stderr
