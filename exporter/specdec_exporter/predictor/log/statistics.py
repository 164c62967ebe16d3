"""The periodic statistics of vLLM -> their events. Pure. All functions raise :class:`message.UnreadableError`."""

from __future__ import annotations

import itertools
import math
import re
from typing import Final

from specdec_exporter.predictor.log.events import AGGREGATED, EngineStats, SpecDecoding
from specdec_exporter.predictor.log.fields import (
    COUNT,
    NUMBER,
    PERCENT,
    VALUE,
    Fields,
    half_unit,
    known_fields,
    number,
    ratio,
    read_fields,
    require,
    whole,
)
from specdec_exporter.predictor.log.message import Message, UnreadableError

# --- speculative decoding, V1 engine ----------------------------------------------------------------------------------

_SPEC_FIELDS: Final = known_fields(
    {
        "Mean acceptance length": NUMBER,
        "Accepted throughput": NUMBER + " tokens/s",
        "Drafted throughput": NUMBER + " tokens/s",
        "Accepted": COUNT + " tokens",
        "Drafted": COUNT + " tokens",
        # All releases print three decimals; with fewer, the line breaks off. Without drafts the rates are nan.
        "Per-position acceptance rate": r"([01]\.\d{3}(?:, [01]\.\d{3}){0,500}|[nN]a[nN](?:, [nN]a[nN]){0,500})",
        "Draft acceptance rate": PERCENT,
    },
    {"Avg Draft acceptance rate": "Draft acceptance rate"},  # so since 0.10.2
)

_Curve = tuple[float, ...]


def read_spec_decoding(message: Message) -> SpecDecoding:
    """Read the line of 0.8.3 and later."""
    fields = read_fields(message.text.partition(": ")[2], _SPEC_FIELDS)
    # Every wording has these. Since 0.10.2 the rate comes last, so it shows that the line is whole.
    require(fields, "Accepted", "Drafted", "Draft acceptance rate")
    with_throughput = "Accepted throughput" in fields or "Drafted throughput" in fields
    if "Mean acceptance length" in fields and not with_throughput:
        require(fields, "Per-position acceptance rate")  # comes last in 0.8.5-0.10.1
    accepted, drafted = _counts(fields, "Accepted", "Drafted", scale=100)
    curve = _curve(fields, drafted)
    length = number(fields, "Mean acceptance length")
    bonus_included = _bonus_included(length, curve, with_throughput=with_throughput)
    # The Rust frontend reads live counters twice, for the curve and for the counts, so these may differ.
    if curve is not None and length is not None and not (message.tag or "").endswith(".rs"):
        # At most the accepted tokens per draft, the sum over positions (three decimals each), plus 1 for the bonus
        # token. A release may leave the tokens behind a stop out of the length (vllm#56137).
        tolerance = half_unit(fields["Mean acceptance length"]) + 0.0005 * len(curve)
        if length > sum(curve) + (1 if bonus_included else 0) + tolerance:
            raise UnreadableError(
                f"a mean length of {length} contradicts per-position rates that sum to {sum(curve):.3f}"
            )
    return SpecDecoding(
        accepted_tokens=accepted,
        draft_tokens=drafted,
        acceptance_ratio=accepted / drafted if drafted else None,
        mean_acceptance_length=length,
        bonus_included=bonus_included,
        accepted_throughput=number(fields, "Accepted throughput"),
        drafted_throughput=number(fields, "Drafted throughput"),
        per_position=curve,
        cumulative=False,
        num_speculative_tokens=None if curve is None else len(curve),
        **message.place,
    )


def _curve(fields: Fields, drafted: int) -> _Curve | None:
    if (printed := fields.get("Per-position acceptance rate")) is None:
        return None
    curve = tuple(map(float, printed.split(", ")))
    if math.isnan(curve[0]):
        if drafted:
            raise UnreadableError(f"the per-position rates are nan for {drafted} draft tokens")
        return None  # its length is unknown as well: if it comes last, part of it would look whole
    # A position is accepted only if the one before it was, so these shares of all drafts never rise.
    if any(later > earlier for earlier, later in itertools.pairwise((1.0, *curve))):
        raise UnreadableError("the per-position rates rise")
    return curve


def _bonus_included(length: float | None, curve: _Curve | None, *, with_throughput: bool) -> bool | None:
    """Whether the printed length counts the bonus token. 0.8.5 does not, 0.9.0-0.10.1 do so in the same words."""
    if length is None:
        return None
    if with_throughput:
        return True
    if length < 1:
        return False
    if curve is None:
        return None
    return abs(length - 1 - sum(curve)) < abs(length - sum(curve))


