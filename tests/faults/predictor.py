"""A simulated predictor behind a server of raw sockets that breaks answers, and the truth about each of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import random
import re
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from demo.simulator.engine import Engine
from demo.simulator.exposition import render_metrics
from demo.simulator.settings import LatencyModel, SimulatorSettings

# Exported name -> the simulator's own count of it.
COUNTERS = {
    "specdec_drafts_total": "drafts",
    "specdec_draft_tokens_total": "draft_tokens",
    "specdec_accepted_tokens_total": "accepted_tokens",
    "specdec_generation_tokens_total": "generation_tokens",
    "specdec_prompt_tokens_total": "prompt_tokens",
}
V0_COUNTERS = {
    "specdec_draft_tokens_total": "v0_summed_drafted",
    "specdec_accepted_tokens_total": "v0_summed_accepted",
    "specdec_generation_tokens_total": "v0_generation_steps",  # which is its fault, not ours
    "specdec_prompt_tokens_total": "prompt_tokens",
}
Totals = dict[str, float]
USUAL = SimulatorSettings(
    load="2/s", output_tokens=64, latency=LatencyModel(step_seconds=0.05), served_model_name="tiny"
)
OLD = 4  # answers: so old is an old one
Clock = Callable[[], float]


class Process:
    """One process of a predictor. ``now`` and ``started`` are Unix times.

    Without ``start_time`` it does not tell when it started, as a vLLM with several API servers.
    """

    def __init__(
        self,
        settings: SimulatorSettings,
        now: float,
        *,
        started: float | None = None,
        start_time: bool = True,
    ) -> None:
        self.engine = Engine(settings, start_unix=now if started is None else started)
        self._start_time = start_time
        self._began = now

    def at(self, now: float) -> Process:
        """The process at this time."""
        self.engine.advance_to(now - self._began)
        return self

    def body(self) -> bytes:
        body = render_metrics(self.engine)
        return body if self._start_time else re.sub(rb"(?m)^.*(process_start_time_seconds|_created).*\n", b"", body)

    def totals(self) -> Totals:
        """The counters as this release counts them."""
        v0 = self.engine.release.generation == "v0"
        (rank,) = self.engine.ranks
        told = {name: getattr(rank.totals, source) for name, source in (V0_COUNTERS if v0 else COUNTERS).items()}
        return {name: float(value) for name, value in told.items() if value is not None}


@dataclasses.dataclass(slots=True)
class Answer:
    """What was sent at ``at`` (Unix time). Only ``sound`` answers say the truth, and all of it."""

    at: float
    step: str  # of the incident
    fault: str
    process: int  # the number of restarts before it
    sound: bool
    totals: Totals
    happened: Totals  # over all processes so far
    v0: bool


class World:
    """The predictor that the exporter should watch, and others that may answer in its place.

    Twin and stranger started earlier. The twin counts a little less.
    """

    def __init__(self, clock: Clock, **changes: Any) -> None:
        self._clock = clock
        self._time = clock()  # all of an answer is of one moment
        self._ended: Totals = {}
        self.restarts = 0
        self.bodies: deque[bytes] = deque(maxlen=OLD)
        self.begin(**changes)

    def begin(self, **changes: Any) -> None:
        """Let all processes begin anew, the others some time ago."""
        now = self._time
        self.current = self._process(now, changes)
        self.twin = self._process(now, changes | {"seed": 7, "load": "1.6/s"}, started=now - 1000)
        self.stranger = self._process(now, changes | {"served_model_name": "other"}, started=now - 2000)

    def _process(self, now: float, changes: dict[str, Any], started: float | None = None) -> Process:
        fields = {name: getattr(USUAL, name) for name in USUAL.__struct_fields__}
        told = fields | changes
        start_time = told.pop("start_time", True)
        return Process(SimulatorSettings(**told), now, started=started, start_time=start_time)

    def restart(self, **changes: Any) -> None:
        """End the process and begin another. ``changes``: of the settings, or ``start_time``."""
        self.look()
        self._ended = self.happened()
        self.restarts += 1
        self.bodies.clear()
        self.begin(**changes)

    def restart_in_the_past(self) -> None:
        """The wall clock of the predictor was set back by an hour before this restart."""
        self.restart()
        self.current = self._process(self._time, {}, started=self._time - 3600)

    def happened(self) -> Totals:
        """The counts of all processes so far."""
        found = self.now(self.current).totals()
        return {name: found.get(name, 0.0) + self._ended.get(name, 0.0) for name in found.keys() | self._ended.keys()}

    def look(self) -> None:
        """Let time pass up to this moment."""
        self._time = self._clock()

    def now(self, process: Process) -> Process:
        return process.at(self._time)


class Wire:
    """The connection of one answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def head(self, length: int | None, *more: str, status: str = "200 OK") -> None:
        """Send the head; without ``length`` the body ends with the connection."""
        known = () if length is None else (f"Content-Length: {length}",)
        lines = (f"HTTP/1.1 {status}", "Content-Type: text/plain; version=0.0.4", "Connection: close", *known, *more)
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def left(self) -> None:
        """Wait until the other side has gone."""
        with contextlib.suppress(ConnectionError):
            await self._reader.read()

    async def reset(self) -> None:
        """Send what was written, then RST instead of an orderly end."""
        await self._writer.drain()
        plug = self._writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Send = Callable[[Wire, bytes], Awaitable[None]]
