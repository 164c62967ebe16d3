"""One saved response of vLLM's OpenAI-compatible API -> what speculation did for that request. Pure.

Since 0.29.0, ``--per-request-spec-decode-metrics summary|detailed`` adds ``metrics.speculative_decoding`` to responses
with one choice (n = 1): a histogram of accepted tokens per verification step and, if detailed, every step. A stream has
it in its last chunk, if the client asks for usage (stream_options.include_usage). The text of a response is not kept.
``usage`` has the length of the prompt; since 0.25.0, ``--enable-per-request-metrics`` adds times.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Any

import msgspec

from specdec_exporter import bounds
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.saved import NoResponseError, Saved, read_saved

NonNegative = Annotated[int, msgspec.Meta(ge=0, le=int(bounds.COUNT))]


class _Speculation(msgspec.Struct):
    """``metrics.speculative_decoding`` of 0.29.0 to 0.33.0, without its ratios, which we compute."""

    acceptance_histogram: list[NonNegative]
    num_draft_tokens: NonNegative
    num_spec_tokens: NonNegative
    num_spec_steps: NonNegative | None = None
    num_accepted_draft_tokens: NonNegative | None = None
    per_step_accepted: list[NonNegative] | None = None
    per_step_drafted: list[NonNegative] | None = None


class ResponseSpeculation(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="response", gc=False):
    """Speculation within one request. ``steps_by_accepted[j]``: number of steps that accepted exactly j draft tokens.

    ``steps``: accepted and draft tokens of each step, if the server gives details. ``model``: the served name, or that
    of the LoRA adapter; the response does not tell which. ``given_tokens``: tokens of the answer.
    ``time_per_output_token_seconds``: decode time / (tokens - 1), if the server gives times. The rest is what is known
    of the request, see :class:`Saved`; the log can give the temperature too.
    """

    request_id: str | None
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    num_speculative_tokens: int
    steps_by_accepted: tuple[int, ...]
    steps: tuple[tuple[int, int], ...] | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    given_tokens: int | None = None
    time_per_output_token_seconds: float | None = None
    temperature: float | None = None
    structured: bool | None = None
    header: str | None = None

    @property
    def acceptance_ratio(self) -> float | None:
        """Accepted / draft tokens; ``None`` without draft tokens."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None


class WithoutRecord(msgspec.Struct, frozen=True):
    """A response, or a chunk of one, without a record of speculation."""


class Junk(msgspec.Struct, frozen=True):
    """A line that is no response, or whose record contradicts itself; ``reason`` says why."""

    reason: str


SavedLine = ResponseSpeculation | WithoutRecord | Junk


def parse_response(line: bytes, header: str | None = None) -> SavedLine | None:
    """Read one line, see :mod:`.saved`. ``None``: it is empty or the framing of an event stream.

    ``header`` names the request header whose value is wanted.
    """
    try:
        saved = read_saved(line, header)
    except NoResponseError as reason:
        return Junk(str(reason))
    if saved is None:
        return None
    metrics = saved.response.get("metrics")
    record = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if record is None:
        return WithoutRecord()
    try:
        found = msgspec.convert(record, _Speculation)
    except msgspec.ValidationError as error:
        return Junk(f"metrics.speculative_decoding: {error}")
    return _checked(saved, found)


def log_request_ids(response_id: str) -> tuple[str, str]:
    """Return the request's possible names in the log: completions number their prompts, ``cmpl-1f-0``."""
    return response_id, f"{response_id}-0"


def _checked(saved: Saved, found: _Speculation) -> ResponseSpeculation | Junk:
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
        request_id=_name(saved.response.get("id")),
        model=_name(saved.response.get("model")),
        prompt_tokens=_usage(saved.response, "prompt_tokens"),
        given_tokens=_usage(saved.response, "completion_tokens"),
        time_per_output_token_seconds=_time_per_output_token(saved.response),
        temperature=saved.temperature,
        structured=saved.structured,
        header=_name(saved.header),
        drafts=drafts,
        draft_tokens=found.num_draft_tokens,
        accepted_tokens=accepted,
        num_speculative_tokens=k,
        steps_by_accepted=tuple(histogram),
        steps=steps,
    )


def _usage(response: dict[str, Any], name: str) -> int | None:
    usage = response.get("usage")
    tokens = _positive(usage.get(name)) if isinstance(usage, dict) else None
    return None if tokens is None else int(tokens)


def _time_per_output_token(response: dict[str, Any]) -> float | None:
    """Return the mean time between tokens. Unlike the histogram of that name, it is per token and not per step."""
    found = _positive(response["metrics"].get("mean_itl_ms"))
    return None if found is None else found / 1000.0


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value <= bounds.COUNT else None


def _name(value: object) -> str | None:
    """Return a short name. What is longer than a name is text of somebody's, so nothing of it is kept."""
    name = value.strip() if isinstance(value, str) else ""
    return plain(name) if 0 < len(name) <= bounds.LABEL_CHARACTERS else None


class ResponseScanner:
    """Reads one stream of saved responses for a reader of logs; ``counters`` counts its lines. No input makes it raise.

    ``header`` as for :func:`parse_response`.
    """

    def __init__(self, counters: ReaderCounters, *, header: str | None = None) -> None:
        self._counters = counters
        self._header = header

    def scan(self, buffer: bytearray, end: int) -> list[SavedLine]:
        """Return what the whole lines in ``buffer[:end]`` say."""
        return self._read(bytes(buffer[:end]).split(b"\n")[:-1])

    def finish(self, tail: bytes = b"") -> list[SavedLine]:
        """Return what the unterminated line ``tail`` says."""
        return self._read([tail] if tail else [])

    def reset(self) -> None:
        """Do nothing: no line waits for another."""

    def _read(self, lines: list[bytes]) -> list[SavedLine]:
        self._counters.lines += len(lines)
        if lines:
            self._counters.last_line_timestamp = time.time()
        return [found for line in lines if (found := parse_response(line, self._header)) is not None]
