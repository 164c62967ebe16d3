"""One saved response of vLLM's OpenAI-compatible API -> what speculation did for that request. Pure.

Since 0.29.0, ``--per-request-spec-decode-metrics summary|detailed`` adds ``metrics.speculative_decoding`` to responses
with one choice (n = 1): a histogram of accepted tokens per verification step and, if detailed, every step. A stream has
it in its last chunk, if the client asks for usage (stream_options.include_usage). The text of a response is not kept.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final

import msgspec

NonNegative = Annotated[int, msgspec.Meta(ge=0)]
# Framing of an event stream that was saved line by line.
_STREAM_PREFIX: Final = b"data:"
_STREAM_NOISE: Final = (b":", b"event:", b"id:", b"retry:")
_STREAM_END: Final = b"[DONE]"


class _Speculation(msgspec.Struct):
    """``metrics.speculative_decoding`` of 0.29.0 to 0.32.0, without its ratios, which we compute."""

    acceptance_histogram: list[NonNegative]
    num_draft_tokens: NonNegative
    num_spec_tokens: NonNegative
    num_spec_steps: NonNegative | None = None
    num_accepted_draft_tokens: NonNegative | None = None
    per_step_accepted: list[NonNegative] | None = None
    per_step_drafted: list[NonNegative] | None = None


class ResponseSpeculation(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="response", gc=False):
    """Speculation within one request. ``steps_by_accepted[j]``: number of steps that accepted exactly j draft tokens.

    ``steps``: accepted and draft tokens of each step, if the server gives details. ``temperature`` comes from the log.
    """

    request_id: str | None
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    num_speculative_tokens: int
    steps_by_accepted: tuple[int, ...]
    steps: tuple[tuple[int, int], ...] | None = None
    temperature: float | None = None

    @property
    def acceptance_ratio(self) -> float | None:
        """Accepted / draft tokens; ``None`` without draft tokens."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None


class WithoutRecord(msgspec.Struct, frozen=True):
    """A response, or a chunk of one, without a record of speculation."""


class Junk(msgspec.Struct, frozen=True):
    """A line that is no response, or whose record contradicts itself; ``reason`` says why."""

    reason: str


def parse_response(line: bytes) -> ResponseSpeculation | WithoutRecord | Junk | None:
    """Read one line. ``None``: it is empty or the framing of an event stream.

    Accepts a bare response or chunk, a chunk with the ``data:`` of its stream, and a response that a benchmark saved in
    an object (under ``response``, or ``response`` and ``body`` as in OpenAI's batch files).
    """
    text = line.strip()
    if not text or text.startswith(_STREAM_NOISE):
        return None
    if text.startswith(_STREAM_PREFIX):
        text = text[len(_STREAM_PREFIX) :].strip()
        if text == _STREAM_END:
            return None
    try:
        response = _unwrapped(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Junk("not JSON")
    if response is None:
        return Junk("not a response: neither choices nor metrics")
    metrics = response.get("metrics")
    record = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if record is None:
        return WithoutRecord()
    try:
        found = msgspec.convert(record, _Speculation)
    except msgspec.ValidationError as error:
        return Junk(f"metrics.speculative_decoding: {error}")
    request_id = response.get("id")
    return _checked(request_id if isinstance(request_id, str) else None, found)


def log_request_ids(response_id: str) -> tuple[str, str]:
    """Return the request's possible names in the log: completions number their prompts, ``cmpl-1f-0``."""
    return response_id, f"{response_id}-0"


def _unwrapped(data: object) -> dict[str, Any] | None:
    for key in ("response", "body"):
        if isinstance(data, dict) and not _is_response(data):
            data = data.get(key)
    return data if isinstance(data, dict) and _is_response(data) else None


def _is_response(data: dict[str, Any]) -> bool:
    return "choices" in data or "metrics" in data


def _checked(request_id: str | None, found: _Speculation) -> ResponseSpeculation | Junk:
    """Return the record if its parts agree with each other, as vLLM's always do."""
    histogram, k = found.acceptance_histogram, found.num_spec_tokens
    drafts = sum(histogram)
    accepted = sum(tokens * steps for tokens, steps in enumerate(histogram))
    if len(histogram) > k + 1:
        return Junk(f"a step accepted {len(histogram) - 1} tokens, but a step drafts at most {k}")
    if found.num_spec_steps not in (None, drafts):
        return Junk(f"{found.num_spec_steps} steps, but {drafts} in the histogram")
    if found.num_accepted_draft_tokens not in (None, accepted):
        return Junk(f"{found.num_accepted_draft_tokens} accepted tokens, but {accepted} in the histogram")
    if not accepted <= found.num_draft_tokens <= drafts * k:
        return Junk(f"{found.num_draft_tokens} draft tokens, but {drafts} steps draft {accepted} to {drafts * k}")
    steps = None
    if found.per_step_accepted is not None and found.per_step_drafted is not None:
        if len(found.per_step_accepted) != len(found.per_step_drafted):
            return Junk("per_step_accepted and per_step_drafted differ in length")
        steps = tuple(zip(found.per_step_accepted, found.per_step_drafted, strict=True))
        by_accepted = {tokens: number for tokens, number in enumerate(histogram) if number}
        agreeing = by_accepted == Counter(found.per_step_accepted) and all(one <= of for one, of in steps)
        if not agreeing or sum(found.per_step_drafted) != found.num_draft_tokens:
            return Junk("the steps contradict the histogram or the number of draft tokens")
    return ResponseSpeculation(
        request_id=request_id,
        drafts=drafts,
        draft_tokens=found.num_draft_tokens,
        accepted_tokens=accepted,
        num_speculative_tokens=k,
        steps_by_accepted=tuple(histogram),
        steps=steps,
    )
