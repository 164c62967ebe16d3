"""vLLM releases: how they are written and compared, the warnings in their logs, and the names of their methods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
import msgspec.yaml

Release = tuple[int, int, int]

_RELEASE: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", re.ASCII)


def parse_release(version: str) -> Release | None:
    """Return the release in ``"0.9.2"``, ``"v0.6.6.post1"`` or ``"0.32.0rc1.dev12+gabc"`` as three integers.

    ``None`` if the string does not begin with one (a bare commit, ``"dev"``). Development builds and post-releases
    count as the release in their name.
    """
    if (match := _RELEASE.match(version.strip())) is None:
        return None
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


def _dotted(release: Release) -> str:
    return ".".join(map(str, release))


def releases_in_words(since: Release | None, until: Release | None) -> str:
    """Return a range of releases in words: ``"0.8.3 to 0.8.5"``, ``"since 0.15.1"``, ``"up to 0.9.2"``.

    ``since`` and ``until`` are the first and the last release known to have a fact; ``None`` leaves that end open.
    """
    if since is not None and until is not None:
        return _dotted(since) if since == until else f"{_dotted(since)} to {_dotted(until)}"
    if since is not None:
        return f"since {_dotted(since)}"
    return "all releases" if until is None else f"up to {_dotted(until)}"


class Warned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A warning of vLLM about speculation or its statistics, from ``warnings.yaml``.

    ``level``: the lowest at which it is logged. ``costly``: requests suffer from what it says.
    """

    code: str
    pattern: re.Pattern[str]
    meaning: str
    action: str
    since: str | None = None
    level: Literal["WARNING", "INFO"] = "WARNING"
    costly: bool = False

    @property
    def releases(self) -> str:
        """The releases that log it, in words."""
        return releases_in_words(parse_release(self.since) if self.since else None, None)


def _known_warnings() -> dict[str, Warned]:
    content = Path(__file__).with_name("warnings.yaml").read_bytes()
    warnings = msgspec.yaml.decode(
        content, type=tuple[Warned, ...], dec_hook=lambda _, text: re.compile(text, re.ASCII)
    )
    return {warned.code: warned for warned in warnings}


WARNINGS: Final = _known_warnings()  # by code
JIT_COMPILATION: Final = "jit_compilation"


class WarningCount(msgspec.Struct, frozen=True, kw_only=True):
    """A known warning: how often the log has it, what it means, which releases log it, and what to do."""

    code: str
    count: int
    meaning: str
    releases: str = ""
    action: str = ""


def warning_counts(warnings: Mapping[str, int]) -> tuple[WarningCount, ...]:
    """Explain the warnings that were counted by code, in the order of the codes."""
    return tuple(
        WarningCount(
            code=code,
            count=count,
            meaning=WARNINGS[code].meaning,
            releases=WARNINGS[code].releases,
            action=WARNINGS[code].action,
        )
        for code, count in sorted(warnings.items())
    )


# "Draft models" of prompt look-up: vLLM takes them for the method ngram.
PROMPT_LOOKUP: Final = frozenset({"[ngram]", "ngram"})


def canonical_method(method: str) -> str:
    """Return the policy's name of a method that vLLM prints or accepts: ``"deepseek_mtp"`` -> ``"mtp"``.

    Each model's ``..._mtp`` became ``mtp``; the engine-init line prints the old names up to 0.10.x.
    """
    if method in ("[ngram]", "ngram_gpu"):  # the first is the "draft model" of prompt look-up up to 0.7.3
        return "ngram"
    return "mtp" if method.endswith("_mtp") else method


# Methods of --speculative-config that draft nothing: this one hands out the target's hidden states, for training. Its
# counters still show one draft of one token a step; on 0.32.0 none of them is accepted.
NOT_SPECULATIVE: Final = frozenset({"extract_hidden_states"})

# Methods of rejection sampling that change what acceptance or an answer means. All others give the target's own
# distribution: "standard", "block", and the older "strict" and "probabilistic".
SYNTHETIC: Final = "synthetic"  # since 0.19.0: accepts at random, at the rates that the operator wrote
LOSSY_REJECTION: Final = frozenset({"fly"})  # since 0.33.0: keeps some tokens that the target rejects


class KnownPitfall(msgspec.Struct, frozen=True, kw_only=True):
    """A known problem of some ``releases`` (in words), and what to do about it.

    ``costly``: requests suffer from it. Otherwise a figure is missing, wrong or means something else.
    """

    code: str
    releases: str
    meaning: str
    action: str
    costly: bool
