"""The contents of a baseline as tables, and the progress of a recording."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import reduce
from operator import add
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.formatting import between, count, decimal, percent, plain, seconds
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
from specdec_exporter.speculation.steptime import Line, step_times
from specdec_exporter.terminal.console import console_for

_TITLES = {
    "time_to_first_token_seconds": "to first token",
    "time_per_output_token_seconds": "per output token",
    "request_latency_seconds": "end to end",
}
_QUANTILES = (0.5, 0.99)
_TICK_SECONDS = 0.25


def print_baseline(console: Console, baseline: Baseline, remarks: tuple[str, ...]) -> None:
    """Print everything in a baseline except its buckets."""
    console.print(Text(f"{plain(baseline.name)}: {_span(baseline)}", style="bold"))
    console.print(_facts(baseline))
    console.print(_latency(baseline))
    if baseline.intervals:
        console.print(_by_load(baseline.intervals, partly=baseline.adaptive_verification))
    if not baseline.counts.draft_tokens and (found := step_times(baseline.intervals, load_policy())):
        console.print(Text(f"  a step without drafts takes {_in_words(found.line)}"))
    for remark in remarks:
        console.print(Text(f"  note: {remark}", style="yellow"))


def _span(baseline: Baseline) -> str:
    whole = "interrupted after" if baseline.interrupted else "recorded over"
    return f"{whole} {baseline.duration_seconds:,.0f} s until {baseline.recorded_at}"


def _facts(baseline: Baseline) -> Table:
    table = Table.grid(padding=(0, 2))
    context, counts = baseline.context, baseline.counts
    for name in context.__struct_fields__:
        value = getattr(context, name)
        table.add_row(f"  {name.replace('_', ' ')}", plain(value) if value else "not given")
    table.add_row("  served model", plain(baseline.model_name or "-"))
    table.add_row("  vLLM", plain(baseline.vllm_version or "-"))
    for row in _speculation(baseline):
        table.add_row(*row)
    for title, total in (
        ("requests", baseline.requests_finished),
        ("prompt tokens", counts.prompt_tokens),
        ("generated tokens", counts.generation_tokens),
    ):
        rate = None if total is None else total / baseline.duration_seconds
        table.add_row(f"  {title}", count(total) if rate is None else f"{count(total)} ({decimal(rate)} per second)")
    prompts = [ratio(block.counts.prompt_tokens, block.counts.first_tokens) for block in baseline.blocks]
    table.add_row("  prompt length", _length(baseline.mean_prompt_tokens, prompts))
    if baseline.generation_length is not None:
        table.add_row("  answer length", _length(baseline.generation_length.mean, ()))
    if baseline.blocks:
        number = len(baseline.blocks)
        table.add_row("  blocks of time", f"{number} of about {baseline.duration_seconds / number:,.0f} s")
    return table


def _length(mean: float | None, by_block: Sequence[float | None]) -> str:
    if mean is None:
        return "not recorded"
    known = [each for each in by_block if each is not None]
    spread = f", {min(known):,.0f} to {max(known):,.0f} by block of time" if len(known) > 1 else ""
    return f"{mean:,.0f} tokens on average{spread}"


def _speculation(baseline: Baseline) -> Iterator[tuple[str, str]]:
    counts, speculation = baseline.counts, "off or unknown"
    if counts.draft_tokens is not None:
        k = baseline.num_speculative_tokens
        speculation = f"{plain(baseline.method or 'method unknown')}, k = {k or '?'}"
    yield "  speculation", speculation
    if counts.draft_tokens:
        partly = baseline.adaptive_verification
        if not partly:
            rate = acceptance_ratio(counts.accepted_tokens, counts.draft_tokens)
            yield "  acceptance", f"{percent(rate)} of {count(counts.draft_tokens)} draft tokens"
        length = mean_acceptance_length(counts.accepted_tokens, counts.drafts)
        yield "  length", f"{decimal(length)} tokens per draft, including the bonus token"
        curve = position_ratios(counts.accepted_per_position, counts.drafts)
        yield "  curve", " ".join(percent(rate) for rate in curve[: 1 if partly else None]) or "-"
    per_step = tokens_per_step(counts.generation_tokens, counts.first_tokens, counts.steps)
    yield "  tokens per step", decimal(per_step)


def _latency(baseline: Baseline) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("  latency", "requests", "mean", *(f"P{share * 100:.0f}" for share in _QUANTILES)):
        table.add_column(heading, justify="left" if "latency" in heading else "right", no_wrap=True)
    for sli, histogram in baseline.histograms():
        mean = seconds(histogram.mean)
        quantiles = (between(*histogram.quantile(share, Z)) for share in _QUANTILES)
        table.add_row(f"  {_TITLES[sli]}", count(histogram.count), mean, *quantiles)
    return table


def _by_load(intervals: Sequence[Load], *, partly: bool) -> Table:
    """Return a row per bin of concurrency: what an engine did while so many requests were in decode.

    ``partly``: vLLM verified only part of each draft, so the acceptance is not known.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("  in decode", "of the time", "step time", "tokens per step", "acceptance"):
        table.add_column(heading, justify="left" if "decode" in heading else "right", no_wrap=True)
    bins: dict[int, list[Load]] = {}
    for interval in intervals:
        if interval.ran:
            bins.setdefault(bin_of(interval.concurrency), []).append(interval)
    loads = [reduce(add, bins[bound]) for bound in sorted(bins)]
    for load in loads:
        counts = load.counts
        table.add_row(
            f"  {load.concurrency:,.1f}",
            percent(load.seconds / sum(each.seconds for each in loads)),
            seconds(load.step_seconds / load.steps),
            decimal(tokens_per_step(counts.generation_tokens, counts.first_tokens, counts.steps)),
            percent(None if partly else acceptance_ratio(counts.accepted_tokens, counts.draft_tokens)),
        )
    return table


def _in_words(line: Line) -> str:
    """Return what a step takes, by what it depends on."""
    parts = (
        (line.alpha, ""),
        (line.beta, " for each request in decode"),
        (line.gamma, " for each prompt token read in it"),
    )
    return " + ".join(f"{seconds * 1000.0:.3g} ms{per}" for seconds, per in parts if seconds)


@asynccontextmanager
async def time_progress(stream: TextIO, text: str, seconds: float) -> AsyncIterator[None]:
    """Print ``text`` and, on a terminal, show how much of the time has passed."""
    stream.write(f"{text}\n")
    stream.flush()
    if not stream.isatty():
        yield
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn  # noqa: PLC0415  only terminals need it

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console_for(stream), transient=True) as progress:
        task = progress.add_task("", total=seconds)
        started = time.monotonic()

        async def tick() -> None:
            while True:
                progress.update(task, completed=time.monotonic() - started)
                await asyncio.sleep(_TICK_SECONDS)

        ticking = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
