"""Plays scenarios: sends a phase's requests to a server, and waits for what vLLM logs about them."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Final

from support.processes import wait_until
from vllm.language import Language
from vllm.predict import Counts, continuation
from vllm.scenarios import Phase, Scenario
from vllm.server import LOG_STATS_INTERVAL_SECONDS, Server, ServerError

_LOG_SECONDS: Final = 60.0
_SPEC_LINE: Final = re.compile(
    r"SpecDecoding metrics: .*Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<drafted>\d+) tokens"
)
_BUSY_STATS_LINE: Final = re.compile(r"Avg generation throughput: (?!0\.0 )")


@dataclasses.dataclass(frozen=True, slots=True)
class Logged:
    """What vLLM's periodic spec-decode lines add up to."""

    windows: int
    draft_tokens: int
    accepted_tokens: int


def send(server: Server, phase: Phase, language: Language) -> None:
    """Send a phase's requests; ``ServerError`` unless vLLM's answers are those that the prediction relies on."""
    outputs = server.complete_all(phase.prompts, max_tokens=phase.max_tokens)
    for prompt, output in zip(phase.prompts, outputs, strict=True):
        if output != (truth := continuation(language, prompt[-1], length=phase.max_tokens)):
            msg = f"{phase.name}: after {prompt[-1]} the model said {output}, not {truth}"
            raise ServerError(msg)


def await_log(scenario: Scenario, server: Server, expected: Counts) -> Logged:
    """Wait until vLLM has logged its statistics of ``expected``, everything since the log began."""
    if scenario.api_servers > 1:
        time.sleep(2 * LOG_STATS_INTERVAL_SECONDS)  # nothing to await: the point is that no line comes
    elif scenario.method is None:
        wait_until(lambda: bool(_BUSY_STATS_LINE.search(server.log())), seconds=_LOG_SECONDS, what="engine stats line")
    else:
        wait_until(
            lambda: sum_log(server.log()).draft_tokens >= expected.draft_tokens,
            seconds=_LOG_SECONDS,
            what=f"sum of {expected.draft_tokens} draft tokens in vLLM's log",
        )
    return sum_log(server.log())


def sum_log(text: str) -> Logged:
    """Add up the spec-decode lines of a log, by a pattern that owes nothing to the exporter's."""
    lines = list(_SPEC_LINE.finditer(text))
    return Logged(
        windows=len(lines),
        draft_tokens=sum(int(line["drafted"]) for line in lines),
        accepted_tokens=sum(int(line["accepted"]) for line in lines),
    )
