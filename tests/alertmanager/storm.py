"""A third of a fleet is down, or slower, within two minutes: what Prometheus has of it."""

from __future__ import annotations

from rules.scenario import STEADY, Phase, Series, pinned, service, slower

SERVICES = 50
ONSET, MENDED, MINUTES = 60, 100, 170


def labelled(number: int, replica: int = 0) -> dict[str, str]:
    host = {"pod": f"chat-{number:03}-{replica}", "instance": f"10.{replica}.1.{number}:10409"}
    return {"inference_service": f"chat-{number:03}", **host}


def down(number: int) -> list[Series]:
    """One service of two replicas. Two of three services in the fleet are well."""
    onset = ONSET + number % 3 if number < SERVICES else MINUTES
    up = [float(not onset <= minute < MENDED) for minute in range(MINUTES)]
    place = {"cluster": "eu-1", "namespace": "prod", "job": "predictors"}
    return [Series("specdec_up", {**place, **labelled(number, replica)}, up) for replica in (0, 1)]


def slow(number: int) -> list[Series]:
    """One service with a baseline file, that takes half as long again. A service that is well makes no alert."""
    onset = ONSET + number % 3
    usual = {"tpot": STEADY["tpot"]}
    phases = (
        Phase(minutes=onset),
        Phase(minutes=MENDED - onset, latency={"tpot": slower(STEADY["tpot"], 1.5)}),
        Phase(minutes=MINUTES - MENDED),
    )
    return service(*phases, families=usual, labels=labelled(number)) + pinned(MINUTES, usual, labels=labelled(number))


STORMS = {"SpecDecodeTargetDown": (3 * SERVICES, down), "SpecDecodeP99Regression": (SERVICES, slow)}


def storm(name: str) -> list[Series]:
    services, lives = STORMS[name]
    return [one for number in range(services) for one in lives(number)]
