"""The known facts, and which of them hold for a deployment. Pure but for reading the files of this package.

A condition names fields of :class:`Deployment`; all tests of ``when`` must hold, and none of ``unless``::

    since: 0.14.1
    when:
      method: [ngram, suffix]           # one of these; or one value
      num_speculative_tokens: {above: 5}
      draft_tensor_parallel_size: {differs_from: tensor_parallel_size}
      speculative_keys: {known_in: {"-": [method, model], "0.16.0-": [parallel_drafting], "0.9.0-0.20.2": [tree]}}

What is not known makes no test true, except ``given: false``. A fact without ``since`` also holds for a server whose
release is not known. ``found`` and ``action`` may name fields in braces, as in ``{method}``, and ``{missing}``: the
words that ``known_in`` misses, each with the releases that have it.
"""

from __future__ import annotations

import pkgutil
import re
import string
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, Literal

import msgspec
import msgspec.yaml

from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.versions import KnownPitfall, Release, parse_release, releases_in_words

# One file each: arguments and methods that a release refuses, renamed or removed; what releases mended; what a method
# forces or needs; what it can be combined with; when speculation is the wrong lever; what a running server's figures
# mean.
Topic = Literal["arguments", "gates", "methods", "composition", "lever", "running"]
TOPICS: Final[tuple[Topic, ...]] = ("arguments", "gates", "methods", "composition", "lever", "running")
# fail: it does not start. warn: requests suffer, answers are wrong, or speculation cannot pay. note: a figure means
# something else, or there is something to know before a change.
Level = Literal["fail", "warn", "note"]

_Single = str | bool | int | float


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test of one field; all parts that are given must hold.

    ``has`` and ``lacks``: any of these is, or none of these is, in a set of words. ``matches``: a regular expression
    that is found in text, in capitals or not. ``differs_from``, ``no_multiple_of``, ``above_field``: the name of
    another field, which must be known. ``known_in``: words by the releases that have them; the test holds if the
    release lacks a word of the field, or if no release has it.
    """

    given: bool | None = None
    none_of: tuple[_Single, ...] | None = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    has: tuple[str, ...] | None = None
    lacks: tuple[str, ...] | None = None
    matches: str | None = None
    differs_from: str | None = None
    no_multiple_of: str | None = None
    above_field: str | None = None
    known_in: dict[str, tuple[str, ...]] | None = None

    def holds(self, value: Any, deployment: Deployment) -> bool:
        """Whether the test holds for ``value``, the field's value in ``deployment``."""
        if self.given is False or value is None:
            return value is None and self.given is False
        return all(self._parts(value, deployment))

    def _parts(self, value: Any, deployment: Deployment) -> Iterator[bool]:
        if self.none_of is not None:
            yield value not in self.none_of
        if self.at_least is not None:
            yield value >= self.at_least
        if self.above is not None:
            yield value > self.above
        if self.at_most is not None:
            yield value <= self.at_most
        if self.below is not None:
            yield value < self.below
        if self.has is not None:
            yield not value.isdisjoint(self.has)
        if self.lacks is not None:
            yield value.isdisjoint(self.lacks)
        if self.matches is not None:
            yield re.search(self.matches, value, re.IGNORECASE) is not None
        if self.differs_from is not None:
            yield (other := deployment.known(self.differs_from)) is not None and value != other
        if self.no_multiple_of is not None:
            yield bool(other := deployment.known(self.no_multiple_of)) and value % other != 0
        if self.above_field is not None:
            yield (other := deployment.known(self.above_field)) is not None and value > other
        if self.known_in is not None:
            yield bool(self.missing(value, deployment.release))

    def missing(self, value: Any, release: Release | None) -> list[str]:
        """Return the words of ``value`` that ``known_in`` misses, each with the releases that have it."""
        if self.known_in is None:
            return []
        spans = {word: _span(releases) for releases, words in self.known_in.items() for word in words}
        return [
            f"{word} ({releases_in_words(*span) if span else 'in no release'})"
            for word in sorted({value} if isinstance(value, str) else value or ())
            if (span := spans.get(word)) is None or not _within(span, release)
        ]


