"""Saved responses are read as vLLM 0.29.0 and later write them, and nothing else passes for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from specdec_exporter import bounds
from specdec_exporter.inspection.requestgroups import OTHER, RequestGroups
from specdec_exporter.inspection.requests import RequestsAnalysis, RequestStory, RequestTemperatures
from specdec_exporter.predictor.log.events import RequestParams
from specdec_exporter.predictor.responses import (
    Junk,
    ResponseSpeculation,
    WithoutRecord,
    parse_response,
)
from support.builders import CAPTURES, saved_response

SAVED = json.loads((CAPTURES / "0.32.0-draft_model-per-request-metrics" / "responses.json").read_bytes())
Step = tuple[int, int]  # accepted, draft tokens


def as_line(response: object) -> bytes:
    return json.dumps(response).encode()


def response(steps: list[Step], k: int = 3, *, detailed: bool = True) -> dict[str, Any]:
    """A response as the server would write it for these steps."""
    histogram = [sum(accepted == tokens for accepted, _ in steps) for tokens in range(k + 1)]
    accepted, drafted = sum(one for one, _ in steps), sum(of for _, of in steps)
    record: dict[str, Any] = {
        "mean_acceptance_length": 1 + accepted / len(steps) if steps else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": histogram,
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": k,
    }
    if detailed:
        record |= {"per_step_accepted": [one for one, _ in steps], "per_step_drafted": [of for _, of in steps]}
    return saved_response(histogram, metrics={"speculative_decoding": record})


def read(line: bytes) -> ResponseSpeculation:
    found = parse_response(line)
    assert isinstance(found, ResponseSpeculation), found
    return found


def told(*responses: dict[str, Any]) -> RequestsAnalysis:
    story = RequestStory()
    for each in responses:
        story.add(read(as_line(each)))
    return story.analysis()


# --- one line ---


@pytest.mark.parametrize("saved", SAVED, ids=lambda saved: str(saved["path"]))
def test_what_a_real_server_answered_is_read_to_the_token(saved: dict[str, Any]) -> None:
    truth = saved["response"]["metrics"]["speculative_decoding"]
    found = read(as_line(saved["response"]))
    assert found.request_id == saved["response"]["id"]
    assert found.drafts == truth["num_spec_steps"]
    assert found.acceptance_ratio == truth["draft_acceptance_rate"]
    assert 1 + found.accepted_tokens / found.drafts == truth["mean_acceptance_length"]
    assert found.steps == tuple(zip(truth["per_step_accepted"], truth["per_step_drafted"], strict=True))
    asked = {"temperature": saved["body"]["temperature"], "structured": False}  # saved beside the response
    assert read(as_line(saved)) == replace(found, **asked)


@pytest.mark.parametrize("line", [b"", b"\n", b"data: [DONE]", b": ping", b"event: done"])
def test_the_framing_of_a_stream_is_nothing(line: bytes) -> None:
    assert parse_response(line) is None


@pytest.mark.parametrize(
    "body",
    [
        {"id": "a", "choices": []},
        {"id": "a", "choices": [], "metrics": {"speculative_decoding": None}},
    ],
)
def test_a_response_without_a_record_is_no_junk(body: dict[str, Any]) -> None:
    assert parse_response(as_line(body)) == WithoutRecord()


def changed(**fields: object) -> dict[str, Any]:
    body = response([(3, 3), (1, 3)])
    body["metrics"]["speculative_decoding"] |= fields
    return body


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"id": "cut off',
        b"\xff\xfe",
        as_line({"error": {"message": "n"}}),
        as_line(changed(num_draft_tokens=-6)),
        as_line(changed(num_draft_tokens=7)),
        as_line(changed(num_spec_steps=3)),
        as_line(changed(num_accepted_draft_tokens=5)),
        as_line(changed(num_spec_tokens=2)),
        as_line(changed(per_step_accepted=[3])),
        as_line(changed(per_step_accepted=[2, 2])),
        as_line(changed(per_step_accepted=[4, 0], acceptance_histogram=[1, 0, 0, 0, 1], num_spec_tokens=4)),
    ],
)
def test_what_is_no_response_or_contradicts_itself_is_junk_with_a_reason(line: bytes) -> None:
    found = parse_response(line)
    assert isinstance(found, Junk), found
    assert found.reason


# --- many requests ---

requests_of_steps = st.lists(
    st.lists(
        st.integers(1, 4).flatmap(lambda drafted: st.tuples(st.integers(0, drafted), st.just(drafted))), max_size=12
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=30)
@given(requests_of_steps)
def test_conditional_rates_are_exact_where_the_steps_are_known(requests: list[list[Step]]) -> None:
    analysis = told(*(response(steps, k=4) for steps in requests))
    every = [step for steps in requests for step in steps]
    assert analysis.all.drafts == len(every)
    assert analysis.all.accepted_tokens == sum(accepted for accepted, _ in every)
    if not every:
        assert analysis.all.exact is None
        return
    exact = analysis.all.exact
    assert exact is not None
    for position in range(4):
        offered = [accepted for accepted, drafted in every if drafted > position and accepted >= position]
        assert exact.offered[position] == len(offered)
        taken = sum(accepted > position for accepted in offered)
        assert exact.conditional[position] == (taken / len(offered) if offered else None)
        above = sum(accepted > position for accepted, _ in every)
        assert analysis.all.per_position[position] == pytest.approx(above / len(every))


@settings(max_examples=30)
@given(requests_of_steps)
def test_a_summary_is_exact_for_requests_whose_drafts_are_full(requests: list[list[Step]]) -> None:
    full = [[(accepted, 4) for accepted, _ in steps] for steps in requests]
    summary = told(*(response(steps, k=4, detailed=False) for steps in full)).all
    assert summary == told(*(response(steps, k=4) for steps in full)).all


# --- kinds of requests ---


def request(**known: object) -> ResponseSpeculation:
    """One draft of one token, accepted."""
    counts = {"drafts": 1, "draft_tokens": 1, "accepted_tokens": 1, "num_speculative_tokens": 1}
    fields = {"request_id": "cmpl-1", "steps_by_accepted": (0, 1), **counts, **known}
    return ResponseSpeculation(**fields)  # type: ignore[arg-type]


def of_length(tokens: int | None, accepted: int, requests: int = 20) -> list[dict[str, Any]]:
    """Requests with a prompt of this length; they accept so many of 100 draft tokens, give or take one."""
    found = []
    for number in range(requests):
        this = accepted + number % 3 - 1
        saved = response([(1, 1)] * this + [(0, 1)] * (100 - this), k=1)
        found.append(saved if tokens is None else saved | {"usage": {"prompt_tokens": tokens}})
    return found


def test_requests_are_told_apart_by_temperature() -> None:
    groups = RequestGroups(with_header=False)
    for temperature in (0.0, 0.72, 9.0, None):
        groups.add(request(temperature=temperature))
    values = [each.value for each in groups.closed() if each.by == "temperature"]
    assert values == ["0", "(0.5,0.8]", ">1", "unknown"]


def test_requests_are_told_apart_by_the_length_of_their_prompts() -> None:
    lengths = (256, 257, 1024, 1025, 70_000, None, 0, -1, True, "9", 1e300)
    responses = [{**of_length(None, 50, 1)[0], "usage": {"prompt_tokens": tokens}} for tokens in lengths]
    analysis = told(*responses, {**of_length(None, 50, 1)[0], "usage": "none"})
    found = {each.value: each.group.requests for each in analysis.groups if each.by == "prompt_length"}
    assert found == {"1 to 256": 1, "257 to 1,024": 2, "1,025 to 4,096": 1, "above 65,536": 1, "unknown": 7}


def test_the_time_per_token_of_each_kind_is_that_of_the_responses_with_times() -> None:
    def timed(milliseconds: object) -> dict[str, Any]:
        (saved,) = of_length(9, 50, 1)
        saved["metrics"]["mean_itl_ms"] = milliseconds
        return saved

    (group,) = (
        each.group for each in told(*map(timed, (20.0, 40, None, -5, "x", True))).groups if each.by == "prompt_length"
    )
    assert group.time_per_output_token_seconds == pytest.approx(0.03)


def test_long_prompts_that_accept_less_beyond_chance_are_a_finding() -> None:
    (finding,) = told(*of_length(100, 70), *of_length(5000, 60), *of_length(20_000, 41)).findings
    assert finding.level == "WARN"
    assert finding.found == (
        "long prompts gain less: requests with 16,385 to 65,536 prompt tokens accept 41% of their draft tokens on "
        "average, those with 1 to 256 accept 70%"
    )


@pytest.mark.parametrize(
    "responses",
    [
        pytest.param([*of_length(100, 70), *of_length(20_000, 66)], id="less than counts"),
        pytest.param([*of_length(100, 41), *of_length(20_000, 70)], id="more"),
        pytest.param([*of_length(100, 70), *of_length(20_000, 41, 9)], id="few requests"),
        pytest.param([*of_length(None, 70), *of_length(20_000, 41)], id="unknown lengths"),
        pytest.param(
            [
                each
                for rate in range(8, 98, 5)
                for length in (100, 20_000)
                for each in of_length(length, rate - 6 * (length > 100), 1)
            ],
            id="chance",
        ),
    ],
)
def test_other_lengths_are_none(responses: list[dict[str, Any]]) -> None:
    assert told(*responses).findings == ()


def test_many_tenants_are_one_group_and_no_request_is_lost() -> None:
    groups = RequestGroups(with_header=True)
    for number in [*range(100), 3]:
        groups.add(request(header=f"tenant-{number}", model=f"lora-{number}"))
    for by in ("header", "adapter"):
        found = {each.value: each.group.requests for each in groups.closed() if each.by == by}
        assert len(found) == bounds.REQUEST_GROUPS + 1
        assert found[OTHER] == 100 - bounds.REQUEST_GROUPS
        assert sum(found.values()) == 101


def test_requests_that_share_an_id_and_differ_in_temperature_get_none() -> None:
    temperatures = RequestTemperatures()
    known = (("a", 0.5), ("a", 0.7), ("b-0", 1.0), ("b-0", 1.0))
    lines = [RequestParams(request_id=name, temperature=temperature) for name, temperature in known]
    assert list(temperatures.noting(lines)) == lines
    joined = {name: temperatures.joined(request(request_id=name)).temperature for name in ("a", "b", "c")}
    assert joined == {"a": None, "b": 1.0, "c": None}
    assert temperatures.joined(request(request_id="a", temperature=0.2)).temperature == 0.2
