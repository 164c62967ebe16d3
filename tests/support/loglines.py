"""One message of each wording, and reading a line in tests."""

from __future__ import annotations

import math

import msgspec
from hypothesis import strategies as st

from specdec_exporter.predictor.log.events import Event, Malformed, SpecDecoding
from specdec_exporter.predictor.log.line import read_line

HEADER = "(APIServer pid=7) INFO 11-20 21:44:52 [metrics.py:120] "
ARGUMENTS_HEADER = HEADER.replace("metrics.py:120", "api_utils.py:286")
SPEC = (
    "SpecDecoding metrics: Mean acceptance length: 2.80, Accepted throughput: 0.90 tokens/s, "
    "Drafted throughput: 1.50 tokens/s, Accepted: 9 tokens, Drafted: 15 tokens, "
    "Per-position acceptance rate: 0.800, 0.600, 0.400, Avg Draft acceptance rate: 60.0%"
)
SPEC_0_9 = (
    "SpecDecoding metrics: Draft acceptance rate: 60.0%, Mean acceptance length: 2.80, Accepted: 9 tokens, "
    "Drafted: 15 tokens, Per-position acceptance rate: 0.800, 0.600, 0.400"
)
SPEC_0_8_3 = "SpecDecoding metrics: Draft acceptance rate: 60.0%, Accepted: 9 tokens, Drafted: 15 tokens"
SPEC_V0 = (
    "Speculative metrics: Draft acceptance rate: 0.600, System efficiency: 0.700, Number of speculative tokens: 3, "
    "Number of accepted tokens: 9, Number of draft tokens: 15, Number of emitted tokens: 14."
)
STATS = (
    "Engine 000: Avg prompt throughput: 2.7 tokens/s, Avg generation throughput: 4.7 tokens/s, Running: 2 reqs, "
    "Waiting: 1 reqs, GPU KV cache usage: 25.1%, Prefix cache hit rate: 12.5%"
)
CONFIG = (
    "Initializing a V1 LLM engine (v0.32.0) with config: model='/models/target', speculative_config="
    "SpeculativeConfig(method='draft_model', model='/models/draft', num_spec_tokens=3), tokenizer='/models/target', "
    "served_model_name=tiny, enable_prefix_caching=True"
)
ARGUMENTS = (
    "non-default args: {'host': '127.0.0.1', 'port': 18001, 'model': '/models/target', 'served_model_name': ['tiny'], "
    "'speculative_config': {'method': 'draft_model', 'model': '/models/draft', 'num_speculative_tokens': 3, "
    "'num_speculative_tokens_per_batch_size': [[1, 2, 4], [3, 8, 0]], 'rejection_sample_method': 'synthetic', "
    "'synthetic_acceptance_length': 2.4}, 'max_num_seqs': 8}"
)
PARAMS = "SamplingParams(n=1, temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, seed=None, stop=[], max_tokens=40)"

# Fields that a statistics line of a later release may have.
EXTRA_FIELDS = [
    "KV fetch: 3 waiting, 2 running",
    "KV fetch: 3 waiting to start, 1 in progress, 0 completed waiting",  # vLLM 0.32.0's loggers.py
    "KV fetch: 3.5 GB/s (2 reqs)",
    "Free blocks: 1,234,567 / 2,000,000",
    "Draft source: org/draft-1.5@main",
    "Share: k=3, top=0.50%",
    "Free slots: 7",
]

Parsed = Event | Malformed | None


def parse_line(line: bytes, *, any_writer: bool = False) -> Parsed:
    """Read a line that holds at most one message."""
    said = read_line(line.decode("utf-8", "replace"), any_writer=any_writer)
    assert len(said) <= 1
    return said[0] if said else None


def parse(text: str) -> Parsed:
    """Read a line as with ``--predictor.log-trust=any``: messages without a header count."""
    return parse_line(text.encode(), any_writer=True)


def spec(text: str) -> SpecDecoding:
    event = parse(text)
    assert isinstance(event, SpecDecoding), event
    return event


def malformed(text: str) -> Malformed:
    said = parse(text)
    assert isinstance(said, Malformed), said
    return said


def without_place(said: Parsed) -> Parsed:
    if said is None or isinstance(said, Malformed):
        return said
    return msgspec.structs.replace(said, timestamp=None, process=None, pid=None, server=None)


@st.composite
def drafts(draw: st.DrawFn) -> tuple[int, list[int], int]:
    """The number of drafts, how many of them accepted each position, and the tokens drafted."""
    count = draw(st.integers(1, 100_000))
    tokens = draw(st.integers(1, 12))
    accepted: list[int] = []
    for _ in range(tokens):
        accepted.append(draw(st.integers(0, accepted[-1] if accepted else count)))
    return count, accepted, draw(st.integers(sum(accepted), max(sum(accepted), count * tokens)))


def rendered(wording: str, count: int, positions: list[int], drafted: int) -> str:
    """As vLLM's own format strings write it."""
    accepted = sum(positions)
    rate = accepted / drafted if drafted else math.nan
    curve = ", ".join(f"{position / count:.3f}" for position in positions)
    length = accepted / count
    if wording == "v0":
        return (
            f"Speculative metrics: Draft acceptance rate: {rate:.3f}, System efficiency: 0.500, "
            f"Number of speculative tokens: {len(positions)}, Number of accepted tokens: {accepted}, "
            f"Number of draft tokens: {drafted}, Number of emitted tokens: {accepted}."
        )
    if wording == "0.8.3":
        return (
            f"SpecDecoding metrics: Draft acceptance rate: {100 * rate:.1f}%, Accepted: {accepted} tokens, "
            f"Drafted: {drafted} tokens"
        )
    if wording in ("0.8.5", "0.9.0"):
        return (
            f"SpecDecoding metrics: Draft acceptance rate: {100 * rate:.1f}%, "
            f"Mean acceptance length: {length + (wording == '0.9.0'):.2f}, Accepted: {accepted} tokens, "
            f"Drafted: {drafted} tokens, Per-position acceptance rate: {curve}"
        )
    return (
        f"SpecDecoding metrics: Mean acceptance length: {1 + length:.2f}, "
        f"Accepted throughput: {accepted / 10:.2f} tokens/s, "
        f"Drafted throughput: {drafted / 10:.2f} tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {curve}, Avg Draft acceptance rate: {100 * rate:.1f}%"
    )
