"""One line of saved responses -> the response, and what the line says of its request. Pure.

A line is a response, a chunk of a streamed one, or an object of a client, benchmark or gateway with a response in it.
Parts are looked up by name, outermost first, and never inside a request or an answer: what users write there decides
nothing. Text of prompts and answers is not kept.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from specdec_exporter import bounds

# Framing of an event stream that was saved line by line.
_STREAM_PREFIX: Final = "data:"
_STREAM_NOISE: Final = (":", "event:", "id:", "retry:")
_STREAM_END: Final = "[DONE]"
# The last chunk of a stream has the record. Behind it come an empty line, [DONE] and an empty line.
_LAST_LINES: Final = 8
_RESPONSE_KEYS: Final = ("response", "response_body")
_REQUEST_KEYS: Final = ("request", "request_body", "body")
_HEADERS_KEYS: Final = ("request_headers", "headers")
_PROMPT_KEYS: Final = ("messages", "prompt", "input")
# Sampling below this temperature is greedy (0.29.0 to 0.33.0: sampling_params.py, _SAMPLING_EPS).
_GREEDY: Final = 1e-5

Object = dict[str, Any]


class Saved(msgspec.Struct, frozen=True):
    """A response, and what is known of its request. ``None``: the line does not tell.

    ``structured``: the server must follow a schema, a grammar or a list of choices, or may call tools.
    """

    response: Object
    temperature: float | None = None
    structured: bool | None = None
    header: str | None = None


class NoResponseError(Exception):
    """The line has no response. The message says why, and quotes nothing."""


def read_saved(line: bytes, header: str | None = None) -> Saved | None:
    """Return the response in a line. ``None``: the line is empty or the framing of an event stream.

    ``header`` names a request header to look up, in any case. Raises :class:`NoResponseError`.
    """
    text = _text(line)
    if not text or text.startswith(_STREAM_NOISE):
        return None
    if text.startswith(_STREAM_PREFIX):
        text = text[len(_STREAM_PREFIX) :].strip()
        if text == _STREAM_END:
            return None
    data = _object(text)
    if data is None:
        raise NoResponseError("not a JSON object")
    if _has_prompt(data):
        # A user chooses every key of a request, so it could pass for anything below.
        raise NoResponseError("a request, or an object with the prompt beside the response")
    if "choices" in data:
        return Saved(data)
    if (response := _inner_response(data)) is not None:
        return _with_request(response, data, header)
    if "metrics" in data:
        return Saved(data)
    raise NoResponseError("not a response: neither choices nor metrics")


def _text(line: bytes) -> str:
    try:
        return line.decode().strip()
    except UnicodeDecodeError:
        raise NoResponseError("not UTF-8") from None


def _object(value: object) -> Object | None:
    """Return an object, also one that was saved as text; ``None`` if it is none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _has_prompt(data: Object) -> bool:
    return any(key in data for key in _PROMPT_KEYS)


# --- the response -----------------------------------------------------------------------------------------------------


def _inner_response(data: Object) -> Object | None:
    for outer in map(data.get, _RESPONSE_KEYS):
        # The gateway's own object may have metrics too, so its body comes first.
        for value in (outer.get("body") if isinstance(outer, dict) else None, outer):
            if (found := _as_response(value)) is not None:
                return found
    return None


def _as_response(value: object) -> Object | None:
    found = _object(value)
    if found is None and isinstance(value, str):
        found = _last_chunk(value)
    return found if found is not None and ("choices" in found or "metrics" in found) else None


def _last_chunk(stream: str) -> Object | None:
    """Return the last chunk of a stream that was saved as one text."""
    for line in reversed(stream.rsplit("\n", _LAST_LINES)):
        if line.startswith(_STREAM_PREFIX) and (found := _object(line[len(_STREAM_PREFIX) :].strip())) is not None:
            return found
    return None


# --- the request ------------------------------------------------------------------------------------------------------


def _with_request(response: Object, data: Object, header: str | None) -> Saved:
    body, envelope = None, data
    for key in _REQUEST_KEYS:
        if (found := _object(data.get(key))) is None:
            continue
        if not _has_prompt(found) and ("body" in found or "headers" in found):
            envelope, found = found, _object(found.get("body"))
        body = found
        break
    return Saved(
        response,
        temperature=None if body is None else _temperature(body.get("temperature")),
        structured=None if body is None else _is_structured(body),
        header=None if header is None else _header((envelope, data), header.lower()),
    )


def _temperature(value: object) -> float | None:
    """Return the temperature. Without one the server takes the model's default, which the line does not tell."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= bounds.COUNT:
        return None
    return float(value) if value >= _GREEDY else 0.0


def _is_structured(body: Object) -> bool:
    """Whether the answer must have a form, or may call tools.

    ``guided_*`` do not count: releases that write records ignore them (0.29.0 to 0.33.0; vllm#53975).
    """
    response_format = body.get("response_format")
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    tools = bool(body.get("tools")) and body.get("tool_choice") != "none"
    return tools or bool(body.get("structured_outputs")) or kind not in (None, "text")


def _header(places: tuple[Object, ...], name: str) -> str | None:
    """Return a request header: from an object or list of headers, or from a field with its name beside them."""
    for place in places:
        for headers in (*(place.get(key) for key in _HEADERS_KEYS), place):
            pairs = list(headers.items()) if isinstance(headers, dict) else headers
            for pair in pairs if isinstance(pairs, list) else ():
                if isinstance(pair, list | tuple) and len(pair) == 2 and str(pair[0]).lower() == name:
                    value = pair[1][0] if isinstance(pair[1], list) and pair[1] else pair[1]
                    if isinstance(value, str):
                        return value
    return None
