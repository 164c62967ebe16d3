"""The second scrape: read by the structure of the first, and never differently."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specdec_exporter.errors import ExpositionError
from specdec_exporter.predictor.metrics import exposition
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
REAL_DUMP = (CAPTURES / "0.32.0-draft_model-k3" / "metrics-9-temp1.txt").read_bytes()


@pytest.fixture(autouse=True)
def _nothing_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "_layouts", exposition._Layouts())


def only_engine(body: str | bytes) -> EngineSnapshot:
    (engine,) = parse_exposition(body.encode() if isinstance(body, str) else body).engines
    return engine


def line_by_line(body: bytes) -> Snapshot:
    return exposition._parse_lines(body.split(b"\n"))


def refuse_to_parse(_: list[bytes]) -> Snapshot:
    raise AssertionError("read line by line")


def test_a_known_structure_with_new_values_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    later = REAL_DUMP.replace(b" 2675.0\n", b" 12675\n").replace(b" 28.0\n", b" 3.1e+01\n")
    expected = line_by_line(later)
    parse_exposition(REAL_DUMP)
    monkeypatch.setattr(exposition, "_parse_lines", refuse_to_parse)
    assert parse_exposition(later) == expected
    assert only_engine(later).drafts == 12675.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'engine="0",model_name="tiny"} 2675.0', b'engine="1",model_name="tiny"} 2675.0'),
        (b"drafts_total{", b"emitted_tokens_total{"),
        (b'le="0.5"', b'le="0.6"'),
        (b"} 2675.0\n", b"} NaN\n"),
        (b"} 2675.0\n", b"} 1_000\n"),
        (b"} 2675.0\n", b"} 2675.0 1700000000\n"),
        (b"} 2675.0\n", b"} 2675.0\r\n"),
        (b"} 2675.0\n", b"} 1,2\n"),
        (b"} 2675.0\n", b'} "1"\n'),
        (b"} 2675.0\n", b"} 2675.0\n\n"),
        (b"# TYPE vllm:prompt_tokens_total counter", b"# TYPE vllm:spec_decode_efficiency gauge"),
        (b"# EOF", b""),
    ],
)
def test_a_changed_structure_is_noticed(old: bytes, new: bytes) -> None:
    changed = REAL_DUMP.replace(old, new, 1)

    def outcome() -> Snapshot | str:
        try:
            return parse_exposition(changed)
        except ExpositionError as error:
            return str(error)

    fresh = outcome()
    parse_exposition(REAL_DUMP)
    assert outcome() == fresh


def test_a_damaged_structure_is_not_learnt() -> None:
    damaged = REAL_DUMP.replace(b'e2e_request_latency_seconds_bucket{engine="0",le="0.5"', b'e2e{engine="0",le="0.5"')
    assert damaged != REAL_DUMP
    bounds = [only_engine(body).request_latency.bounds for body in (damaged, REAL_DUMP)]  # type: ignore[union-attr]
    assert len(bounds[1]) == len(bounds[0]) + 1


@pytest.mark.parametrize(
    ("old", "damaged"),
    [
        # Of another model, and not whole: a part of no figure of that engine.
        (b'e2e_request_latency_seconds_bucket{engine="0",le="1.5",model_name="tiny"', b'model_name="t"'),
        (b'e2e_request_latency_seconds_bucket{engine="0",le="1.5"', b'le="1.a5"'),
        (b'per_pos_total{engine="0",model_name="tiny",position="1"', b'position="-"'),
    ],
)
def test_a_structure_with_a_series_that_has_no_part_in_it_is_not_learnt(old: bytes, damaged: bytes) -> None:
    label = damaged.partition(b"=")[0]
    body = REAL_DUMP.replace(old, re.sub(label + rb'="[^"]*"', damaged, old), 1)
    assert body != REAL_DUMP
    parse_exposition(body)
    assert parse_exposition(REAL_DUMP) == line_by_line(REAL_DUMP)


def test_a_structure_with_samples_outside_their_group_is_not_learnt() -> None:
    body = (
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{model_name="m"} 1\n'
        "# TYPE other counter\nother 7\n"
        'vllm:prompt_tokens_total{model_name="m"} 5\n'
    )
    assert only_engine(body).generation_tokens is None
    assert only_engine(body.replace("other 7", 'vllm:generation_tokens_total{model_name="m"} 7')).generation_tokens == 7


def test_structures_do_not_pile_up() -> None:
    for number in range(3 * exposition._LAYOUTS_KEPT):
        for _ in range(2):
            parse_exposition(REAL_DUMP.replace(b'"tiny"', f'"model-{number}"'.encode()))
    assert len(exposition._layouts._newest_first) == exposition._LAYOUTS_KEPT
