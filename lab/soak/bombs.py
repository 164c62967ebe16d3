"""What a hostile predictor, log, file or scraper can do to the exporter; :class:`Target` runs one and measures it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

from bench.processes import memory
from support.builders import CAPTURES
from support.fieldtools import ROOT
from support.running import Exporter, Predictor, answer_nothing, exporter, predictor

LIMIT_MIB: Final = 128  # of the manifests
# How the image has memory given back.
PROGRAM: Final = ("env", *re.findall(r"MALLOC_\w+=\w+", (ROOT / "Dockerfile").read_text(encoding="utf-8")))
# A runaway dies at once, not the machine. It counts reserved memory, so it is above the limit on what is used.
_DATA_BYTES: Final = 1 << 30
_MIB: Final = 1 << 20


def _captured(file: str) -> str:
    """A real body that tells no start time: an answer of a process older than the one before would be refused."""
    return re.sub(r"(?m)^process_start_time_seconds .*\n", "", (CAPTURES / file).read_text())


HONEST: Final = _captured("0.32.0-draft_model-k3/metrics-5-p60.txt").encode()
_TWO_ENGINES: Final = _captured("0.32.0-draft_model-dp2-api1/metrics-1-after.txt")
_TEXT: Final = {"Content-Type": "text/plain; version=0.0.4"}
# A process of its own, so that this one's work is not measured. It answers each line with the longest wait so far.
_HEALTH: Final = """
import http.client, select, sys, time
longest = 0.0
while True:
    started = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    connection.request("GET", "/-/healthy")
    assert connection.getresponse().read()
    connection.close()
    longest = max(longest, time.monotonic() - started)
    if select.select([sys.stdin], [], [], 0.02)[0]:
        if not sys.stdin.readline():
            break
        print(longest, flush=True)
        longest = 0.0