Body = Callable[[World], bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """``body``: what is answered; ``send``: how it goes over the wire; ``requests``: how many a fetch makes."""

    name: str
    send: Send
    body: Body
    sound: bool = False
    requests: int = 1


async def whole(wire: Wire, body: bytes) -> None:
    wire.head(len(body))
    wire.send(body)


async def drip(wire: Wire, body: bytes) -> None:
    """A byte at a time, until the other side has had enough."""
    wire.head(len(body))
    left = asyncio.create_task(wire.left())
    for byte in body:
        wire.send(bytes([byte]))
        if (await asyncio.wait({left}, timeout=0.01))[0]:
            return


async def never(wire: Wire, _body: bytes) -> None:
    await wire.left()


async def nothing(wire: Wire, _body: bytes) -> None:
    await wire.reset()


async def half_a_head(wire: Wire, _body: bytes) -> None:
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Ty")


async def no_http(wire: Wire, body: bytes) -> None:
    wire.send(body)


async def half(wire: Wire, body: bytes) -> None:
    wire.head(len(body))
    wire.send(body[: len(body) // 2])


async def half_then_reset(wire: Wire, body: bytes) -> None:
    await half(wire, body)
    await wire.reset()


async def in_mid_line(wire: Wire, body: bytes) -> None:
    wire.head(None)
    wire.send(body[: body.index(b"vllm:spec_decode_num_accepted_tokens") + 40])


async def before_the_last_newline(wire: Wire, body: bytes) -> None:
    wire.head(None)
    wire.send(body[:-1])


async def between_two_counters(wire: Wire, body: bytes) -> None:
    wire.head(None)
    wire.send(body[: body.index(b"# HELP vllm:spec_decode_num_accepted_tokens")])


async def before_the_first_counter(wire: Wire, body: bytes) -> None:
    wire.head(None)
    wire.send(body[: body.index(b"# HELP vllm:")])


async def in_gzip(wire: Wire, body: bytes) -> None:
    packed = gzip.compress(body[:1000]) + gzip.compress(body[1000:])
    wire.head(len(packed), "Content-Encoding: gzip")
    wire.send(packed)


async def in_mid_gzip(wire: Wire, body: bytes) -> None:
    packed = gzip.compress(body)
    wire.head(None, "Content-Encoding: gzip")
    wire.send(packed[: len(packed) // 2])


async def damaged_gzip(wire: Wire, body: bytes) -> None:
    packed = bytearray(gzip.compress(body))
    packed[len(packed) // 2] ^= 0xFF
    wire.head(len(packed), "Content-Encoding: gzip")
    wire.send(bytes(packed))


async def server_error(wire: Wire, body: bytes) -> None:
    wire.head(len(body), status="503 Service Unavailable")
    wire.send(body)


async def redirected(wire: Wire, _body: bytes) -> None:
    wire.head(0, "Location: http://127.0.0.1:9/metrics", status="302 Found")


def current(world: World) -> bytes:
    return world.now(world.current).body()


def old(world: World) -> bytes:
    return world.bodies[0]


def twin(world: World) -> bytes:
    return world.now(world.twin).body()


def stranger(world: World) -> bytes:
    return world.now(world.stranger).body()


def empty(_world: World) -> bytes:
    return b""


def web_page(_world: World) -> bytes:
    return b"<!doctype html>\n<title>It works</title>\n"


def without_statistics(world: World) -> bytes:
    body = current(world)
    return body[: body.index(b"# HELP vllm:")]


def letters_for_digits(world: World) -> bytes:
    """A line in three that ends in a digit ends in a letter."""
    chance = random.Random(1)
    ends = re.compile(rb"^(vllm:.*)\d$", re.MULTILINE)
    return ends.sub(lambda line: line[1] + b"x" if chance.random() < 0.3 else line[0], current(world))


def damaged_labels(world: World) -> bytes:
    return current(world).replace(b'model_name="tiny"', b'model_name="tinx"')


def a_digit_less(world: World) -> bytes:
    """The first digit of a counter becomes 0."""
    sample = re.compile(rb"^(vllm:spec_decode_num_draft_tokens_total\{.*\} )\d", re.MULTILINE)
    return sample.sub(rb"\g<1>0", current(world))


GOOD = Fault("good", whole, current, sound=True)
IN_GZIP = Fault("good", in_gzip, current, sound=True)


class FaultyPredictor:
    """Serves ``/metrics`` of a world with the faults of ``plan``, one after the other, then soundly."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world = world
        self.step = "start"
        self.plan: deque[Fault] = deque()
        self.answers: list[Answer] = []
        self.url = ""
        self._clock = clock

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            if path == b"/version":
                answer = b'{"version": "%s"}' % self.world.current.engine.release.text.encode()
                await whole(wire, answer)
            else:
                await self._answer(wire)
            await writer.drain()
        writer.close()

    async def _answer(self, wire: Wire) -> None:
        world, fault = self.world, self.plan.popleft() if self.plan else GOOD
        world.look()
        body = fault.body(world)
        self.answers.append(
            Answer(
                at=self._clock(),
                step=self.step,
                fault=fault.name,
                process=world.restarts,
                sound=fault.sound,
                totals=world.current.totals(),
                happened=world.happened(),
                v0=world.current.engine.release.generation == "v0",
            )
        )
        if fault.sound:
            world.bodies.append(body)
        await fault.send(wire, body)


@contextlib.asynccontextmanager
async def serving(world: World, clock: Clock) -> AsyncIterator[FaultyPredictor]:
    """Serve on a port that the kernel chooses."""
    predictor = FaultyPredictor(world, clock)
    server = await asyncio.start_server(predictor._serve, "127.0.0.1", 0)
    async with server:
        predictor.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield predictor
