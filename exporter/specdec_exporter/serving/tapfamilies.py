"""Every family that ``tap`` alone serves: ``/metrics`` and the table of ``docs/metrics.md`` come from here."""

from __future__ import annotations

from collections.abc import Callable

from specdec_exporter.serving.families import SERVICE, Group, Value, counter, gauge, histogram
from specdec_exporter.serving.tapstate import TapState
from specdec_exporter.speculation.requests import RequestCounter

# Even steps resolve every quantile to 0.05, as those of specdec_window_acceptance_ratio.
RATIO_BOUNDS = tuple(round(0.05 * step, 2) for step in range(1, 21))


def _by_group(read: Callable[[RequestCounter], float]) -> Callable[[TapState], Value]:
    return lambda state: {(by, name): read(counter) for by, name, counter in state.groups.groups()}


# A request is in one group of each grouping. Crossing the groupings would multiply their numbers of series.
TAP: Group[TapState] = Group(
    SERVICE,
    (
        counter(
            "specdec_tap_requests_total",
            "Requests whose saved response has a record of speculation.",
            _by_group(lambda c: c.requests),
            "saved responses",
            labels=("by", "group"),
        ),
        counter(
            "specdec_tap_drafts_total",
            "Drafts of these requests.",
            _by_group(lambda c: c.drafts),
            "`acceptance_histogram`",
            labels=("by", "group"),
        ),
        counter(
            "specdec_tap_draft_tokens_total",
            "Draft tokens of these requests.",
            _by_group(lambda c: c.draft_tokens),
            "`num_draft_tokens`",
            labels=("by", "group"),
        ),
        counter(
            "specdec_tap_accepted_tokens_total",
            "Accepted draft tokens of these requests.",
            _by_group(lambda c: c.accepted_tokens),
            "`acceptance_histogram`",
            labels=("by", "group"),
        ),
        counter(
            "specdec_tap_accepted_tokens_per_position_total",
            "Accepted draft tokens of these requests by position, from 0.",
            lambda state: {
                (by, name, str(position)): accepted
                for by, name, counter in state.groups.groups()
                for position, accepted in enumerate(counter.accepted_per_position)
            },
            "`acceptance_histogram`",
            "until a request has drafts",
            labels=("by", "group", "position"),
        ),
        histogram(
            "specdec_tap_request_acceptance_ratio",
            "Acceptance rate of each request with drafts, for P10, P50 and P90. Each request counts once.",
            lambda state: {(by, name): counter.ratios(RATIO_BOUNDS) for by, name, counter in state.groups.groups()},
            "`acceptance_histogram`",
            labels=("by", "group"),
        ),
    ),
    absent='`by="header"`: no `--tap.header`',
    remark="A request is in one group of each value of `by`: sum over `group`, never over `by`.",
)

TAP_READER: Group[TapState] = Group(
    SERVICE,
    (
        gauge("specdec_tap_up", "1 if the saved responses can be read, else 0.", lambda s: s.problem is None),
        gauge(
            "specdec_tap_log_up",
            "1 if the predictor's log, for temperatures, can be read, else 0.",
            lambda s: s.log_readable,
            absent="no log is read",
        ),
        counter(
            "specdec_tap_lines_total",
            "Lines of saved responses: with a `record` of speculation, `without_record` (also each earlier chunk of a "
            "stream), `unreadable` (no response), `too_long`.",
            lambda s: s.lines_by_result,
            labels=("result",),
        ),
        counter(
            "specdec_tap_read_errors_total",
            "Failures to open or read the saved responses, or to keep the read positions.",
            lambda s: s.reader.read_errors,
        ),
        gauge(
            "specdec_tap_last_line_timestamp_seconds",
            "When a line was last read, Unix time.",
            lambda s: s.reader.last_line_timestamp,
            absent="no line was read yet",
        ),
        gauge("specdec_tap_bytes_behind", "Bytes that are still to be read.", lambda s: s.reader.bytes_behind),
    ),
    absent="never",
)
