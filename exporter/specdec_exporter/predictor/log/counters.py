"""The log reader's counters of its own work."""

from __future__ import annotations

from collections import Counter

import msgspec

from specdec_exporter.predictor.log.events import Malformed


class ReaderCounters(msgspec.Struct):
    """Totals of one predictor's log reader; exported as ``specdec_log_reader_*``."""

    lines: int = 0
    bytes: int = 0
    matched_lines: int = 0  # lines that gave an event
    unsigned_lines: int = 0  # of these, lines of a log without vLLM's headers
    parse_errors: int = 0  # lines of vLLM that could not be read
    rotations: int = 0
    truncations: int = 0
    oversized_lines: int = 0  # skipped to the next newline
    read_errors: int = 0  # permission, I/O
    last_line_timestamp: float | None = None  # Unix time of the last reading of a whole line
    bytes_behind: int = 0
    dropped: Counter[str] = msgspec.field(default_factory=Counter)  # beyond a bound, by what
    held_bytes: int = 0  # of unfinished lines that container runtimes cut
    round_seconds: float = 0.0  # duration of the last round of reading
    first_untrusted: str | None = None  # the first line that looks like statistics and was not counted
    first_unreadable: str | None = None  # the first one that could not be read, after why

    @property
    def uncounted(self) -> int:
        """Lines that look like statistics and say none that count."""
        return self.dropped["untrusted_lines"] + self.parse_errors

    def left_out(self, why: Malformed, line: str) -> None:
        """Count a line that looks like statistics and says none that count."""
        if why.untrusted:
            self.dropped["untrusted_lines"] += 1
            self.first_untrusted = self.first_untrusted or line[:_EXAMPLE_CHARACTERS]
        else:
            self.parse_errors += 1
            self.first_unreadable = self.first_unreadable or f"{why.reason}: {line[:_EXAMPLE_CHARACTERS]}"


_EXAMPLE_CHARACTERS = 200


def unreadable(counters: ReaderCounters) -> str:
    """Say how many lines could not be read, and why the first one could not; empty if all could."""
    if not counters.parse_errors:
        return ""
    words = f"{counters.parse_errors:,} lines of vLLM's statistics could not be read (cut or garbled)"
    return f"{words}; of the first one, {counters.first_unreadable}"


def on_trust(counters: ReaderCounters) -> list[str]:
    """Say which lines do not count, or count without a sign that vLLM wrote them."""
    words = []
    if untrusted := counters.dropped["untrusted_lines"]:
        words.append(
            f"{untrusted:,} lines that look like statistics do not count, because they name none of vLLM's loggers: if "
            f"vLLM's log format prints none, use --predictor.log-trust=any. The first: {counters.first_untrusted}"
        )
    if counters.unsigned_lines:
        words.append(
            f"{counters.unsigned_lines:,} lines count although they name no logger, because the log has none of vLLM's "
            "headers: whoever can write into it can write statistics"
        )
    return words
