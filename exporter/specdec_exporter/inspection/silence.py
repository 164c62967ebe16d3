"""Verdicts on a log that does not even tell whether anything was drafted."""

from __future__ import annotations

from typing import Final

from specdec_exporter.speculation.verdict import Verdict

API_SERVERS: Final = Verdict(
    code="unknown",
    headline="Several API servers: vLLM switches its periodic stats lines off",
    reasons=(
        "with --api-server-count above 1 no stats line is logged (vLLM 0.10.2 and later)",
        "--data-parallel-size N runs N API servers unless told otherwise (0.15.1 and later)",
    ),
    action="Read /metrics, which stays complete: specdec-exporter check URL. For lines in the log start vLLM with "
    "--api-server-count 1.",
)


def lines_left_out(number: int) -> Verdict:
    """Return the verdict on a log whose only lines about drafts, ``number`` of them, do not count or cannot be read."""
    lines = (
        "1 line that looks like statistics does" if number == 1 else f"{number:,} lines that look like statistics do"
    )
    return Verdict(
        code="unknown",
        headline=f"Nothing is known of drafts: {lines} not count",
        reasons=("no logger of vLLM's is named there, or the line cannot be read; the first one is quoted",),
        action="If no text of a request gets into this log, count them with --predictor.log-trust=any.",
    )


EMPTY: Final = Verdict(
    code="unknown",
    headline="The log is empty",
    action="Give the log that the predictor writes, such as kubectl logs POD; or ask it: specdec-exporter check URL.",
)
NO_ENGINE_CONFIG: Final = Verdict(
    code="unknown",
    headline="Tokens were generated, but no spec-decode line was logged",
    reasons=(
        "speculation is off, or nothing was drafted; the engine's init line, which would tell, is not in this log",
    ),
    action="Read the log from the predictor's start, or ask it: specdec-exporter check URL.",
)
STATISTICS_OFF: Final = Verdict(
    code="unknown",
    headline="vLLM runs with --disable-log-stats: nobody can see how it speculates",
    reasons=("its arguments in this log have --disable-log-stats, which also stops the counters in /metrics",),
    action="Start vLLM without --disable-log-stats.",
)
NO_TRAFFIC: Final = "no traffic yet: idle intervals are logged at DEBUG level only"
NO_STATS_LINES: Final = Verdict(
    code="unknown",
    headline="Speculation is configured, but the log holds no stats line",
    reasons=(
        NO_TRAFFIC,
        "or --disable-log-stats, or a log level above INFO (VLLM_LOGGING_LEVEL)",
        "or several API servers (--api-server-count, --data-parallel-size), which switch the lines off",
    ),
    action="Ask the predictor: specdec-exporter check URL.",
)
NOTHING_KNOWN: Final = Verdict(
    code="unknown",
    headline="This log holds no line of vLLM's statistics",
    reasons=(
        "another container's or program's log",
        "or --disable-log-stats, a log level above INFO (VLLM_LOGGING_LEVEL), or VLLM_CONFIGURE_LOGGING=0",
        "or a diffusion model, whose lines count no acceptance",
        "or a collector put something unknown before each line: give the lines as vLLM wrote them",
    ),
    action="Check that this is the log of the predictor's own container, from its start; or ask the predictor: "
    "specdec-exporter check URL.",
)
