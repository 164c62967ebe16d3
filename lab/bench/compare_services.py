"""Services whose gain is drawn and then measured: machines, traffic and drafts of many kinds."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Final, Literal

from bench.compare_machine import PREFILL_TOKENS, Machine, Server
from bench.compare_traffic import BUSY, Traffic, tokens_per_step

Arrivals = Literal["open", "constant", "closed", "bursty"]
SHAPES: Final = {"linear": 1.0, "roofline soft": 4.0, "roofline sharp": math.inf}
ARRIVALS: Final[tuple[Arrivals, ...]] = ("open", "constant", "closed", "bursty")
PROMPTS: Final = {"short": (100.0, 600.0), "long": (2500.0, 8000.0)}
ROUGH = 4.0  # stalls an hour
DRIFTS = (0.05, 0.10)  # standard deviation of the logarithm of the steps' time
SLOW_SECONDS = 300.0  # in which the slow drift of some machines forgets
_NEARLY_FIXED = 0.05  # sigma of lengths
_LARGEST_DRAFT = 0.25  # seconds of a draft token over those of a step
_FULL = 90.0  # requests in decode that no service drawn here has on average
_MOST_PREFILL = 0.5  # of a plain server's time
_LONG_RUN_SECONDS = 7200.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Speculating engines behind one server, and what they were recorded as without drafts.

    ``kinds``: what the figures of services are grouped by. ``looks_every``: a running exporter looks at it so often, in
    seconds; 0: not at all.
    """

    what: str
    kinds: tuple[str, ...]
    plain: tuple[Server, ...]
    engines: tuple[Server, ...]
    looks_every: float = 0.0
    long_run_seconds: float = _LONG_RUN_SECONDS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """What is drawn: gains, draft tokens and the acceptance of each after accepted ones."""

    gains: tuple[float, float]
    ks: tuple[int, ...]
    acceptance: tuple[float, float]


USUAL = Drafts(gains=(0.7, 1.6), ks=(1, 2, 3, 5), acceptance=(0.3, 0.85))
FAST = Drafts(gains=(2.0, 3.0), ks=(4, 5, 7), acceptance=(0.8, 0.95))
FASTEST = dataclasses.replace(FAST, gains=(2.0, 4.0))


def services(seed: int, each: int) -> list[Service]:
    """Draw ``each`` services of every shape, arrivals and prompts; every second one stalls, a third drifts slowly."""
    found = []
    for shape in SHAPES:
        for arrivals in ARRIVALS:
            for prompts in PROMPTS:
                for number in range(each):
                    what = f"{shape}, {arrivals}, {prompts} prompts, {number}"
                    server, drift = drawn(f"{seed} {what}", shape, arrivals, prompts, USUAL)
                    if number % 2:
                        server, drift = dataclasses.replace(server, stalls=ROUGH), f"{drift} and stalls"
                    kinds = (shape, arrivals, f"{prompts} prompts", drift)
                    found.append(service(what, kinds, server))
    return found


def fast_services(seed: int) -> list[Service]:
    """Draw services that are 2 to 4 times as fast with drafts."""
    found = []
    for arrivals, drafts in {"closed": FASTEST, "open": FAST, "constant": FAST}.items():
        for shape in SHAPES:
            for prompts in PROMPTS:
                kind = f"fast, {arrivals}, {prompts} prompts"
                server, _ = drawn(f"{seed} {kind} {shape}", shape, arrivals, prompts, drafts)
                every = 15.0 if shape == "linear" else 0.0  # looks take longer than pairs
                found.append(service(f"{kind}, {shape}", (kind,), server, looks_every=every))
    return found


def service(what: str, kinds: tuple[str, ...], server: Server, *, looks_every: float = 0.0) -> Service:
    """Return the service of one engine that was recorded with the same traffic."""
    seconds = _LONG_RUN_SECONDS * (2.0 if server.traffic.burst_seconds else 1.0)
    return Service(
        what=what,
        kinds=kinds,
        plain=(server.plain,),
        engines=(server,),
        looks_every=looks_every,
        long_run_seconds=seconds,
    )


def drawn(seed: str, shape: str, arrivals: str, prompts: str, drafts: Drafts) -> tuple[Server, str]:
    """Draw until drafts can give the gain that was drawn first, and neither side is overloaded; also name its drift."""
    rng = random.Random(seed)
    gain = _log_uniform(rng, *drafts.gains)
    wander, slow, fixed = rng.uniform(*DRIFTS), rng.random() < 1.0 / 3.0, rng.random() < 0.5
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
            constant=arrivals == "constant",
            clients=round(load) if arrivals == "closed" else 0,
            burst_seconds=rng.uniform(20.0, 90.0) if arrivals == "bursty" else 0.0,
            prompt_tokens=_log_uniform(rng, *PROMPTS[prompts]),
            answer_tokens=_log_uniform(rng, 100.0, 400.0),
            acceptance=rng.uniform(*drafts.acceptance),
        )
        if traffic.constant and fixed:
            traffic = dataclasses.replace(traffic, prompt_sigma=_NEARLY_FIXED, answer_sigma=_NEARLY_FIXED)
        k = rng.choice(drafts.ks)
        found = _serving(Server(machine=machine, traffic=traffic, k=k), load, gain, rng.random())
        if found:
            found = dataclasses.replace(found, wander=wander, wander_seconds=SLOW_SECONDS if slow else 60.0)
            return found, f"{'slow' if slow else 'quick'} drift"


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
