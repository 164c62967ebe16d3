"""The report of ``analyze --responses``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rich.console import Console
from rich.text import Text

from specdec_exporter import bounds
from specdec_exporter.formatting import count, decimal, percent, plain, seconds
from specdec_exporter.inspection.requestgroups import UNKNOWN, ExactCurve, KindGroup, RequestGroup
from specdec_exporter.inspection.requests import RequestsAnalysis
from specdec_exporter.inspection.spread import FEWEST_PARTS
from specdec_exporter.terminal.console import bar, heading, indented, is_ascii_only
from specdec_exporter.terminal.figures import print_finding, spread_table
from specdec_exporter.terminal.sheet import Sheet, pairs, table

_CELLS = 30
_BESIDE_BARS = 26  # the range, the gaps, the indent, and a count of up to seven digits
_GROUPINGS = {
    "adapter": "By adapter or served name",
    "temperature": "By temperature",
    "prompt_length": "By prompt length, tokens",
    "structured": "By structured output",
}
_UNKNOWN_NOTE = (
    "unknown: save the request beside its response; a log with --enable-log-requests lines tells the temperature too."
)


def print_requests(
    console: Console, analysis: RequestsAnalysis, paths: Sequence[str], *, header: str | None = None
) -> None:
    """Print totals, the distribution over requests, exact conditional rates, kinds of requests, the least accepted.

    ``header``: the request header that the operator named.
    """
    for path in paths:
        console.print(Text(plain(path), style="bold"))
    console.print(Text(_reading(analysis)))
    group = analysis.all
    if not group.requests:
        indented(console, Text("Start vLLM (0.29.0 or later) with --per-request-spec-decode-metrics summary."))
        return
    partly = analysis.partly_verified
    heading(console, f"Requests: {group.requests:,}", pairs(_totals(group, partly=partly)))
    if group.drafted_requests and not partly:
        _print_distribution(console, group)
    if group.exact is not None and not partly:
        _print_exact(console, group, group.exact)
    _print_kinds(console, analysis, header)
    for finding in analysis.findings:
        print_finding(console, finding)
    if not partly:
        _print_least_accepted(console, analysis)


def _reading(analysis: RequestsAnalysis) -> str:
    words = [f"{analysis.all.requests:,} responses with a record of speculation"]
    if analysis.without_record:
        words.append(
            f"{analysis.without_record:,} without one (earlier chunks of a stream, a stream without include_usage, "
            "several choices, or a server that does not write records)"
        )
    if analysis.junk:
        words.append(f"{analysis.junk:,} lines that are no response (the first: {plain(analysis.junk_reason or '')})")
    if analysis.too_long:
        words.append(f"{analysis.too_long:,} lines longer than {bounds.LINE_BYTES // 1024} KiB, which were skipped")
    return "; ".join(words)


def _totals(group: RequestGroup, *, partly: bool) -> list[tuple[str, str]]:
    rows = [
        ("Drafted", f"{group.drafted_requests:,} of {group.requests:,} requests, {count(group.drafts)} drafts"),
        ("Draft tokens", f"{count(group.draft_tokens)}, accepted {count(group.accepted_tokens)}"),
        ("Mean length", f"{decimal(group.mean_acceptance_length)} tokens per draft, including the bonus token"),
    ]
    if group.mean_given_length is not None and group.mean_given_length != group.mean_acceptance_length:
        rows.append(("Given length", f"{decimal(group.mean_given_length)} without tokens past the end of an answer"))
    if partly:
        return rows
    rows[2:2] = [
        ("Over tokens", f"acceptance {percent(group.acceptance_ratio)}, as the predictor counts it"),
        ("Over requests", f"acceptance {percent(group.mean_request_ratio)} on average; each request counts once"),
    ]
    if group.mean_draft_length is not None:
        rows.append(("Draft length", f"{decimal(group.mean_draft_length)} tokens offered on average"))
    return rows


def _print_distribution(console: Console, group: RequestGroup) -> None:
    spread: Sheet | str = f"Percentiles need {FEWEST_PARTS} requests."
    if group.percentiles:
        spread = spread_table({"request": group.percentiles, "draft": group.percentiles_by_draft})
    parts, most = len(group.histogram), max(group.histogram)
    cells = max(1, min(_CELLS, console.width - _BESIDE_BARS))
    bars = [
        f"{bar(requests / most, cells, ascii_only=is_ascii_only(console))} {requests:,}" if requests else ""
        for requests in group.histogram
    ]
    rows = [(f"{part / parts:.0%} to {(part + 1) / parts:.0%}", cell) for part, cell in enumerate(bars)]
    heading(console, "Acceptance over requests", spread, pairs(rows))


def _print_exact(console: Console, group: RequestGroup, exact: ExactCurve) -> None:
    curves = zip(exact.offered, exact.conditional, group.per_position, strict=True)
    rows = [
        (str(position), count(offered), percent(conditional), percent(rate))
        for position, (offered, conditional, rate) in enumerate(curves)
    ]
    curve = table("position", "offered", "accepted", "of all drafts", rows=rows)
    note = "offered: drafts with a token at this position and all tokens before it accepted"
    if exact.requests < group.drafted_requests:
        note += (
            f"; from {exact.requests:,} of {group.drafted_requests:,} requests, because short drafts need "
            "--per-request-spec-decode-metrics detailed"
        )
    heading(console, "Exact conditional acceptance by position", curve, note)


def _print_kinds(console: Console, analysis: RequestsAnalysis, header: str | None) -> None:
    partly = analysis.partly_verified
    for by, title in {**_GROUPINGS, "header": f"By {plain(header or '')}"}.items():
        _print_groups(console, title, [kind for kind in analysis.groups if kind.by == by], partly=partly)
    if UNKNOWN in {kind.value for kind in analysis.groups if kind.by in _GROUPINGS}:
        indented(console, _UNKNOWN_NOTE)


def _print_groups(console: Console, title: str, groups: Sequence[KindGroup], *, partly: bool) -> None:
    """Print the groups of a grouping, if they say more than that nothing is known; ``partly``: without acceptance."""
    if all(kind.value == UNKNOWN for kind in groups):
        return
    columns: dict[str, Callable[[RequestGroup], str]] = {"requests": lambda group: count(group.requests)}
    if not partly:
        columns["rate"] = lambda group: percent(group.acceptance_ratio)
        columns |= {name.upper(): partial(_percentile, name) for name in ("p10", "p50", "p90")}
    columns["length"] = lambda group: decimal(group.mean_acceptance_length)
    if any(kind.group.time_per_output_token_seconds is not None for kind in groups):
        columns["time per token"] = lambda group: seconds(group.time_per_output_token_seconds)
    rows = [(kind.value, *(cell(kind.group) for cell in columns.values())) for kind in groups]
    heading(console, title, table("", *columns, rows=rows))


def _percentile(name: str, group: RequestGroup) -> str:
    return percent(group.percentiles.get(name))


def _print_least_accepted(console: Console, analysis: RequestsAnalysis) -> None:
    least, title = analysis.least_accepted_min_drafts, "Least accepted requests"
    if not analysis.least_accepted:
        note = f"None: no request has {least} drafts, and with fewer chance alone gives some nearly no acceptance."
        heading(console, title, note)
        return
    rows = [
        (request.request_id, percent(request.acceptance_ratio), count(request.drafts), request.model or "-")
        for request in analysis.least_accepted
    ]
    note = (
        f"Of the requests with at least {least} drafts: with fewer, chance alone gives some nearly no acceptance. "
        "Their texts are candidates for training the draft model."
    )
    heading(console, title, table("request", "rate", "drafts", "model", rows=rows), note)
