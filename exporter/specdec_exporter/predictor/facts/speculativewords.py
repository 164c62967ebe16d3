"""The keys, methods and flags of speculation that a release does not take, by ``speculative.yaml``. Pure but for that.

0.9.1 to 0.15.1 ignore a key that they do not know; all others refuse it. Before 0.9.1 any word is a method.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import msgspec.yaml

from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.versions import KnownPitfall, Release, parse_release, releases_in_words

_Span = tuple[str | None, str | None]  # the first and the last release

_FIRST: Final = (0, 8, 2)  # with --speculative-config
_NEWEST: Final = (0, 33, 0)  # whose source was read
_KEYS_IGNORED: Final = ((0, 9, 1), (0, 15, 1))
_METHODS_CHECKED: Final = (0, 9, 1)
_HYPHENS_TAKEN: Final = (0, 26, 0)  # "-" in a key is "_"


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: dict[str, _Span]
    methods: dict[str, _Span]
    flags: dict[str, _Span]


class Misfit(NamedTuple):
    """Something that was given and that the release does not take; ``refused``: it does not start with it."""

    said: str
    action: str
    refused: bool


def misfits(deployment: Deployment) -> Iterator[Misfit]:
    """Yield what the deployment's release does not take; of an unknown release, what none takes."""
    release = deployment.release
    yield from _flags(deployment.arguments, release)
    if release is None or release >= _FIRST:
        yield from _keys(deployment.speculative_config, release)
        yield from _method(deployment.speculative_config.get("method"), release)


def _flags(arguments: frozenset[str], release: Release | None) -> Iterator[Misfit]:
    """Only those of speculation are known, so another one says nothing."""
    spans = _words().flags
    for name in sorted(arguments & spans.keys()):
        if not _takes(spans[name], release):
            yield _misfit(f"The argument --{name.replace('_', '-')}", name, spans, release, refused=True)


def _keys(config: Mapping[str, object], release: Release | None) -> Iterator[Misfit]:
    spans = _words().keys
    ignored = release is not None and _KEYS_IGNORED[0] <= release <= _KEYS_IGNORED[1]
    for key in config:
        name = key.replace("-", "_") if release is None or release >= _HYPHENS_TAKEN else key
        if not _takes(spans.get(name), release):
            yield _misfit(f"The key {key} of --speculative-config", name, spans, release, refused=not ignored)


def _method(method: object, release: Release | None) -> Iterator[Misfit]:
    spans = _words().methods
    is_checked = release is None or release >= _METHODS_CHECKED
    if isinstance(method, str) and method and is_checked and not _takes(spans.get(method), release):
        yield _misfit(f"The method {method}", method, spans, release, refused=True)


def ignored_keys(deployment: Deployment) -> tuple[KnownPitfall, ...]:
    """Return the keys that a running server ignores."""
    if deployment.release is None:
        return ()
    releases = releases_in_words(*_KEYS_IGNORED)
    return tuple(
        KnownPitfall(code="unknown_key_ignored", releases=releases, meaning=said, action=action, costly=True)
        for said, action, refused in misfits(deployment)
        if not refused and deployment.release <= _KEYS_IGNORED[1]
    )


def _takes(span: _Span | None, release: Release | None) -> bool:
    """Whether a release takes the word; of an unknown one, whether any does. Later ones take what the newest takes."""
    if span is None or release is None:
        return span is not None
    first, last = (parse_release(end) if end else None for end in span)
    return (first is None or release >= first) and (last is None or release <= last)


def _misfit(subject: str, word: str, spans: dict[str, _Span], release: Release | None, *, refused: bool) -> Misfit:
    version = ".".join(map(str, release or _NEWEST))
    does = f"vLLM {version} refuses to start with it" if refused else f"vLLM {version} ignores it without a word"
    if release is not None and release > _NEWEST:
        does, refused = f"vLLM {version} may refuse it", False
    if word in spans:
        first, last = (parse_release(end) if end else None for end in spans[word])
        has_it = f"{subject} belongs to releases {releases_in_words(first, last)}"
        action = "Remove it, or run a release that takes it."
    else:
        has_it = f"{subject} is unknown up to vLLM {'.'.join(map(str, _NEWEST))}"
        action = "Correct or remove it."
    taken = [name for name, span in spans.items() if _takes(span, release) and name != word]
    likely = difflib.get_close_matches(word, taken, n=1)
    return Misfit(f"{has_it}: {does}.", f"Did you mean {likely[0]}? {action}" if likely else action, refused)


def unknown_arguments(arguments: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return the arguments that no release has, each with the one that was probably meant."""
    names = _argument_names()
    return [
        (name, next(iter(difflib.get_close_matches(name, names, n=1)), None))
        for name in sorted(arguments)
        if name.removeprefix("no_") not in names and not any(whole.startswith(name) for whole in names)
    ]


@cache
def _argument_names() -> frozenset[str]:
    content = Path(__file__).with_name("arguments.yaml").read_bytes()
    return frozenset(msgspec.yaml.decode(content, type=str).split()) | _words().flags.keys()


@cache
def _words() -> _Words:
    """Return the words. Loads PyYAML, so a scrape must not need them."""
    return msgspec.yaml.decode(Path(__file__).with_name("speculative.yaml").read_bytes(), type=_Words)
