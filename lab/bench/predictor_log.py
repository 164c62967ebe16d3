"""A predictor's log of any size, the same bytes every time, with its true totals.

The start is a real vLLM 0.32.0's; then one line in 200 is a spec-decode line with the engine's statistics beside it, as
the APIServer prints them every 10 s, between access lines and lines of other modules in that release's shapes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path

from support.builders import CAPTURES

LINES_PER_WINDOW = 200
WINDOW = dt.timedelta(seconds=10)
NUM_SPECULATIVE_TOKENS = 3
_SEED = 7
_WRITER = "(APIServer pid=16694)"
_START = dt.datetime(2025, 11, 20, 21, 38, tzinfo=dt.UTC)
_POOL_LINES = 8192
# Of a thousand lines of a busy server: requests first, probes and scrapes, then its own remarks.
_SHARES = {"completions": 600, "chat/completions": 289, "metrics": 30, "health": 30, "added": 50, "warning": 1}


@dataclasses.dataclass(frozen=True, slots=True)
class PredictorLog:
    """A log and what is in it."""

    path: Path
    size_bytes: int
    windows: int
    accepted_tokens: int
    draft_tokens: int

    @property
    def totals(self) -> tuple[int, int, int]:
        """What a reader that sums the lines must find: windows, accepted tokens, draft tokens."""
        return self.windows, self.accepted_tokens, self.draft_tokens


@functools.cache
def make_log(directory: Path, megabytes: int) -> PredictorLog:
    """Write the log of that size (1 MB is 10**6 bytes). A smaller log is the beginning of a bigger one."""
    return _write(directory / f"predictor-{megabytes}MB.log", megabytes * 1_000_000)


def _write(path: Path, size_bytes: int) -> PredictorLog:
    rng = random.Random(_SEED)
    others = _other_lines()
    written = windows = accepted_tokens = draft_tokens = 0
    with path.open("wb") as file:
        written += file.write(beginning())
        for stamp in _stamps():
            lines, accepted, drafted = _window(rng, stamp)
            between = b"".join(rng.choices(others, k=LINES_PER_WINDOW - 2))
            written += file.write(lines + between.replace(b" @ ", f" {stamp} ".encode()))
            windows += 1
            accepted_tokens += accepted
            draft_tokens += drafted
            if written >= size_bytes:
                break
    return PredictorLog(path, written, windows, accepted_tokens, draft_tokens)


def beginning() -> bytes:
    """A server's lines up to its first statistics: the engine-init line and its warnings among them."""
    text = (CAPTURES / "0.32.0-draft_model-k3" / "server.log").read_bytes()
    statistics = re.compile(rb"^.* Engine 0|^.*SpecDecoding", re.MULTILINE).search(text)
    assert statistics is not None
    return text[: statistics.start()]


def _stamps() -> Iterator[str]:
    return ((_START + number * WINDOW).strftime("%m-%d %H:%M:%S") for number in itertools.count())


def _window(rng: random.Random, stamp: str) -> tuple[bytes, int, int]:
    """The engine's statistics and the spec-decode line after them; accepted and draft tokens."""
    drafts = rng.randrange(50, 6000)
    curve = [drafts]
    for chance in (rng.uniform(0.5, 0.95), rng.uniform(0.5, 0.95), rng.uniform(0.5, 0.95)):
        curve.append(int(curve[-1] * chance))
    accepted, drafted = sum(curve[1:]), drafts * NUM_SPECULATIVE_TOKENS
    shares = ", ".join(f"{count / drafts:.3f}" for count in curve[1:])
    seconds = WINDOW.total_seconds()
    text = (
        f"{_WRITER} INFO {stamp} [loggers.py:335] Engine 000: "
        f"Avg prompt throughput: {rng.uniform(0, 4000):.1f} tokens/s, "
        f"Avg generation throughput: {(accepted + drafts) / seconds:.1f} tokens/s, "
        f"Running: {rng.randrange(1, 200)} reqs, Waiting: {rng.randrange(20)} reqs, "
        f"GPU KV cache usage: {rng.uniform(0, 99):.1f}%, Prefix cache hit rate: {rng.uniform(0, 99):.1f}%\n"
        f"{_WRITER} INFO {stamp} [metrics.py:120] SpecDecoding metrics: "
        f"Mean acceptance length: {1 + accepted / drafts:.2f}, "
        f"Accepted throughput: {accepted / seconds:.2f} tokens/s, "
        f"Drafted throughput: {drafted / seconds:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {shares}, Avg Draft acceptance rate: {accepted / drafted:.1%}\n"
    )
    return text.encode(), accepted, drafted


def _other_lines() -> list[bytes]:
    """Lines that say nothing about drafts, to choose from; ``@`` stands for the time."""
    rng = random.Random(_SEED)
    kinds = rng.choices([*_SHARES], weights=[*_SHARES.values()], k=_POOL_LINES)
    return [f"{_other(rng, kind)}\n".encode() for kind in kinds]


def _other(rng: random.Random, kind: str) -> str:
    client = f"10.{rng.randrange(4)}.{rng.randrange(256)}.{rng.randrange(256)}:{rng.randrange(32768, 61000)}"
    match kind:
        case "metrics" | "health":
            return f'INFO:     {client} - "GET /{kind} HTTP/1.1" 200 OK'
        case "added":
            request = f"cmpl-{rng.randbytes(8).hex()}-0-{rng.randbytes(4).hex()}"
            return f"{_WRITER} INFO @ [async_llm.py:578] Added request {request}."
        case "warning":
            return (
                f"{_WRITER} WARNING @ [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead."
            )
        case path:
            status = "200 OK" if rng.random() < 0.99 else "400 Bad Request"
            return f'INFO:     {client} - "POST /v1/{path} HTTP/1.1" {status}'
