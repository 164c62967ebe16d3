"""Saved responses of a predictor, and results of the benchmark that sent requests to it."""

from __future__ import annotations

from fuzz.target import Target, require_numbers, require_one_line
from specdec_exporter.comparison.bench import compare_bench
from specdec_exporter.errors import BenchResultError, ComparisonError
from specdec_exporter.predictor.benchresult import parse_results
from specdec_exporter.predictor.responses import Junk, ResponseSpeculation, parse_response
from specdec_exporter.speculation.policy import load_policy
from support.builders import FIXTURES, numbers


def check_response(line: bytes) -> None:
    found = parse_response(line, "X-Tenant")
    if isinstance(found, Junk):
        require_one_line(found.reason)
    if isinstance(found, ResponseSpeculation):
        assert 0 <= found.accepted_tokens <= found.draft_tokens <= found.drafts * found.num_speculative_tokens
        assert sum(found.steps_by_accepted) == found.drafts
        assert sum(j * steps for j, steps in enumerate(found.steps_by_accepted)) == found.accepted_tokens
        assert found.steps is None or sum(drafted for _, drafted in found.steps) == found.draft_tokens
        require_numbers([found.acceptance_ratio, found.temperature])


def responses() -> list[bytes]:
    return [
        line
        for path in sorted((FIXTURES / "responses").glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if b"speculative_decoding" in line
    ]


def check_results(content: bytes) -> None:
    plain, *_ = results()
    try:
        found = compare_bench(parse_results(plain, "plain"), parse_results(content, "changed"), load_policy())
    except (BenchResultError, ComparisonError) as error:
        require_one_line(str(error))
        return
    require_numbers(numbers((found.loads, found.decision)))


def results() -> list[bytes]:
    return [path.read_bytes() for path in sorted((FIXTURES / "bench").glob("*/*.json"))]


TARGETS = (
    Target(
        "saved response",
        check_response,
        responses,
        (b'"per_step_accepted": [', b"data: ", b"[DONE]", b"event: ", b'"response": ', b'"request": {', b'"prompt": '),
    ),
    Target("bench result", check_results, results, (b'"completed": ', b"NaN", b"Infinity", b'"inf"', b"}\n{", b"[[]]")),
)
