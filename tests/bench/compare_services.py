"""Services whose gain is drawn and then measured: machines, traffic and drafts of many kinds."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Final, Literal

from bench.compare_machine import PREFILL_TOKENS, Machine, Server
from bench.compare_traffic import BUSY, Traffic, tokens_per_step

Arrivals = Literal["open", "closed", "bursty"]
SHAPES: Final = {"linear": 1.0, "roofline soft": 4.0, "roofline sharp": math.inf}
ARRIVALS: Final[tuple[Arrivals, ...]] = ("open", "closed", "bursty")
PROMPTS: Final = {"short": (100.0, 600.0), "long": (2500.0, 8000.0)}
WANDER, STALLS = 0.08, 4.0  # of a rough machine
_GAINS = (0.7, 1.6)
_LARGEST_DRAFT = 0.25  # seconds of a draft token over those of a step
_FULL = 90.0  # requests in decode that no service drawn here has on average
_MOST_PREFILL = 0.5  # of a plain server's time


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A speculating server and what it is called by; the plain one is the same without drafts."""

    shape: str
    arrivals: Arrivals
    prompts: str
    rough: bool
    number: int
    server: Server

    @property
    def what(self) -> str:
        """What it is called by."""
        return f"{self.shape}, {self.arrivals}, {self.prompts} prompts, {self.number}"

    @property
    def plain(self) -> Server:
        """The same machine and traffic without drafts."""
        return dataclasses.replace(self.server, k=0)


def services(seed: int, each: int) -> list[Service]:
    """Draw ``each`` services of every shape, arrivals and prompts; every third one has a rough machine."""
    return [
        _drawn(seed, shape, arrivals, prompts, number)
        for shape in SHAPES
        for arrivals in ARRIVALS
        for prompts in PROMPTS
        for number in range(each)
    ]


def _drawn(seed: int, shape: str, arrivals: Arrivals, prompts: str, number: int) -> Service:
    """Draw until drafts can give the gain that was drawn first, and neither side is overloaded."""
    rng = random.Random(f"{seed} {shape} {arrivals} {prompts} {number}")
    gain = math.exp(rng.uniform(*map(math.log, _GAINS)))
    while True:
        base = rng.uniform(0.008, 0.025)
        machine = Machine(
            base=base,
            request=base * rng.choice((0.0, 0.004)),
            token=base / _log_uniform(rng, 60.0, 300.0),
            sharpness=SHAPES[shape],
        )
        load = _log_uniform(rng, 3.0, 40.0)
        traffic = Traffic(
            clients=round(load) if arrivals == "closed" else 0,
            burst_seconds=rng.uniform(20.0, 90.0) if arrivals == "bursty" else 0.0,
            prompt_tokens=_log_uniform(rng, *PROMPTS[prompts]),
            answer_tokens=_log_uniform(rng, 100.0, 400.0),
            acceptance=rng.uniform(0.3, 0.85),
        )
        k = rng.choice((1, 2, 3, 5))
        found = _serving(Server(machine=machine, traffic=traffic, k=k), load, gain, rng.random())
        if found:
            rough = number % 3 == 2
            server = dataclasses.replace(found, wander=WANDER, stalls=STALLS) if rough else found
            return Service(shape=shape, arrivals=arrivals, prompts=prompts, rough=rough, number=number, server=server)


def _serving(server: Server, load: float, gain: float, fixed: float) -> Server | None:
    """Give drafts the cost at which they gain so much at a load, and arrivals the rate that loads a plain server so.

    ``fixed``: the share of the cost that does not grow with the load.
    """
    machine, traffic, k = server.machine, server.traffic, server.k
    per_prompt_token = _slope(machine, load, 0, traffic)
    alone, drafting = machine.step(round(load), 0, 0.0), machine.step(round(load), k, 0.0)
    rate = load / (traffic.answer_tokens * alone + load * traffic.prompt_tokens * per_prompt_token)
    prefill = rate * traffic.prompt_tokens * per_prompt_token
    if prefill > _MOST_PREFILL:
        return None
    step = tokens_per_step(traffic.acceptance, k) / gain * alone / (1.0 - prefill)
    cost = (step * (1.0 - rate * traffic.prompt_tokens * _slope(machine, load, k, traffic)) - drafting) / k
    if not 0.0 < cost < _LARGEST_DRAFT * alone:
        return None
    machine = dataclasses.replace(machine, draft=cost * fixed, draft_request=cost * (1.0 - fixed) / load)
    if not traffic.clients:
        traffic = dataclasses.replace(traffic, per_second=rate)
        peak = rate * (BUSY if traffic.burst_seconds else 1.0)
        if max(_load_at(machine, traffic, peak, some) for some in (0, k)) > _FULL:
            return None
    return Server(traffic=traffic, machine=machine, k=k)


def _load_at(machine: Machine, traffic: Traffic, rate: float, k: int) -> float:
    """Return the requests in decode at a constant rate of arrivals; :data:`_FULL` or more if they pile up."""
    load, prompt_rate = 1.0, rate * traffic.prompt_tokens
    while load < _FULL + 1.0:
        share = prompt_rate * _slope(machine, load, k, traffic)
        if share >= 0.95:
            return math.inf
        step = machine.step(round(load), k, 0.0) / (1.0 - share)
        following = rate * traffic.answer_tokens / tokens_per_step(traffic.acceptance, k) * step
        if following <= load:
            return load
        load += max(following - load, 0.5)
    return load


def _slope(machine: Machine, load: float, k: int, traffic: Traffic) -> float:
    """Return how much longer a step takes for each prompt token that is read in it."""
    read = min(traffic.prompt_tokens, PREFILL_TOKENS)
    return (machine.step(round(load), k, read) - machine.step(round(load), k, 0.0)) / read


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))
