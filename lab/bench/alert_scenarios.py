"""The labelled traces: what happens to a service, and which alerts it should raise. Much of what happens is well.

Here is what chance decides. That every alert fires, and when, tests/rules shows with figures that are not drawn.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence

from bench.alert_replay import Samples
from bench.alert_traces import Latency, Minute, history, replica, scaled, wander

LOW_PAGE = "SpecDecodeAcceptanceLow critical"
LOW_TICKET = "SpecDecodeAcceptanceLow warning"
SLOW_TICKET = "SpecDecodeP99Regression warning"
SLOW_PAGE = "SpecDecodeP99Regression critical"
CURVE = (0.85, 0.72, 0.59)  # 0.72; the shape of all others
COLLAPSE, DIP, NGRAM, FEW_DRAFTS = "collapse to 0.03", "dip of 3 minutes", "ngram at 0.42", "5 drafts in 30 minutes"
SLOWER_BODY, SLOWER_TAIL, MUCH_SLOWER = "all 1.3x slower", "5 % 2.5x slower", "all 1.6x slower"
INCIDENT_MINUTES = 120
HISTORY_HOURS = 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The series of a service. Minutes count from the start of the trace.

    ``due``: by alert and severity, the minute from which it is wanted. ``quiet``: until this minute nothing is wrong,
    and every alert is false.
    """

    samples: Sequence[Samples]
    minutes: int
    quiet: int
    due: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """How one service is when it is well."""

    name: str
    rng: random.Random
    acceptance: float
    drafts: float  # per minute
    requests: float  # per minute
    latency: Mapping[str, Latency]

    @property
    def labels(self) -> dict[str, str]:
        """What its records carry."""
        return {"cluster": "eu-1", "namespace": "prod", "inference_service": self.name, "model_name": "llama"}

    def minute(self, noise: Noise, *, load: float = 1.0, acceptance: float | None = None, slow: float = 1.0) -> Minute:
        """A minute of it: ``load`` and ``slow`` are factors, noise comes on top."""
        wanted = self.acceptance if acceptance is None else acceptance
        factor = slow * next(noise.latency)
        return Minute(
            drafts=self.drafts * load,
            curve=scaled(CURVE, min(0.995, wanted * next(noise.acceptance))),
            requests=self.requests * load,
            latency={sli: latency.times(factor) for sli, latency in self.latency.items()},
        )

    def past(self, *, latency: float = 0.03) -> list[Samples]:
        """The hours before the trace, as the pack has recorded them. ``latency``: by how much they differ."""
        hours = Noise(self.rng, latency=latency)
        usual = self.latency["tpot"]
        return history(
            lambda: usual.times(next(hours.latency)),
            lambda: self.acceptance * next(hours.acceptance),
            self.rng,
            hours=HISTORY_HOURS,
            requests=round(60 * self.requests),
            labels=self.labels,
        )


class Noise:
    """What no two minutes have in common, and what some have: factors that wander around 1 and come back to it.

    ``acceptance`` multiplies the acceptance rate of the next minute, ``latency`` every latency in it.
    """

    def __init__(self, rng: random.Random, *, acceptance: float = 0.03, latency: float = 0.03) -> None:
        self.acceptance = wander(rng, acceptance, memory=0.95)
        self.latency = wander(rng, latency, memory=0.95)


def some_service(name: str, rng: random.Random, *, slis: Sequence[str] = ("tpot",)) -> Service:
    """A service like others: not the same speed, load or acceptance."""
    medians = {"tpot": (0.01, 0.05), "ttft": (0.05, 0.6), "e2e": (2.0, 15.0)}
    sigmas = {"tpot": 0.3, "ttft": 0.5, "e2e": 0.6}
    latency = {
        sli: Latency(medians[sli][0] * (medians[sli][1] / medians[sli][0]) ** rng.random(), sigmas[sli]) for sli in slis
    }
    return Service(name, rng, rng.uniform(0.66, 0.8), rng.uniform(300, 1200), rng.uniform(20, 50), latency)


# --- Nothing is wrong -------------------------------------------------------------------------------------------------


def _well(
    service: Service, minutes: Sequence[Minute], past: Sequence[Samples] = (), *, method: str = "eagle3"
) -> Trace:
    samples = replica(minutes, service.rng, labels=service.labels, method=method)
    return Trace(samples=[*samples, *past], minutes=len(minutes), quiet=len(minutes))


def healthy_days(name: str, rng: random.Random) -> Trace:
    """Two days of day and night: the load falls to a fifth, and everything is a tenth slower at noon."""
    service = some_service(name, rng, slis=("tpot", "ttft", "e2e"))
    noise = Noise(rng)
    minutes = []
    for minute in range(2 * 1440):
        day = (1 - math.cos(2 * math.pi * minute / 1440)) / 2
        minutes.append(service.minute(noise, load=0.2 + 0.8 * day, slow=1 + 0.1 * day))
    return _well(service, minutes)


