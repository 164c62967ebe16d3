"""What a recording's request parameters say: workload, temperature, runs per prompt. Pure.

They are free text (``chat, temperature 0, 16 at once``), so only plain words are read, and nothing is guessed.
"""

from __future__ import annotations

import re
from typing import Final

from specdec_exporter.baseline.file import Baseline

_NUMBER: Final = r"\d{1,4}(?:\.\d{1,6})?"
_TEMPERATURE: Final = re.compile(
    rf"\btemp(?:erature)?s?\s*(?:[=:]\s*|of\s+)?({_NUMBER}(?:\s*(?:-|\.\.|to|and|or|/)\s*{_NUMBER})*)(?![\w.]*\w)"
)
_RUNS: Final = re.compile(r"\b(\d{1,6})\s*(?:x|runs?|times|repeats|repetitions)\b(?:\s+(?:per|each|of each)\b)?")


def workload_of(recording: Baseline) -> str | None:
    """Return the request parameters, apart from white space and case; they tell workloads apart."""
    text = recording.context.request_parameters
    return None if text is None else " ".join(text.casefold().split())


def without_temperature(workload: str | None) -> str | None:
    """Return what :func:`workload_of` returns, without the temperature."""
    if workload is None:
        return None
    parts = (" ".join(_TEMPERATURE.sub(" ", part).split()) for part in workload.split(","))
    return ", ".join(part for part in parts if part)


def temperatures_of(workload: str | None) -> tuple[float, ...]:
    """Return the temperatures that the request parameters name, ascending; empty if they name none."""
    found = {float(number) for text in _TEMPERATURE.findall(workload or "") for number in re.findall(_NUMBER, text)}
    return tuple(sorted(found))


def temperature_of(workload: str | None) -> float | None:
    """Return the temperature of all requests; ``None`` if none or several are named."""
    found = temperatures_of(workload)
    return found[0] if len(found) == 1 else None


def runs_per_prompt(workload: str | None) -> int | None:
    """Return how often each prompt ran, where the request parameters say so."""
    found = _RUNS.search(workload or "")
    return int(found[1]) if found else None