def _counts(fields: Fields, accepted_name: str, drafted_name: str, *, scale: int) -> tuple[int, int]:
    """Return accepted and draft tokens. The printed rate must be their ratio times ``scale``, to its digits."""
    accepted, drafted, rate = int(fields[accepted_name]), int(fields[drafted_name]), fields["Draft acceptance rate"]
    printed = float(rate)
    if accepted > drafted:
        raise UnreadableError(f"{accepted} tokens were accepted, but only {drafted} drafted")
    if math.isnan(printed) != (drafted == 0):
        raise UnreadableError(f"a rate of {rate} contradicts {drafted} draft tokens")
    if drafted and abs(printed - scale * accepted / drafted) > half_unit(rate):
        raise UnreadableError(f"a rate of {rate} contradicts {accepted} accepted of {drafted} draft tokens")
    return accepted, drafted


# --- speculative decoding, V0 engine ----------------------------------------------------------------------------------

_V0_FIELDS: Final = known_fields(
    {
        "Draft acceptance rate": NUMBER,
        "System efficiency": NUMBER,
        "Number of speculative tokens": r"(\d{1,6})",
        "Number of accepted tokens": COUNT,
        "Number of draft tokens": COUNT,
        "Number of emitted tokens": COUNT,
    },
    {},
)


def read_speculative_v0(message: Message) -> SpecDecoding:
    """Read the line of the V0 engine, up to 0.9.2."""
    body = message.text.partition(": ")[2]
    fields = read_fields(body.removesuffix("."), _V0_FIELDS)
    require(fields, *_V0_FIELDS)
    if not body.endswith("."):
        raise UnreadableError("the full stop at the end is missing")
    accepted, drafted = _counts(fields, "Number of accepted tokens", "Number of draft tokens", scale=1)
    return SpecDecoding(
        accepted_tokens=accepted,
        draft_tokens=drafted,
        acceptance_ratio=accepted / drafted if drafted else None,
        cumulative=True,
        num_speculative_tokens=whole(fields, "Number of speculative tokens"),
        emitted_tokens=whole(fields, "Number of emitted tokens"),
        system_efficiency=number(fields, "System efficiency"),
        **message.place,
    )


# --- engine statistics ------------------------------------------------------------------------------------------------

_STATS_FIELDS: Final = known_fields(
    {
        "Avg prompt throughput": NUMBER + " tok(?:en)?s/s",
        "Avg generation throughput": NUMBER + " tok(?:en)?s/s",
        "Running": COUNT + "(?: reqs)?",
        "Waiting": COUNT + "(?: reqs)?",
        "Swapped": COUNT + " reqs",  # V0 engine
        "Pending": COUNT + " reqs",  # V0 engine: what V1 calls waiting
        "Deferred": COUNT + " reqs",  # since 0.20
        "KV fetch": f"({VALUE})",  # since 0.32: "3 waiting to start, 1 in progress, 0 completed waiting"
        "Preemptions": COUNT,
        "Corrupted": COUNT + " reqs",
        "KV cache usage": PERCENT,
        # For V0, "CPU" is the swap space, printed after the GPU's figure. For V1, the CPU may be the device itself.
        "CPU KV cache usage": PERCENT,
        "Prefix cache hit rate": PERCENT,  # optional since 0.11.1
        "External prefix cache hit rate": PERCENT,
        "MM cache hit rate": PERCENT,
    },
    {
        "GPU KV cache usage": "KV cache usage",
        # the Rust frontend's wording
        "Avg prompt tput": "Avg prompt throughput",
        "Avg generation tput": "Avg generation throughput",
        "Reqs Running": "Running",
        "CPU KV cache used": "CPU KV cache usage",
    },
)
_ENGINE: Final = re.compile(r"(?:Engine (?P<engine>\d{1,6}): |(?P<aggregated>\d{1,6} Engines Aggregated: ))?", re.ASCII)
_KV_CACHE: Final = re.compile(r"\w{1,20} KV cache (?:usage|used)", re.ASCII)


def _stats_name(name: str) -> str:
    """Since 0.30 the device's name precedes "KV cache"; earlier releases print "GPU"."""
    return "KV cache usage" if _KV_CACHE.fullmatch(name) is not None else name


def read_engine_stats(message: Message) -> EngineStats:
    """Read the line of the engine, in any of its wordings."""
    engine = _ENGINE.match(message.text)
    body = message.text[engine.end() if engine else 0 :]
    fields = read_fields(body.removesuffix("."), _STATS_FIELDS, rename=_stats_name)
    usage = "KV cache usage" if "KV cache usage" in fields else "CPU KV cache usage"
    require(fields, "Avg prompt throughput", "Avg generation throughput", "Running", usage)
    waiting = whole(fields, "Waiting")
    return EngineStats(
        engine=AGGREGATED if engine and engine["aggregated"] else engine and engine["engine"],
        prompt_throughput=number(fields, "Avg prompt throughput"),
        generation_throughput=number(fields, "Avg generation throughput"),
        running=whole(fields, "Running"),
        waiting=whole(fields, "Pending") if waiting is None else waiting,
        kv_cache_usage_ratio=ratio(fields, usage),
        prefix_cache_hit_ratio=ratio(fields, "Prefix cache hit rate"),
        **message.place,
    )