_Expected = _Single | tuple[_Single, ...] | Check
Condition = dict[str, _Expected]


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fact. ``since`` and ``until``: the first and the last release known to have it; ``None`` leaves the end open.

    ``sources``: ``owner/repository#number``, a file of a release, or a document. ``checked``: the releases whose own
    source was read for it; without any, ``unchecked`` says why.
    """

    code: str
    level: Level
    found: str
    action: str
    sources: tuple[str, ...]
    since: str | None = None
    until: str | None = None
    when: Condition = {}
    unless: Condition = {}
    checked: tuple[str, ...] = ()
    unchecked: str | None = None

    @property
    def releases(self) -> str:
        """The releases that have it, in words."""
        return releases_in_words(_release(self.since), _release(self.until))

    def holds(self, deployment: Deployment) -> bool:
        """Whether the deployment has it."""

        def true(field: str, test: _Expected) -> bool:
            return _holds(test, deployment.known(field), deployment)

        return (
            self._concerns(deployment.release)
            and all(true(field, test) for field, test in self.when.items())
            and not any(true(field, test) for field, test in self.unless.items())
        )

    def _concerns(self, release: Release | None) -> bool:
        span = _release(self.since), _release(self.until)
        return span[0] is None if release is None else _within(span, release)

    def told(self, deployment: Deployment) -> KnownPitfall:
        """Return the fact in words about ``deployment``."""
        return KnownPitfall(
            code=self.code,
            releases=self.releases,
            meaning=self._filled(self.found, deployment),
            action=self._filled(self.action, deployment),
            costly=self.level != "note",
        )

    def _filled(self, text: str, deployment: Deployment) -> str:
        missing = [
            word
            for field, test in self.when.items()
            if isinstance(test, Check)
            for word in test.missing(deployment.known(field), deployment.release)
        ]
        return _Words().vformat(text, (), {"of": deployment, "missing": ", ".join(missing)})


_Span = tuple[Release | None, Release | None]


@cache
def _span(releases: str) -> _Span:
    """Read ``"0.18.0-0.20.2"``, ``"0.18.0-"``, ``"-0.20.2"`` or ``"-"``."""
    since, _, until = releases.partition("-")
    return _release(since or None), _release(until or None)


def _within(span: _Span, release: Release | None) -> bool:
    """Whether the release lies within; one that is not known may."""
    since, until = span
    return release is None or ((since is None or release >= since) and (until is None or release <= until))


@cache
def _release(version: str | None) -> Release | None:
    return None if version is None else parse_release(version)


def _holds(test: _Expected, value: Any, deployment: Deployment) -> bool:
    if isinstance(test, Check):
        return test.holds(value, deployment)
    return value in test if isinstance(test, tuple) else bool(value == test)


class _Words(string.Formatter):
    """Replaces ``{field}`` by the deployment's value."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        return (kwargs["missing"] if field_name == "missing" else kwargs["of"].known(field_name)), field_name


@cache
def load_facts(topic: Topic) -> tuple[Fact, ...]:
    """Return the facts of one file of this package. Loads PyYAML, so a scrape must not need them."""
    content = pkgutil.get_data(__package__, f"{topic}.yaml")
    if content is None:
        raise FileNotFoundError(topic)
    return msgspec.yaml.decode(content, type=tuple[Fact, ...])


def facts_of(deployment: Deployment, topics: Iterable[Topic] = TOPICS) -> Iterator[Fact]:
    """Yield the facts that hold for the deployment, in the order of the files."""
    return (fact for topic in topics for fact in load_facts(topic) if fact.holds(deployment))


def pitfalls_of(deployment: Deployment) -> tuple[KnownPitfall, ...]:
    """Return what to say of a running predictor: what its figures mean, and what requests suffer from; these first.

    What a release refuses is left out once the server has generated tokens: it did start.
    """
    started = deployment.drafting is not None
    found = [
        fact.told(deployment)
        for topic in TOPICS
        for fact in load_facts(topic)
        if (topic == "running" or fact.level == "warn" or (fact.level == "fail" and not started))
        and fact.holds(deployment)
    ]
    return tuple(sorted(found, key=lambda pitfall: not pitfall.costly))
