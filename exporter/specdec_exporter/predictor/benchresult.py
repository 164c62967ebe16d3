"""The bytes of a result of ``vllm bench serve --save-result`` -> figures of one run at one load. Pure.

Keys as in ``vllm/benchmarks/serve.py`` of 0.11.2, 0.14.1, 0.19.1, 0.32.0 and 0.33.0. 0.11.2 has no ``spec_decode_*``;
later they are there only where the benchmark could fetch ``/metrics`` and tokens were drafted, so their absence tells
nothing. Lists of requests need ``--save-detailed``; ``start_times`` is not in 0.14.1, ``latencies`` not in 0.19.1.
``--append-result`` puts several objects into a file. ``--metadata`` adds keys of text, ``vllm bench sweep serve`` its
overrides. An export of AIPerf is read as such a result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, NoReturn

import msgspec

from specdec_exporter import bounds
from specdec_exporter.errors import BenchResultError, ForeignResultError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.aiperfresult import SERVER_METRICS, as_bench, is_aiperf
from specdec_exporter.yamlfile import convert

Amount = Annotated[float, msgspec.Meta(ge=0, le=bounds.COUNT)]
Amounts = list[Amount]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]

_MAX_TEXT: Final = 4096
_NEEDED: Final = ("model_id", "duration", "completed", "total_input_tokens", "total_output_tokens", "output_throughput")
_EXPECTED: Final = "expected a result of `vllm bench serve` or AIPerf"
_OTHERS: Final = {  # keys of files that a user may take for a result
    "avg_latency": "that of `vllm bench latency`",
    "tokens_per_second": "that of `vllm bench throughput`",
    "input_sequence_throughput": "that of a pooling model",
    "metrics": "another file of AIPerf: give its folder",
}
_LEAST: Final = 1e-6  # s, ms or tokens/s: less is not measured, and a ratio to it could overflow
# Keys by which releases of the benchmark differ, newest first.
_RELEASES: Final = (("latencies", "0.32.0"), ("rtfx", "0.19.1"), ("max_concurrent_requests", "0.11.2"))
_ARRIVALS: Final = ("burstiness", "ramp_up_start_rps", "ramp_up_end_rps")
_NO_SETTING: Final = frozenset({"date", "label", "model_id", "endpoint_type", "request_rate", "_benchmark_name"})


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The time per output token over the requests of a run, seconds; ``None``: not in the file.

    ``requests``: of each, in the order of their start. Empty without ``--save-detailed``.
    """

    mean: float | None
    deviation: float | None = None
    p99: float | None = None
    requests: tuple[float, ...] = ()


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``None``: the file does not tell.

    ``clients``: at most so many requests at once. ``request_rate``: arrivals per second, at the end of a ramp;
    ``None``: all at once.
    ``time_per_output_token``: (latency - time to first token) / (output tokens - 1) of a request. ``settings``: keys of
    the run and of ``--metadata`` with their text. ``identity``: what two runs never share. ``may_not_count``: the
    benchmark may be older than counts of drafts, 0.14.
    """

    name: str
    identity: tuple[str, float, float]
    model: str
    clients: int | None
    request_rate: float | None
    prompts: int | None
    completed: int
    failed: int
    duration_seconds: float
    input_tokens: float
    output_tokens: float
    output_tokens_per_second: float
    mean_time_to_first_token: float | None  # seconds
    time_per_output_token: Latency
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    may_not_count: bool
    settings: dict[str, str]

    @property
    def speculates(self) -> bool:
        """Whether the file says that tokens were drafted. If it does not, nothing is known."""
        return bool(self.draft_tokens)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a result, with vLLM's keys; times in ms, but in seconds per request."""

    model_id: str
    duration: Annotated[float, msgspec.Meta(gt=_LEAST, le=bounds.COUNT)]
    completed: Count
    total_input_tokens: Count
    total_output_tokens: Count
    output_throughput: Annotated[float, msgspec.Meta(ge=0, le=bounds.COUNT_PER_SECOND)]
    failed: Count | None = None
    num_prompts: Count | None = None
    max_concurrency: Annotated[int, msgspec.Meta(gt=0, lt=2**31)] | None = None
    request_rate: Annotated[float, msgspec.Meta(gt=0, le=bounds.COUNT_PER_SECOND)] | str | None = None
    ramp_up_end_rps: Annotated[float, msgspec.Meta(gt=0, le=bounds.COUNT_PER_SECOND)] | None = None
    mean_ttft_ms: Amount | None = None
    mean_tpot_ms: Amount | None = None
    std_tpot_ms: Amount | None = None
    p99_tpot_ms: Amount | None = None
    spec_decode_num_drafts: Count | None = None
    spec_decode_draft_tokens: Count | None = None
    spec_decode_accepted_tokens: Count | None = None
    spec_decode_per_position_acceptance_rates: Amounts | None = None
    output_lens: Amounts = []
    ttfts: Amounts = []
    itls: list[Amounts] = []
    latencies: Amounts = []
    start_times: list[float] = []

    def __post_init__(self) -> None:
        accepted, drafts, drafted = (
            getattr(self, f"spec_decode_{name}") or 0 for name in ("accepted_tokens", "num_drafts", "draft_tokens")
        )
        positions = len(self.spec_decode_per_position_acceptance_rates or ()) or math.inf
        prompts = math.inf if self.num_prompts is None else self.num_prompts
        least = min(each or math.inf for each in (self.mean_ttft_ms, self.mean_tpot_ms))
        rate, failed = self.request_rate, not self.completed or self.output_throughput < _LEAST
        for wrong, words in (
            (isinstance(rate, str) and rate != "inf", "request_rate: expected a number or inf, found another text"),
            (failed, "completed: expected requests with answers, found none: the run failed"),
            (self.completed > self.total_output_tokens, "total_output_tokens: expected one per request, found fewer"),
            (self.completed > prompts, "num_prompts: expected the completed requests at least, found fewer"),
            (least < _LEAST, f"mean_ttft_ms, mean_tpot_ms: expected 0 or at least {_LEAST:g}, found less"),
            (max(accepted, drafts) > drafted, "spec_decode_draft_tokens: expected the accepted at least, found fewer"),
            (0 < accepted > drafts * positions, "spec_decode_num_drafts: expected more for so many accepted tokens"),
        ):
            if wrong:
                raise ValueError(words)

    def time_per_output_token(self) -> Latency:
        """Return the latency; vLLM writes 0 where no request had one."""
        requests = self.of_requests()
        mean = _seconds(self.mean_tpot_ms) or (math.fsum(requests) / len(requests) if requests else 0.0)
        return Latency(
            mean=mean if 1000.0 * mean >= _LEAST else None,
            deviation=_seconds(self.std_tpot_ms),
            p99=_seconds(self.p99_tpot_ms),
            requests=requests,
        )

    def of_requests(self) -> tuple[float, ...]:
        """Return the time per output token of the requests that tell it, in the order of their start."""
        number = len(self.ttfts)
        if {len(self.output_lens), len(self.itls)} != {number}:
            return ()
        timed = len(self.latencies) == number
        order = sorted(range(number), key=self.start_times.__getitem__) if len(self.start_times) == number else None
        found = []
        for i in order or range(number):
            decoding = self.latencies[i] - self.ttfts[i] if timed else math.fsum(self.itls[i])
            if self.output_lens[i] > 1 and decoding > 0.0:  # a request that failed has no tokens
                found.append(decoding / (self.output_lens[i] - 1))
        return tuple(found)