def noisy(name: str, rng: random.Random) -> Trace:
    """Acceptance wanders by a twelfth, latency by a twentieth, for a quarter of an hour or so at a time."""
    service = some_service(name, rng)
    noise = Noise(rng, acceptance=0.08, latency=0.05)
    return _well(service, [service.minute(noise) for _ in range(360)], service.past(latency=0.05))


def few_drafts(name: str, rng: random.Random) -> Trace:
    """Five drafts in half an hour, most of them rejected."""
    service = dataclasses.replace(some_service(name, rng), drafts=5 / 30, requests=0.1, acceptance=0.1)
    noise = Noise(rng)
    return _well(service, [service.minute(noise) for _ in range(360)])


def dip(name: str, rng: random.Random) -> Trace:
    """Three minutes with hardly a token accepted."""
    service, noise = some_service(name, rng), Noise(rng)
    at = rng.randrange(60, 90)
    minutes = [service.minute(noise, acceptance=0.05 if at <= minute < at + 3 else None) for minute in range(180)]
    return _well(service, minutes, service.past())


def ngram(name: str, rng: random.Random) -> Trace:
    """0.42 is what n-gram lookup gives."""
    service = dataclasses.replace(some_service(name, rng), acceptance=0.42)
    noise = Noise(rng)
    return _well(service, [service.minute(noise) for _ in range(240)], service.past(), method="ngram")


# --- Something is wrong -----------------------------------------------------------------------------------------------


def _incident(service: Service, change: Callable[[Minute], Minute], due: Sequence[str]) -> Trace:
    """Well for an hour or more, then changed for good."""
    rng, noise = service.rng, Noise(service.rng)
    onset = rng.randrange(60, 90)
    minutes = [service.minute(noise) for _ in range(onset + INCIDENT_MINUTES)]
    minutes[onset:] = [change(minute) for minute in minutes[onset:]]
    samples = [*replica(minutes, rng, labels=service.labels), *service.past()]
    return Trace(samples=samples, minutes=len(minutes), quiet=onset, due=dict.fromkeys(due, onset))


def _slower(factor: float, **tail: float) -> Callable[[Minute], Minute]:
    def slow(minute: Minute) -> Minute:
        latency = {s: dataclasses.replace(each.times(factor), **tail) for s, each in minute.latency.items()}
        return dataclasses.replace(minute, latency=latency)

    return slow


def _accepting(acceptance: float, due: Sequence[str]) -> Callable[[str, random.Random], Trace]:
    def make(name: str, rng: random.Random) -> Trace:
        service = dataclasses.replace(some_service(name, rng), acceptance=0.72)
        noise = Noise(rng)

        def fall(minute: Minute) -> Minute:
            return dataclasses.replace(minute, curve=scaled(CURVE, min(0.999, acceptance * next(noise.acceptance))))

        return _incident(service, fall, due)

    return make


def slower_body(name: str, rng: random.Random) -> Trace:
    """Everything 1.3 times slower."""
    return _incident(some_service(name, rng), _slower(1.3), (SLOW_TICKET,))


def much_slower(name: str, rng: random.Random) -> Trace:
    """Everything 1.6 times slower."""
    return _incident(some_service(name, rng), _slower(1.6), (SLOW_PAGE, SLOW_TICKET))


def slower_tail(name: str, rng: random.Random) -> Trace:
    """A twentieth of the requests 2.5 times slower."""

    service = dataclasses.replace(some_service(name, rng), requests=40)
    return _incident(service, _slower(1.0, tail_share=0.05, tail_factor=2.5), (SLOW_TICKET,))


WELL: Mapping[str, Callable[[str, random.Random], Trace]] = {
    "healthy day and night": healthy_days,
    "noise": noisy,
    FEW_DRAFTS: few_drafts,
    DIP: dip,
    NGRAM: ngram,
}
INCIDENTS: Mapping[str, Callable[[str, random.Random], Trace]] = {
    COLLAPSE: _accepting(0.03, (LOW_PAGE, LOW_TICKET)),
    "collapse to 0.30": _accepting(0.30, (LOW_TICKET,)),
    "temperature shift, 0.72 to 0.56": _accepting(0.56, (LOW_TICKET,)),
    "fall to 0.44": _accepting(0.44, (LOW_TICKET,)),
    SLOWER_BODY: slower_body,
    MUCH_SLOWER: much_slower,
    SLOWER_TAIL: slower_tail,
}