"""
_RUNNING: Final = 'vllm:num_requests_running{{model_name="{}",engine="{}"}} 1\n'


@dataclass
class Measured:
    """What happened while a bomb was there: memory in MiB, the longest waits in seconds, how the scrapes ended."""

    peak_mib: float = 0.0
    scrape_seconds: float = 0.0
    health_seconds: float = 0.0
    up: set[float] = field(default_factory=set)
    dropped: dict[str, int] = field(default_factory=dict)


class Target:
    """An exporter with one predictor, whose answer and log the bombs change."""

    def __init__(self, playing: Predictor, running: Exporter, health: asyncio.subprocess.Process, log: Path) -> None:
        self.playing = playing
        self.running = running
        self._health = health
        self.log = log
        self.measured = Measured()

    async def scrape(self, **headers: str) -> dict[str, float]:
        """One scrape, whose time counts."""
        started = time.monotonic()
        samples = await self.running.samples(**headers)
        self.measured.scrape_seconds = max(self.measured.scrape_seconds, time.monotonic() - started)
        self.measured.up.add(samples['specdec_up{inference_service="svc"}'])
        return samples

    async def answers(self, body: bytes, scrapes: int = 3, encoding: str = "identity") -> None:
        """Let the predictor go away, and another answer ``body`` to so many scrapes."""
        self.playing.answer = answer_nothing  # without this, an answer that does not follow would be refused
        await self.running.samples()
        self.playing.answer = None
        self.playing.body, self.playing.headers = body, {**_TEXT, "Content-Encoding": encoding}
        for _ in range(scrapes):
            await self.scrape()

    def logs(self, *chunks: bytes, name: str = "vllm.log") -> None:
        """Append to the log, or to another file beside it."""
        with (self.log.parent / name).open("ab") as file:
            for chunk in chunks:
                file.write(chunk)

    async def log_read(self) -> None:
        """Wait until the log is read."""
        size = 'specdec_log_reader_bytes_total{inference_service="svc"}'
        written = sum(path.stat().st_size for path in self.log.parent.glob("*.log"))
        async with asyncio.timeout(120):
            while (await self.scrape())[size] < written:
                await asyncio.sleep(0.1)

    async def longest_wait_for_health(self) -> float:
        """Seconds, since it was last asked."""
        assert self._health.stdin is not None
        assert self._health.stdout is not None
        self._health.stdin.write(b"\n")
        return float(await self._health.stdout.readline())

    async def survive(self, bomb: Bomb) -> Measured:
        """Set off ``bomb``; then the honest predictor must be read as ever. Returns what was measured."""
        before = await self.dropped()
        self.measured = Measured()
        Path(f"/proc/{self.running.process.pid}/clear_refs").write_text("5")  # the peak begins anew
        await self.longest_wait_for_health()
        await bomb(self)
        self.measured.health_seconds = await self.longest_wait_for_health()
        self.playing.answer = None
        measured, self.measured = self.measured, Measured()
        await self.answers(HONEST, 2)
        samples = await self.running.until(lambda found: found['specdec_up{inference_service="svc"}'] == 1)
        assert any(name.startswith("specdec_drafts_total") for name in samples)
        measured.peak_mib = memory(self.running.process.pid).peak
        after = await self.dropped()
        measured.dropped = {what: number - before[what] for what, number in after.items() if number > before[what]}
        return measured

    async def dropped(self) -> dict[str, int]:
        """What was dropped since the start."""
        samples = await self.running.samples()
        found = {re.search(r'dropped_total\{what="(\w+)"\}', name): int(value) for name, value in samples.items()}
        return {match[1]: value for match, value in found.items() if match}


Bomb = Callable[[Target], Awaitable[None]]


@contextlib.asynccontextmanager
async def target(folder: Path) -> AsyncIterator[Target]:
    """An exporter that dies if it takes far more than its limit."""
    log = folder / "logs" / "vllm.log"
    log.parent.mkdir()
    log.touch()
    async with predictor(HONEST) as playing:
        flags = (f"--predictor.url={playing.url}", f"--predictor.log-path={log.parent}/*.log", "--predictor.name=svc")
        async with exporter(*flags, program=(*PROGRAM, sys.executable, "-m", "specdec_exporter")) as running:
            resource.prlimit(running.process.pid, resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
            health = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _HEALTH, running.url.rpartition(":")[2]),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                yield Target(playing, running, health, log)
            finally:
                health.kill()
                await health.wait()


# -- bodies ----------------------------------------------------------------------------------------------------------


def engines(number: int) -> bytes:
    """The whole body of a real server, for so many engines, within 16 MB."""
    lines: list[str] = []
    for line in _TWO_ENGINES.splitlines():
        if 'engine="0"' in line:
            lines += [line.replace('engine="0"', f'engine="{n}"') for n in range(number)]
        elif 'engine="1"' not in line:
            lines.append(line)
    return ("\n".join(lines) + "\n").encode()


def _body(make: Callable[[], bytes], encoding: str = "identity") -> Bomb:
    async def bomb(on: Target) -> None:
        await on.answers(make(), encoding=encoding)

    return bomb


def _series(count: int, line: str) -> Bomb:
    return _body(lambda: "".join(line.format(n) for n in range(count)).encode())


def _models(count: int) -> Bomb:
    return _series(count, 'vllm:num_requests_running{{model_name="m{}",engine="0"}} 1\n')


async def _impatient(on: Target) -> None:
    await on.answers(engines(470)[: 16 * _MIB - 1].rpartition(b"\n")[0] + b"\n", 0)
    header = {"X-Prometheus-Scrape-Timeout-Seconds": "0.7"}
    for _ in range(15):
        await on.scrape(**header)
    await asyncio.gather(*(on.scrape(**header) for _ in range(8)))


async def _endless_headers(on: Target) -> None:
    async def endless(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 200 OK\r\n")
        while request.transport is not None and not request.transport.is_closing():
            request.transport.write(b"X: " + b"x" * 60_000 + b"\r\n" + b"Y: y\r\n" * 1000)
            await asyncio.sleep(0)
        return web.Response()

    on.playing.answer = endless
    for _ in range(3):
        await on.scrape(**{"X-Prometheus-Scrape-Timeout-Seconds": "2"})


# -- logs ------------------------------------------------------------------------------------------------------------


def log_lines(engines: int) -> Iterator[bytes]:
    """A statistics line and a spec-decode line of each engine, as 0.32.0 writes them."""
    for n in range(engines):
        head = "(APIServer pid=7) INFO 11-20 21:37:51 "
        yield (
            f"{head}[loggers.py:257] Engine {n:03}: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: "
            "1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%, Prefix cache hit rate: 0.0%\n"
            f"{head}[metrics.py:120] SpecDecoding metrics: Mean acceptance length: 3.00, Accepted throughput: 1.00 "
            "tokens/s, Drafted throughput: 1.00 tokens/s, Accepted: 2 tokens, Drafted: 3 tokens, Per-position "
            "acceptance rate: 1.000, 1.000, 0.000, Avg Draft acceptance rate: 66.7%\n"
        ).encode()


def _log(*chunks: Callable[[], Iterator[bytes]]) -> Bomb:
    async def bomb(on: Target) -> None:
        for chunk in chunks:
            on.logs(*chunk())
        await on.log_read()

    return bomb


async def _streams(on: Target) -> None:
    for n in range(60):  # files that begin alike would be taken for copies of one
        piece = b"2026-11-20T21:37:51.0Z stdout P %d" % n + b"x" * 16_000 + b"\n"
        on.logs(piece * 60, name=f"pod{n}.log")
    await on.log_read()
    for n in range(60):
        (on.log.parent / f"pod{n}.log").unlink()


# -- files and scrapers ----------------------------------------------------------------------------------------------


async def _many_scrapers(on: Target) -> None:
    await on.answers(engines(400), 1)
    await asyncio.gather(*(on.scrape(**{"Accept-Encoding": "identity"}) for _ in range(8)))


async def _status_loop(on: Target) -> None:
    await on.answers(engines(400), 1)
    for _ in range(10):
        await on.running.get("/api/v1/status")


QUICK: Final[dict[str, Bomb]] = {
    "10,000 models": _models(10_000),
    "10,000 positions": _series(
        10_000, 'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{}"}} 1\n'
    ),
    "a label of 1 MB": _body(lambda: _RUNNING.format("m" * 1_000_000, 0).encode() + HONEST),
    "gzip of 100 MB in 100 KB": _body(lambda: gzip.compress(b"#\n" * 50_000_000, 6), "gzip"),
    "never-ending headers": _endless_headers,
    "10,000 engines in the log": _log(lambda: log_lines(10_000)),
}
ALL: Final[dict[str, Bomb]] = {
    **QUICK,
    "16 MiB of newlines": _body(lambda: b"\n" * (16 * _MIB - 1)),
    "100,000 models": _models(100_000),
    "400 engines of 0.32.0": _body(lambda: engines(400)),
    "one series 199,000 times": _series(199_000, 'vllm:num_requests_running{{engine="0"}} {}\n'),
    "a label of 16 MB": _body(lambda: _RUNNING.format("m" * 16_000_000, 0).encode()),
    "16 MiB, scrapers that wait for 0.7 s": _impatient,
    "100,000 engines in the log": _log(lambda: log_lines(100_000)),
    "a line of 100 MB": _log(lambda: iter([b"x" * _MIB] * 100), lambda: iter([b"\n"])),
    "unfinished lines of 60 containers": _streams,
    "8 scrapers of 400 engines": _many_scrapers,
    "10 status pages of 400 engines": _status_loop,
}