def _seconds(milliseconds: float | None) -> float | None:
    """Return a figure of the file; vLLM writes 0 where there is none."""
    return milliseconds / 1000.0 if milliseconds else None


def parse_results(content: bytes, name: str, beside: bytes | None = None) -> list[BenchResult]:
    """Return the results in a file, which errors call ``name``: several with ``--append-result``, at least one.

    ``beside``: what AIPerf wrote of the server into the file beside it.
    Raises :class:`BenchResultError` for anything else, as :class:`ForeignResultError` where it is JSON of another kind.
    """
    documents = list(_documents(content, name))
    if not documents:
        raise BenchResultError(f"{name}: {_EXPECTED}, found nothing")
    numbered = len(documents) > 1
    server_metrics = next(_documents(beside, f"{name}, {SERVER_METRICS}"), None) if beside else None
    return [
        _result(each, server_metrics, f"{name}, result {i}" if numbered else name)
        for i, each in enumerate(documents, start=1)
    ]


def _documents(content: bytes, name: str) -> Iterator[Any]:
    if len(content) > bounds.RESULT_BYTES:
        raise BenchResultError(f"{name}: expected at most {bounds.RESULT_BYTES:,} bytes, found more")
    try:
        text = content.decode("utf-8-sig").rstrip()
    except UnicodeDecodeError:
        raise BenchResultError(f"{name}: expected JSON, found bytes that are not UTF-8") from None
    decoder, at = json.JSONDecoder(parse_constant=_refuse_constant), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            found, at = decoder.raw_decode(text, at)
        except _NoNumberError as cause:
            raise BenchResultError(f"{name}: expected numbers, found {cause}: the run failed") from None
        except (ValueError, RecursionError):
            line = text.count("\n", 0, at) + 1
            raise BenchResultError(f"{name}: expected JSON of a benchmark from line {line} on, found none") from None
        yield found


