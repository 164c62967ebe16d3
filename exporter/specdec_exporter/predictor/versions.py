"""vLLM releases: how they are written and compared, the warnings in their logs, and the names of their methods.

``since`` and ``until`` are the first and the last release known to have the fact; ``None`` leaves that end open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

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
    """Return a range of releases in words: ``"0.8.3 to 0.8.5"``, ``"since 0.15.1"``, ``"up to 0.9.2"``."""
    if since is not None and until is not None:
        return _dotted(since) if since == until else f"{_dotted(since)} to {_dotted(until)}"
    if since is not None:
        return f"since {_dotted(since)}"
    return "all releases" if until is None else f"up to {_dotted(until)}"


class Warned(msgspec.Struct, frozen=True):
    """A warning of vLLM about speculation or its statistics. ``pattern`` matches the message's start."""

    code: str
    pattern: re.Pattern[str]
    meaning: str
    action: str
    since: Release | None = None
    until: Release | None = None


def _warned(
    code: str, pattern: str, meaning: str, action: str, *, since: Release | None = None, until: Release | None = None
) -> Warned:
    return Warned(code, re.compile(pattern, re.ASCII), meaning, action, since, until)


# The codes are label values of specdec_predictor_warnings_total, so they stay as they are.
WARNINGS: Final[dict[str, Warned]] = {
    warned.code: warned
    for warned in (
        _warned(
            "async_scheduling_disabled",
            # 0.11.1-0.13.0 "is not yet supported", 0.14.1-0.32.0 "not supported with ngram-based", 0.33.0 "is disabled"
            r"Async scheduling (?:(?:is )?not (?:yet )?supported with .{0,100}speculative decoding"
            r"|is disabled because the V1 model runner does not support it with )",
            "Scheduling no longer overlaps with execution because the speculative method does not allow it, "
            "which costs some throughput.",
            "Compare throughput with a run without speculation; on a GPU try ngram_gpu instead of ngram.",
            since=(0, 11, 1),
        ),
        _warned(
            "sampling_params_unsupported",
            # logged at every start with speculation; no sign of a fault by itself
            r"min_p(?:,| and) logit_bias(?:,? and min_tokens)? parameters won't work with speculative decoding",
            "Requests with min_p or logit_bias are refused (HTTP 400 since 0.14.0); before, vLLM ignored them.",
            "Check whether clients send min_p or logit_bias; send such requests to a predictor without speculation.",
            since=(0, 11, 1),
        ),
        _warned(
            "mtp_layer_reused",
            r"Enabling num_speculative_tokens > 1 will run",
            "The model has fewer MTP layers than speculative tokens, so one layer drafts several positions and the "
            "later ones are accepted less often.",
            "Lower num_speculative_tokens to the model's number of MTP layers (its n_predict), unless later positions "
            "of the curve still pay.",
            since=(0, 11, 0),
        ),
        _warned(
            "scheduled_tokens_limited",
            r"max_num_scheduled_tokens is set to \d+ based on the speculative decoding settings",
            "Room for draft tokens was taken out of the batch's token budget, which may slow down prefill.",
            "Raise --max-num-batched-tokens if time to first token suffers.",
            since=(0, 20, 2),
        ),
        _warned(
            "suffix_tokens_defaulted",
            r"Defaulted num_speculative_tokens to \S+ for suffix decoding",
            "No number of speculative tokens was configured for suffix decoding, so vLLM chose one.",
            "Set num_speculative_tokens, so that k does not depend on the release.",
            since=(0, 11, 1),
        ),
        _warned(
            "prefix_block_kept",
            r"EAGLE trailing prefix-cache block dropping is disabled",
            "The last cached block of a prompt is reused without the drafter's state, which may lower acceptance.",
            "Compare acceptance of long shared prompts with that of others; it is no reason to act by itself.",
            since=(0, 30, 0),
        ),
        _warned(
            "custom_proposer",
            r"Using a custom class-based proposer backend",
            "The drafter is the operator's own class, behind an interface that vLLM may change at any release.",
            "Test the class against each new release before it serves.",
            since=(0, 32, 0),
        ),
        _warned(
            "method_renamed",
            r"method [`']?\w+[`']? is deprecated and replaced with \w+",
            "The configured method is an old name of another one, which vLLM uses instead.",
            "Write the new name in --speculative-config, and in label selectors: the old one may be refused later.",
        ),
        _warned(
            "cpu_without_intel_openmp",
            r"Speculative decoding on CPU without Intel OpenMP",
            "Speculation on this CPU runs with a slow threading library, so its latency says little about the method.",
            "Preload Intel OpenMP (libiomp5) before measuring.",
            since=(0, 32, 0),
        ),
        _warned(
            "stats_logging_disabled",
            r"AsyncLLM created with api_server_count more than 1; disabling stats logging",
            "Several API servers run, so vLLM logs no statistics at all; its metrics endpoint stays complete.",
            "Read its metrics instead of its log, or start vLLM with --api-server-count 1.",
            since=(0, 10, 2),
        ),
        _warned(
            "jit_compilation",
            r"[A-Za-z]\w{0,20}(?: \w[\w./-]{0,20}){0,5} during inference: ",
            "A kernel was compiled while requests were waiting, which shows as a latency spike, mostly after a start.",
            "Send warm-up requests before traffic; if it goes on, look which shapes of requests are new.",
        ),
    )
}

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
            releases=releases_in_words(WARNINGS[code].since, WARNINGS[code].until),
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
