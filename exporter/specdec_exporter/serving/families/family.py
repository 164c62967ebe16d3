"""What a family is: name, HELP text, labels, and where its value comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.policy import load_policy

ENGINE = ("inference_service", "model_name", "engine")
MODEL = ("inference_service", "model_name")
SERVICE = ("inference_service",)

S = TypeVar("S")
Labels = tuple[str, ...]
Value = float | Histogram | Mapping[Any, float] | Mapping[Any, Histogram] | None
"""A mapping has one entry per series, or histogram; its keys are the value of the family's own label, or a tuple of
several values. ``None`` and an empty mapping give no series."""


class Family(msgspec.Struct, Generic[S], frozen=True):
    """One family. ``name`` is what a counter's samples are called, with ``_total``.

    ``meaning``, ``source`` (vLLM's names) and ``absent`` (when there is no series) are Markdown; they may hold
    ``{window}`` and fields of ``{policy}``. ``labels`` come after those of its group.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    meaning: str
    value: Callable[[S], Value]
    source: str
    absent: str
    labels: Labels


class Group(msgspec.Struct, Generic[S], frozen=True):
    """Families about the same subjects, and so with the same labels. ``remark`` ends every HELP text."""

    labels: Labels
    families: tuple[Family[S], ...]
    remark: str = ""


def filled_in(text: str, window: str) -> str:
    """Return the text with the window and the policy's values in their places."""
    return text.format(window=window, policy=load_policy())


def help_text(group: Group[S], family: Family[S], window: str) -> str:
    """Return what ``/metrics`` says of the family."""
    remark = group.remark.replace("{source}", family.source)
    return filled_in(f"{family.meaning} {remark}".rstrip().replace("`", ""), window)


def counter(
    name: str, meaning: str, value: Callable[[S], Value], source: str = "", absent: str = "", *, labels: Labels = ()
) -> Family[S]:
    """Return a counter."""
    return Family(name, "counter", meaning, value, source, absent, labels)


def gauge(
    name: str, meaning: str, value: Callable[[S], Value], source: str = "", absent: str = "", *, labels: Labels = ()
) -> Family[S]:
    """Return a gauge."""
    return Family(name, "gauge", meaning, value, source, absent, labels)


def histogram(
    name: str, meaning: str, value: Callable[[S], Value], source: str = "", absent: str = "", *, labels: Labels = ()
) -> Family[S]:
    """Return a histogram."""
    return Family(name, "histogram", meaning, value, source, absent, labels)
