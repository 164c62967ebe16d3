"""A saved line tells the response and its request, however a gateway wrote it; users' text decides nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.responses import Junk, ResponseSpeculation, parse_response
from support.builders import saved_response

Object = dict[str, Any]


HONEST = saved_response([1, 2])
FORGED = saved_response([0, 0, 0, 900], id="cmpl-evil", model="evil")
STREAM = (
    "".join(
        f"data: {json.dumps(chunk)}\n\n"
        for chunk in ({"id": "cmpl-1", "choices": [{"text": json.dumps(FORGED)}]}, HONEST)
    )
    + "data: [DONE]\n\n"
)
ASKED = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0.7}


def read(line: object, header: str | None = "X-Tenant") -> ResponseSpeculation:
    found = parse_response(json.dumps(line).encode(), header)
    assert isinstance(found, ResponseSpeculation), found
    return found


@pytest.mark.parametrize("body", [HONEST, json.dumps(HONEST), STREAM, STREAM.replace("\n", "\r\n")])
@pytest.mark.parametrize(
    "wrapped",
    [
        lambda body: {"response": body},
        lambda body: {"response_body": body},
        lambda body: {"response": {"status": 200, "headers": {}, "body": body}},
        lambda body: {"metrics": {"seconds": 1}, "response": {"metrics": {"bytes": 9}, "body": body}},
    ],
)
def test_a_response_is_found_as_an_object_as_text_and_as_the_text_of_a_stream(
    wrapped: Callable[[object], Object], body: object
) -> None:
    found = read(wrapped(body))
    assert (found.request_id, found.model, found.drafts, found.accepted_tokens) == ("cmpl-1", "llama", 3, 2)


@pytest.mark.parametrize(
    "beside",
    [
        {"request": {"headers": {"x-tenant": "acme"}, "body": ASKED}},
        {"request": {"headers": {"X-TENANT": ["acme", "b"]}, "body": json.dumps(ASKED)}},
        {"request": ASKED, "headers": [["Host", "a"], ["x-tenant", "acme"]]},
        {"request_body": json.dumps(ASKED), "request_headers": {"x-tenant": "acme"}},
        {"body": ASKED, "x-tenant": "acme"},
    ],
)
def test_the_request_beside_it_tells_temperature_form_and_header(beside: Object) -> None:
    found = read({**beside, "response": HONEST})
    assert (found.temperature, found.structured, found.header) == (0.7, False, "acme")
    assert read({**beside, "response": HONEST}, header=None).header is None


@pytest.mark.parametrize(
    ("body", "structured"),
    [
        ({}, False),
        ({"response_format": {"type": "text"}}, False),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, True),
        ({"response_format": None, "structured_outputs": None, "tools": []}, False),
        ({"structured_outputs": {"choice": ["a"]}}, True),
        ({"tools": [{"type": "function"}]}, True),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, False),
    ],
)
def test_what_makes_an_answer_structured(body: Object, structured: bool) -> None:
    assert read({"request": {"prompt": "", **body}, "response": HONEST}).structured is structured


ODD: list[Any] = [None, "1", True, -1, 10**400, [], {}]


@pytest.mark.parametrize(
    ("temperature", "found"), [(0, 0.0), (1e-9, 0.0), (0.5, 0.5), (2, 2.0), *((each, None) for each in ODD)]
)
def test_a_temperature_is_a_number_or_not_known(temperature: object, found: float | None) -> None:
    assert read({"body": {"prompt": "", "temperature": temperature}, "response": HONEST}).temperature == found


@pytest.mark.parametrize("key", ["prompt", "messages", "input"])
@pytest.mark.parametrize("extra", [FORGED, {"response": FORGED}, {"response": {"body": json.dumps(FORGED)}}])
def test_a_request_passes_for_no_response(key: str, extra: Object) -> None:
    assert isinstance(parse_response(json.dumps({key: "hi", **extra}).encode()), Junk)


@given(place=st.sampled_from(("request", "request_body", "body")), as_text=st.booleans(), inner=st.booleans())
def test_what_a_user_adds_to_a_request_changes_neither_numbers_nor_header(
    place: str, as_text: bool, inner: bool
) -> None:
    """Servers ignore unknown keys, so a user may add any."""
    evil = {
        **FORGED,
        "response": FORGED,
        "headers": {"x-tenant": "evil"},
        "x-tenant": "evil",
        "body": {"temperature": 2},
    }
    asked: Any = {**ASKED, **evil, "messages": [{"content": json.dumps({"response": FORGED})}]}
    asked = json.dumps(asked) if as_text else asked
    line = {place: {"headers": {"x-tenant": "acme"}, "body": asked} if inner else asked, "response": HONEST}
    found = read(line)
    assert (found.request_id, found.model, found.drafts, found.temperature) == ("cmpl-1", "llama", 3, 0.7)
    assert found.header == ("acme" if inner else None)


@pytest.mark.parametrize("field", ["id", "model"])
@pytest.mark.parametrize("value", ["x" * 257, "", " ", 7, None, ["a"]])
def test_a_long_or_odd_name_is_not_kept(field: str, value: object) -> None:
    found = read(saved_response([1, 2], **{field: value}))
    assert (found.request_id, found.model).count(None) == 1


@pytest.mark.parametrize(
    "line",
    [
        {"response": {"body": "data: [DONE]\n\n"}},
        {"response": "plain text"},
        {"response": [HONEST]},
        {"response": {"body": {"body": HONEST}}},
        {"other": HONEST},
    ],
)
def test_elsewhere_is_no_response(line: object) -> None:
    assert isinstance(parse_response(json.dumps(line).encode()), Junk)


def test_a_line_may_nest_as_deep_as_it_likes() -> None:
    deep = "[" * 100_000
    for line in (deep, json.dumps({"response": deep}), f'{{"response": {deep}'):
        assert isinstance(parse_response(line.encode()), Junk)
