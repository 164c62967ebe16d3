"""A baseline: what one predictor did over a span of time, and under which conditions.

Counts are increases over the span, times seconds. ``None`` means not known, not given, or not exposed by the predictor.
:mod:`.schema` is that of its file.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import ENGINES, VLLM, InferenceEngine
from specdec_exporter.predictor.speculativeconfig import Server, deployment_of
from specdec_exporter.speculation.acceptance import Counts, ratio
from specdec_exporter.speculation.load import Load

# The service level indicators of a baseline: field of a baseline -> field of a snapshot.
HISTOGRAMS = {
    "time_to_first_token_seconds": "time_to_first_token",
    "time_per_output_token_seconds": "time_per_output_token",
    "request_latency_seconds": "request_latency",
}
SLIS = tuple(HISTOGRAMS)
# Tokens per finished request: fields of a baseline and of a snapshot.
LENGTHS = ("prompt_length", "generation_length")
# All histograms: field of a baseline -> field of a snapshot.
RECORDED = {**HISTOGRAMS, **{name: name for name in LENGTHS}}

MAX_TEXT = 4096
MAX_BLOCKS = 24  # of a recording; a long one has 13 or more


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The five facts that a comparison of numbers needs. ``None``: not given, never guessed."""

    hardware: str | None = None
    model: str | None = None
    runtime: str | None = None
    request_parameters: str | None = None
    command: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the missing facts."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) is None)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One of the consecutive parts of a recording, of about equal length: increases over ``seconds`` of wall clock.

    The scatter of the blocks tells how far a figure of the whole recording is from chance, whatever requests have in
    common: a batch, a burst, an hour. A histogram without requests in the block has zero counts.
    """

    seconds: float
    counts: Counts = Counts()
    time_to_first_token_seconds: Histogram | None = None
    time_per_output_token_seconds: Histogram | None = None
    request_latency_seconds: Histogram | None = None

    def __add__(self, other: Block) -> Block:
        """Sum of two neighbours; keep a figure that only one of them knows."""
        pairs = {sli: (getattr(self, sli), getattr(other, sli)) for sli in SLIS}
        return Block(
            seconds=self.seconds + other.seconds,
            counts=self.counts + other.counts,
            **{sli: one or two if one is None or two is None else one + two for sli, (one, two) in pairs.items()},
        )


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """One recording. The histograms hold the requests of the span: cumulative counts, sum in seconds.

    ``recorded_at`` is the end of the span, RFC 3339 in UTC. ``model_name`` is the served name in the predictor's
    metrics, ``inference_engine`` the code of what served it; files of before other engines were read have none, and are
    of vLLM. Without speculation ``counts`` has no drafts. ``intervals`` are short parts of the span, each of one
    engine, in the order of their ends; those of one moment lie next to each other. They tell step time and load, and
    are empty for V0 engines. ``blocks`` are few long parts that add up to the span; they tell how far chance moved
    latencies. ``prompt_length`` and ``generation_length`` are the tokens per request. ``interrupted``: recording
    stopped early.
    """

    name: str
    recorded_at: str
    duration_seconds: float
    context: Context = Context()

    inference_engine: str | None = None
    vllm_version: str | None = None
    method: str | None = None
    draft_model: str | None = None
    num_speculative_tokens: int | None = None
    model_name: str | None = None

    time_to_first_token_seconds: Histogram | None = None
    time_per_output_token_seconds: Histogram | None = None
    request_latency_seconds: Histogram | None = None
    counts: Counts = Counts()
    requests_finished: float | None = None
    intervals: tuple[Load, ...] = ()
    blocks: tuple[Block, ...] = ()
    prompt_length: Histogram | None = None
    generation_length: Histogram | None = None
    interrupted: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for an inference engine that is not known."""
        if self.inference_engine not in (None, *ENGINES):
            expected = f"null, or one of {', '.join(ENGINES)}"
            raise ValueError(f"inference_engine: expected {expected}, found {self.inference_engine!r:.80}")

    @property
    def recorded_timestamp(self) -> float:
        """``recorded_at`` as Unix time."""
        return datetime.fromisoformat(self.recorded_at).timestamp()

    @property
    def engine(self) -> InferenceEngine:
        """The inference engine that was recorded."""
        return ENGINES[self.inference_engine] if self.inference_engine else VLLM

    @property
    def speculates(self) -> bool:
        """Whether anything was drafted."""
        return bool(self.counts.draft_tokens or self.counts.drafts)

    @property
    def k(self) -> int | None:
        """The number of speculative tokens; if not recorded, the number of positions."""
        return self.num_speculative_tokens or len(self.counts.accepted_per_position) or None

    @property
    def server(self) -> Server:
        """What is known of the server's ``--speculative-config``."""
        return Server(self.context.command, self.method, self.k)

    @property
    def adaptive_verification(self) -> bool:
        """Whether its command made vLLM verify only part of each draft: it counts all of it as drafted."""
        return bool(deployment_of(self.context.command).adaptive_verification)

    @property
    def mean_prompt_tokens(self) -> float | None:
        """Mean prompt tokens of a request: as a running predictor's counters tell it, else of the finished requests."""
        mean = ratio(self.counts.prompt_tokens, self.counts.first_tokens)
        return mean or (ratio(self.prompt_length.sum, self.prompt_length.count) if self.prompt_length else None)

    def histograms(self) -> Iterator[tuple[str, Histogram]]:
        """Yield each recorded SLI and its histogram."""
        for sli in SLIS:
            if (histogram := getattr(self, sli)) is not None:
                yield sli, histogram


def as_utc(moment: datetime) -> str:
    """Return ``moment`` as RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
