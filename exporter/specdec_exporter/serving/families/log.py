"""What the predictor's log tells, and how it is read."""

from __future__ import annotations

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.totals import EngineLogTotals
from specdec_exporter.predictor.versions import WARNINGS
from specdec_exporter.serving.families.family import ENGINE, SERVICE, Group, counter, gauge
from specdec_exporter.state.record import PredictorState

LOG: Group[EngineLogTotals] = Group(
    ENGINE,
    (
        counter("specdec_log_windows_total", "Spec-decode lines read.", lambda t: t.windows),
        counter("specdec_log_draft_tokens_total", "Draft tokens, exact.", lambda t: t.draft_tokens),
        counter("specdec_log_accepted_tokens_total", "Accepted draft tokens, exact.", lambda t: t.accepted_tokens),
        counter(
            "specdec_log_drafts_total",
            "Drafts, reconstructed: `Drafted` / k. Where the line's ratios show short drafts: `Accepted` / the sum of "
            "its rates. Without a list of rates or k: `Accepted` / (length - 1).",
            lambda t: t.drafts,
        ),
        counter(
            "specdec_log_accepted_tokens_per_position_total",
            "Accepted draft tokens by position, reconstructed: rate x drafts, rounded so that they sum to "
            "`Accepted`. Lines without a list of rates (Rust frontend) add nothing.",
            lambda t: dict(enumerate(t.accepted_per_position)),
            labels=("position",),
        ),
    ),
    remark="From the spec-decode lines of the predictor's log.",
)


PREDICTOR_LOG: Group[PredictorState] = Group(
    ENGINE,
    (
        counter(
            "specdec_predictor_warnings_total",
            "Warnings about speculation in the predictor's log, by code. `engine` is empty.",
            lambda s: {code: s.warnings[code] for code in WARNINGS} if s.reader else None,
            labels=("warning",),
        ),
    ),
)


READER: Group[ReaderCounters] = Group(
    SERVICE,
    (
        counter("specdec_log_reader_lines_total", "Lines read from the predictor's log.", lambda r: r.lines),
        counter("specdec_log_reader_bytes_total", "Bytes read from the predictor's log.", lambda r: r.bytes),
        counter(
            "specdec_log_reader_matched_lines_total",
            "Lines that said something about speculation or the engine.",
            lambda r: r.matched_lines,
        ),
        counter(
            "specdec_log_reader_parse_errors_total",
            "Lines about speculation or the engine that could not be read.",
            lambda r: r.parse_errors,
        ),
        counter("specdec_log_reader_rotations_total", "Log rotations followed.", lambda r: r.rotations),
        counter("specdec_log_reader_truncations_total", "Log truncations noticed.", lambda r: r.truncations),
        counter(
            "specdec_log_reader_oversized_lines_total", "Lines skipped for their length.", lambda r: r.oversized_lines
        ),
        counter("specdec_log_reader_read_errors_total", "Failures to open or read the log.", lambda r: r.read_errors),
        gauge(
            "specdec_log_reader_last_line_timestamp_seconds",
            "When the exporter last read a line of the predictor's log, Unix time.",
            lambda r: r.last_line_timestamp,
        ),
        gauge(
            "specdec_log_reader_bytes_behind",
            "Bytes of the predictor's log that are still to be read.",
            lambda r: r.bytes_behind,
        ),
    ),
)
