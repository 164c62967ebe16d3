"""Facts about releases of vLLM, and which of them hold for a deployment. Pure but for reading files of this package.

A condition names fields of :class:`Deployment`, or keys of its ``speculative_config``; all tests of ``when`` must hold,
and none of ``unless``::

    since: 0.14.1
    when:
      method: [ngram, suffix]           # one of these; or one value
      num_speculative_tokens: {above: 5}
      speculative_config.method: {given: true}
      speculative_config.parallel_drafting: true

What is not known makes no test true, except ``given: false``. A fact without ``since`` also holds for a server whose
release is not known. ``found`` and ``action`` may name fields in braces, as in ``{method}``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import msgspec.yaml

from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.facts.speculativewords import ignored_keys
from specdec_exporter.predictor.versions import KnownPitfall, Release, parse_release, releases_in_words

# warn: requests suffer, answers are wrong, or speculation cannot pay. note: a figure means something else, or there is
# something to know before a change.
Level = Literal["warn", "note"]

RUNNING: Final = Path(__file__).with_name("running.yaml")
_Single = str | bool | int | float


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test of one field; all parts that are given must hold.

    ``has``: any of these is in a set of words. ``matches``: a regular expression that is found in text, in capitals or
    not. A key of ``speculative_config`` may have a value of any type; one of the wrong type makes no test true.
    """

    given: bool | None = None
    above: float | None = None
    has: tuple[str, ...] | None = None
    matches: str | None = None

    def holds(self, value: Any) -> bool:
        """Whether the test holds for the field's value."""
        if self.given is False or value is None:
            return value is None and self.given is False
        return (
            (self.above is None or (isinstance(value, int | float) and value > self.above))
            and (self.has is None or not value.isdisjoint(self.has))
            and (self.matches is None or re.search(self.matches, str(value), re.IGNORECASE) is not None)
        )


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
        return (
            self._concerns(deployment.release)
            and all(_holds(test, _value(deployment, field)) for field, test in self.when.items())
            and not any(_holds(test, _value(deployment, field)) for field, test in self.unless.items())
        )

    def _concerns(self, release: Release | None) -> bool:
        since, until = _release(self.since), _release(self.until)
        if release is None:
            return since is None
        return (since is None or release >= since) and (until is None or release <= until)

    def told(self, deployment: Deployment) -> KnownPitfall:
        """Return the fact in words about ``deployment``."""
        fields = msgspec.structs.asdict(deployment)
        return KnownPitfall(
            code=self.code,
            releases=self.releases,
            meaning=self.found.format_map(fields),
            action=self.action.format_map(fields),
            costly=self.level == "warn",
        )


@cache
def _release(version: str | None) -> Release | None:
    return None if version is None else parse_release(version)


def _value(deployment: Deployment, field: str) -> Any:
    name, _, key = field.partition(".")
    value = getattr(deployment, name)
    return value.get(key) if key else value


def _holds(test: _Expected, value: Any) -> bool:
    if isinstance(test, Check):
        return test.holds(value)
    return value in test if isinstance(test, tuple) else bool(value == test)


@cache
def load_facts(path: Path = RUNNING) -> tuple[Fact, ...]:
    """Return the facts in a file of ours. Loads PyYAML, so a scrape must not need them."""
    return msgspec.yaml.decode(path.read_bytes(), type=tuple[Fact, ...])


def pitfalls_of(deployment: Deployment) -> tuple[KnownPitfall, ...]:
    """Return what to say of a running predictor: what requests suffer from first, then what its figures mean."""
    found = [fact.told(deployment) for fact in load_facts() if fact.holds(deployment)]
    found += ignored_keys(deployment)
    return tuple(sorted(found, key=lambda pitfall: not pitfall.costly))
