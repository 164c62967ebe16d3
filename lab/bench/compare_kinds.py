"""Servers that were chosen, not drawn: known gains, one setting twice, and what once misled ``compare``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from bench.compare_machine import Machine, Server
from bench.compare_services import ROUGH, SLOW_SECONDS, Service, service
from bench.compare_traffic import Traffic
from bench.compare_trials import Case

# Reading short prompts and verifying two draft tokens cost nothing where memory bounds a step, so what requests accept
# is the gain. It is a bit more than the mean's, because acceptance varies.
MEMORY_BOUND = Machine(base=0.020, request=0.0004, token=0.00005, sharpness=math.inf)
ACCEPTS = {1.1: 0.086, 1.3: 0.225}
_LINE = Machine(base=0.020, token=0.0001)
_DRIFT = 0.06
# Faster by 17 % with three draft tokens than with one; with seven, four times as slow as without.
OVERLOADS_WITH_MANY = Server(
    traffic=Traffic(per_second=4.2, prompt_tokens=200, answer_tokens=150, acceptance=0.6),
    machine=Machine(base=0.020, token=0.00033, sharpness=math.inf, draft=0.0008),
    wander=_DRIFT,
)
MANY = (1, 3, 7)


def chosen_services() -> Iterator[Service]:
    """Traffic and machines on which ``compare`` or the verdict failed."""
    fixed = Traffic(
        per_second=3.0, constant=True, prompt_tokens=400, answer_tokens=200, prompt_sigma=0.05, answer_sigma=0.05
    )
    yield _one("constant, fixed lengths", fixed, _drafting(_LINE, 0.0019))
    yield _one("constant, fixed lengths, slow drift", fixed, _drafting(_LINE, 0.0019), wander_seconds=SLOW_SECONDS)
    prompts = Traffic(per_second=3.0, prompt_tokens=1500, answer_tokens=150, acceptance=0.5)
    yield from _cache("cache: cold, then 80 % hits, a loss", dataclasses.replace(prompts, cached=0.8), 0.0088)
    yield from _cache(
        "cache: 80 % hits, then cold, a gain", dataclasses.replace(prompts, per_second=2.5, acceptance=0.6), 0.0043
    )
    yield _engines()
    even = Traffic(clients=16, prompt_tokens=200, prompt_sigma=0.1, answer_tokens=250, acceptance=0.93)
    yield _one("fast, 16 clients, even prompts", even, _drafting(_LINE, 0.0005), k=5)
    light = dataclasses.replace(fixed, per_second=0.5, acceptance=0.93)
    yield _one("fast, constant, light load", light, _drafting(_LINE, 0.0005), k=5)
    heavy = Traffic(per_second=1.0, prompt_tokens=2500, answer_tokens=200, acceptance=0.35)
    machine = Machine(base=0.015, token=0.00016, draft=0.004, draft_request=0.0016)
    yield _one("overload by a loss", heavy, machine)
    hardly = Traffic(per_second=4.0, prompt_tokens=400, answer_tokens=150, acceptance=0.5)
    yield _one("hardly a loss", hardly, Machine(base=0.015, draft=0.0047), k=2, every=60.0)


def _one(
    what: str, traffic: Traffic, machine: Machine, *, k: int = 3, wander_seconds: float = 60.0, every: float = 15.0
) -> Service:
    server = Server(traffic=traffic, machine=machine, k=k, wander=_DRIFT, wander_seconds=wander_seconds)
    return service(what, (what,), server, looks_every=every)


def _cache(what: str, traffic: Traffic, draft: float) -> Iterator[Service]:
    """The prefix cache holds as much of the prompts as told now; it held nothing, or 80 %, when it was recorded."""
    found = _one(what, traffic, _drafting(_LINE, draft))
    then = dataclasses.replace(traffic, cached=0.0 if traffic.cached else 0.8)
    yield dataclasses.replace(found, plain=tuple(dataclasses.replace(each, traffic=then) for each in found.plain))


def _engines() -> Service:
    """Two engines behind one server: the busy one loses, the other one gains."""
    busy = Traffic(per_second=5.0, prompt_tokens=300, answer_tokens=150, acceptance=0.55)
    machine = Machine(base=0.015, token=0.00016, draft=0.001, draft_request=0.000133)
    found = _one("two uneven engines", busy, machine)
    (one,) = found.engines
    other = dataclasses.replace(one, traffic=dataclasses.replace(busy, per_second=1.5))
    return dataclasses.replace(found, engines=(one, other), plain=(one.plain, other.plain))


def _drafting(machine: Machine, draft: float) -> Machine:
    return dataclasses.replace(machine, draft=draft)


def all_cases() -> Iterator[Case]:
    """One setting twice, known gains, and sides that did not get the same requests."""
    clients = _at(4, clients=32)
    calm = {
        "2/s": _at(2),
        "6/s": _at(6),
        "32 clients": clients,
        "4/s, drafts": _gaining(_at(4), 1.3),
        "90 requests": _at(0.15),
    }
    for what, side in calm.items():
        yield _pairs(f"twice: {what}", side, side, 50)
    for side, what in ((_rough(_at(4)), "4/s"), (_gaining(_rough(_at(4)), 1.3), "4/s, drafts")):
        yield _pairs(f"twice, rough: {what}", side, side, 60)
    for gain in ACCEPTS:
        yield _pairs(f"{gain}x: 4/s", _at(4), _gaining(_at(4), gain), 50)
        yield _pairs(f"{gain}x: 32 clients", clients, _gaining(clients, gain), 50)
    drifting = dataclasses.replace(_bursty(_at(4)), wander=0.03)
    yield _pairs("1.1x, bursts: 4/s", drifting, _gaining(drifting, 1.1), 80)
    yield _pairs("1.1x, rough: 4/s", _rough(_at(4)), _gaining(_rough(_at(4)), 1.1), 80)
    yield _pairs("300 requests, 1.1x: 0.5/s", _at(0.5), _gaining(_at(0.5), 1.1), 60)
    yield _pairs("90 requests, 1.3x: 0.15/s", _at(0.15), _gaining(_at(0.15), 1.3), 50)
    for what, side in (("calm", _at(4)), ("bursts", _bursty(_at(4))), ("rough", _rough(_at(4)))):
        yield _pairs(f"paired, twice: {what}", side, side, 60, paired=True)
        yield _pairs(f"paired, 1.1x: {what}", side, _gaining(side, 1.1), 40, paired=True)
    yield _pairs("unlike: 4/s against 5/s", _at(4), _at(5), 40)
    yield _pairs("unlike: 5/s against 4/s", _at(5), _at(4), 40)
    yield _pairs("unlike: 2/s against 6/s, 1.3x", _at(2), _gaining(_at(6), 1.3), 40)
    yield _pairs("unlike lengths: prompts 25 % longer", _at(4), _at(4, prompts=187.5), 40)
    yield _pairs("unlike lengths: answers 17 % longer", _at(4), _at(4, answers=117.0), 40)


def _pairs(what: str, baseline: Server, candidate: Server, trials: int, *, paired: bool = False) -> Case:
    return Case(what=what, baseline=(baseline,), candidate=(candidate,), trials=trials, paired=paired)


def _at(rate: float, *, prompts: float = 150.0, answers: float = 100.0, clients: int = 0) -> Server:
    traffic = Traffic(per_second=rate, prompt_tokens=prompts, answer_tokens=answers, clients=clients)
    return Server(traffic=traffic, machine=MEMORY_BOUND)


def _bursty(server: Server) -> Server:
    return dataclasses.replace(server, traffic=dataclasses.replace(server.traffic, burst_seconds=45.0))


def _rough(server: Server) -> Server:
    """Bursts, noise of 8 %, and stalls."""
    return dataclasses.replace(_bursty(server), wander=0.08, stalls=ROUGH)


def _gaining(server: Server, gain: float) -> Server:
    return dataclasses.replace(server, k=2, traffic=dataclasses.replace(server.traffic, acceptance=ACCEPTS[gain]))
