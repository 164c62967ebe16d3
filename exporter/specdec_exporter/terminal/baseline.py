"""The contents of a baseline as tables: the text of ``baseline show``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.formatting import between, count, decimal, percent, plain, seconds
from specdec_exporter.predictor.engines.engine import VLLM
from specdec_exporter.speculation.acceptance import (
    acceptance_ratio,
    mean_acceptance_length,
    position_ratios,
    ratio,
    tokens_per_step,
)
from specdec_exporter.speculation.chance import Z
from specdec_exporter.speculation.load import Load, bin_of
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.steptime import StepTimes, step_times, total
from specdec_exporter.terminal.console import indented
from specdec_exporter.terminal.sheet import Sheet, pairs, table

_TITLES = {
    "time_to_first_token_seconds": "to first token",
    "time_per_output_token_seconds": "per output token",
    "request_latency_seconds": "end to end",
}
_QUANTILES = (0.5, 0.99)


def print_baseline(console: Console, baseline: Baseline, remarks: tuple[str, ...]) -> None:
    """Print everything in a baseline except its buckets."""
    whole = "interrupted after" if baseline.interrupted else "recorded over"
    span = f"{whole} {baseline.duration_seconds:,.0f} s until {baseline.recorded_at}"
    console.print(Text(f"{plain(baseline.name)}: {span}", style="bold"))
    indented(console, pairs(_facts(baseline)))
    indented(console, _latency(baseline))
    if baseline.intervals:
        indented(console, _by_load(baseline.intervals, partly=baseline.adaptive_verification))
    if not baseline.counts.draft_tokens and (times := step_times(baseline.intervals, load_policy())):
        indented(console, Text(f"a step without drafts takes {_in_words(times)}"))
    for remark in remarks:
        indented(console, Text(f"note: {remark}", style="yellow"))


def _facts(baseline: Baseline) -> Iterator[tuple[str, str]]:
    context, counts = baseline.context, baseline.counts
    for name in context.__struct_fields__:
        yield name.replace("_", " "), getattr(context, name) or "not given"
    yield "served model", baseline.model_name or "-"
    if baseline.engine is VLLM:
        yield "vLLM", baseline.vllm_version or "-"
    else:
        yield "inference engine", baseline.engine.name
    yield from _speculation(baseline)
    for title, amount in (
        ("requests", baseline.requests_finished),
        ("prompt tokens", counts.prompt_tokens),
        ("generated tokens", counts.generation_tokens),
    ):
        rate = None if amount is None else amount / baseline.duration_seconds
        yield title, count(amount) if rate is None else f"{count(amount)} ({decimal(rate)} per second)"
    prompts = [ratio(block.counts.prompt_tokens, block.counts.first_tokens) for block in baseline.blocks]
    yield "prompt length", _length(baseline.mean_prompt_tokens, prompts)
    cached = counts.cached_prompt_ratio
    yield "prefix cache", "not counted" if cached is None else f"held {percent(cached)} of the prompt tokens"
    if baseline.generation_length is not None:
        yield "answer length", _length(baseline.generation_length.mean, ())
    if baseline.blocks:
        number = len(baseline.blocks)
        yield "blocks of time", f"{number} of about {baseline.duration_seconds / number:,.0f} s"


def _length(mean: float | None, by_block: Sequence[float | None]) -> str:
    if mean is None:
        return "not recorded"
    known = [length for length in by_block if length is not None]
    spread = f", {min(known):,.0f} to {max(known):,.0f} by block of time" if len(known) > 1 else ""
    return f"{mean:,.0f} tokens on average{spread}"


def _speculation(baseline: Baseline) -> Iterator[tuple[str, str]]:
    counts, speculation = baseline.counts, "off or unknown"
    if counts.draft_tokens is not None:
        k = baseline.num_speculative_tokens
        speculation = f"{baseline.method or 'method unknown'}, k = {k or '?'}"
    yield "speculation", speculation
    if counts.draft_tokens:
        partly = baseline.adaptive_verification
        if not partly:
            rate = acceptance_ratio(counts.accepted_tokens, counts.draft_tokens)
            yield "acceptance", f"{percent(rate)} of {count(counts.draft_tokens)} draft tokens"
        length = mean_acceptance_length(counts.accepted_tokens, counts.drafts)
        yield "length", f"{decimal(length)} tokens per draft, including the bonus token"
        curve = position_ratios(counts.accepted_per_position, counts.drafts)
        yield "curve", " ".join(percent(rate) for rate in curve[: 1 if partly else None]) or "-"
    per_step = tokens_per_step(counts.generation_tokens, counts.first_tokens, counts.steps)
    yield "tokens per step", decimal(per_step)


def _latency(baseline: Baseline) -> Sheet:
    rows = [
        (
            _TITLES[sli],
            count(histogram.count),
            seconds(histogram.mean),
            *(between(*histogram.quantile(share, Z)) for share in _QUANTILES),
        )
        for sli, histogram in baseline.histograms()
    ]
    return table("latency", "requests", "mean", *(f"P{share * 100:.0f}" for share in _QUANTILES), rows=rows)


def _by_load(intervals: Sequence[Load], *, partly: bool) -> Sheet:
    """Return a row per bin of concurrency: what an engine did while so many requests were in decode.

    ``partly``: vLLM verified only part of each draft, so the acceptance is not known.
    """
    bins: dict[int, list[Load]] = {}
    for interval in intervals:
        if interval.ran:
            bins.setdefault(bin_of(interval.concurrency), []).append(interval)
    loads = [total(bins[bound]) for bound in sorted(bins)]
    rows = [
        (
            f"{load.concurrency:,.1f}",
            percent(load.seconds / sum(other.seconds for other in loads)),
            seconds(load.step_seconds / load.steps),
            decimal(tokens_per_step(load.counts.generation_tokens, load.counts.first_tokens, load.counts.steps)),
            percent(None if partly else acceptance_ratio(load.counts.accepted_tokens, load.counts.draft_tokens)),
        )
        for load in loads
    ]
    return table("in decode", "of the time", "step time", "tokens per step", "acceptance", rows=rows)


def _in_words(times: StepTimes) -> str:
    """Return what a step takes, by what it depends on."""
    line = times.curve.line
    if times.steady:
        load = f"at {times.loads[0]:.1f} requests in decode"
        return f"{line.alpha * 1000.0:.3g} ms {load}; the load was steady, so other loads are not known"
    parts = (
        (line.alpha, ""),
        (line.beta, " for each request in decode"),
        (line.gamma, " for each prompt token read in it"),
    )
    return " + ".join(f"{seconds * 1000.0:.3g} ms{per}" for seconds, per in parts if seconds)