class _NoNumberError(Exception):
    """NaN or an infinity, which Python writes although JSON has none."""


def _refuse_constant(word: str) -> NoReturn:
    raise _NoNumberError(word)


def _keys(document: object, server_metrics: object, name: str) -> dict[str, Any]:
    """Return the keys of a result; those of AIPerf by vLLM's names. Raises :class:`ForeignResultError`."""
    if not isinstance(document, dict):
        several = isinstance(document, list)
        kind = "a list, as in summary.json: give run=*.json or the folder" if several else "one value"
        raise ForeignResultError(f"{name}: {_EXPECTED}, found {kind}")
    made = as_bench(document, server_metrics) if is_aiperf(document) else document
    lacks = [key for key in _NEEDED if key not in made]
    if lacks:
        other = next((words for key, words in _OTHERS.items() if key in document), f"an object without {lacks[0]}")
        raise ForeignResultError(f"{name}: {_EXPECTED}, found {other}")
    return made


def _result(document: object, server_metrics: object, name: str) -> BenchResult:
    made = _keys(document, server_metrics, name)
    exported = made is not document
    known = {key: made[key] for key in _File.__struct_fields__ if key in made}
    file = convert(known, _File, name, BenchResultError)
    return BenchResult(
        name=name,
        identity=(str(made.get("date")), file.duration, file.output_throughput),
        model=_text(file.model_id),
        clients=file.max_concurrency,
        request_rate=file.ramp_up_end_rps or (None if isinstance(file.request_rate, str) else file.request_rate),
        prompts=file.num_prompts,
        completed=file.completed,
        failed=file.failed or 0,
        duration_seconds=file.duration,
        input_tokens=file.total_input_tokens,
        output_tokens=file.total_output_tokens,
        output_tokens_per_second=file.output_throughput,
        mean_time_to_first_token=_seconds(file.mean_ttft_ms),
        time_per_output_token=file.time_per_output_token(),
        drafts=file.spec_decode_num_drafts,
        draft_tokens=file.spec_decode_draft_tokens,
        accepted_tokens=file.spec_decode_accepted_tokens,
        may_not_count=not (exported or file.spec_decode_draft_tokens or {"latencies", "rtfx"} & {*made}),
        settings=_settings(made),
    )


def _settings(document: dict[str, Any]) -> dict[str, str]:
    release = next((release for key, release in _RELEASES if key in document), "an older release")
    given = {
        key: value for key, value in document.items() if isinstance(value, str) and value and key not in _NO_SETTING
    }
    given |= {key: str(document[key]) for key in _ARRIVALS if isinstance(document.get(key), int | float)}
    return {"keys of the benchmark": f"as of {release}", **{_text(key): _text(value) for key, value in given.items()}}


def _text(value: str) -> str:
    """Return text of the file on one line, printable and not too long."""
    return plain(" ".join(value[:_MAX_TEXT].split()))
