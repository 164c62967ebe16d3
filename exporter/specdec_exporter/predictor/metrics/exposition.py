"""One answer of a predictor's ``/metrics`` -> :class:`snapshot.Snapshot`. Pure.

``prometheus_client`` parses the lines; a filter by name decides which ones it gets. Without it, parsing would take
three times as long, and a broken line of a family that nobody needs would cost the whole answer. The parser is that of
the text format, also for OpenMetrics: it reads those samples as well, and accepts families without their TYPE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from io import BytesIO
from typing import TextIO, cast

from prometheus_client.parser import text_fd_to_metric_families
from prometheus_client.samples import Sample

from specdec_exporter import bounds
from specdec_exporter.errors import ExpositionError
from specdec_exporter.predictor.engines.engine import answering
from specdec_exporter.predictor.metrics.families import engine_generation, length_meanings, meanings
from specdec_exporter.predictor.metrics.reading import EngineKey, EngineReader
from specdec_exporter.predictor.metrics.snapshot import Snapshot

# Several API servers (the client's multiprocess mode) and the Rust frontend do not say it.
_START_TIME = "process_start_time_seconds"
_START_TIME_LINE = f"{_START_TIME} ".encode()  # one with labels is another's
_DECLARATION = re.compile(rb"\s*#[ \t]+(?:HELP|TYPE|UNIT|EOF)\b")

# The beginning of the first line with content, even if it is cut off.
_BEGINNING = re.compile(rb"\s*+(?:#|[a-zA-Z_:][a-zA-Z0-9_:]*(?:[ \t]*\{|[ \t]+[-+.0-9iInN]))")
_FOREIGN_ENCODINGS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_OPENMETRICS = "application/openmetrics-text"


def parse_exposition(
    body: bytes,
    content_type: str | None = None,
    *,
    lengths: bool = False,
    most_engines: int = bounds.ENGINES,
    known: AbstractSet[EngineKey] = frozenset(),
) -> Snapshot:
    """Read one answer.

    ``content_type`` is the header as received; it only decides whether the body must end in ``# EOF``. ``lengths``:
    also read the lengths of requests. At most ``most_engines`` engines are read: those of ``known``, then the first of
    the body.
    Raises :class:`ExpositionError` with reason ``not_metrics`` (HTML, JSON, nothing at all, a line of ours that is no
    sample), ``truncated`` (ends in mid-line, or without a required ``# EOF``), ``encoding`` (compressed, or not UTF-8
    where we read it) or ``too_large`` (too many lines).
    """
    _refuse_other_text(body)
    _refuse_fragment(body, content_type)
    if (lines := body.count(b"\n")) > bounds.BODY_LINES:
        raise ExpositionError("too_large", f"expected at most {bounds.BODY_LINES} lines, found {lines}")
    engine = answering(body)
    if engine is None or not engine.is_read:
        _refuse_unsound(body)
        return Snapshot(engines=(), inference_engine=engine, engine_generation=None, stats_present=False)
    wanted = meanings(engine.code) | length_meanings(engine.code) if lengths else meanings(engine.code)
    reader = EngineReader(engine, most_engines, known)
    telling = engine.generations.v0 | engine.generations.v1 | engine.generations.any
    families: set[str] = set()

    def is_read(line: bytes) -> bool:
        if (ours := engine.line.match(line)) is None:
            return line.startswith(_START_TIME_LINE) and len(line) <= bounds.SERIES_BYTES
        if (family := ours["family"].decode()) in telling:
            families.add(family)
        if ours["comment"] or ours["name"].decode() not in wanted:
            return False
        if len(line) > bounds.SERIES_BYTES:
            reader.dropped["labels"] += 1
            return False
        return True

    started = None
    for sample in _samples(body, is_read):
        if (meaning := wanted.get(sample.name)) is not None:
            reader.add(sample.name, meaning, sample.labels, sample.value)
        elif sample.name == _START_TIME and 0 < sample.value <= bounds.COUNT:
            started = float(sample.value)
    return Snapshot(
        engines=reader.engines(),
        inference_engine=engine,
        engine_generation=engine_generation(engine, families, engine_labels=reader.engine_labels),
        stats_present=True,
        process_start_time_seconds=started,
        dropped=dict(reader.dropped),
        unusable=reader.unusable,
        speculator=reader.speculator,
    )


def _refuse_other_text(body: bytes) -> None:
    for magic, encoding in _FOREIGN_ENCODINGS.items():
        if body.startswith(magic):
            raise ExpositionError("encoding", f"expected an exposition in plain UTF-8, found {encoding}")
    if not _BEGINNING.match(body):
        raise _not_metrics(body)


def _refuse_fragment(body: bytes, content_type: str | None) -> None:
    if body[body.rfind(b"\n", 0, -1) + 1 :].rstrip() == b"# EOF":
        return
    if not body.endswith(b"\n"):
        raise ExpositionError("truncated", f"the exposition breaks off in mid-line after {len(body)} bytes")
    if content_type is not None and content_type.partition(";")[0].strip().lower() == _OPENMETRICS:
        raise ExpositionError(
            "truncated", f'expected "# EOF" at the end of OpenMetrics, found none in {len(body)} bytes'
        )


def _not_metrics(text: bytes) -> ExpositionError:
    shown = text.lstrip()[:60].decode("utf-8", "replace")
    return ExpositionError(
        "not_metrics", f"expected Prometheus text or OpenMetrics, found {repr(shown) if shown else 'nothing'}"
    )


def _samples(body: bytes, is_read: Callable[[bytes], bool]) -> Iterator[Sample]:
    """Yield the samples of the lines that are read, one at a time.

    A list of all lines of a large body would take several times its memory.
    """
    line = b""

    def lines() -> Iterator[str]:
        nonlocal line
        for line in BytesIO(body):
            if is_read(line):
                try:
                    yield line.decode()
                except UnicodeDecodeError as error:
                    raise ExpositionError("encoding", f"expected UTF-8 in labels, found {line[:60]!r}") from error

    try:
        for family in text_fd_to_metric_families(cast("TextIO", lines())):  # it only iterates
            yield from family.samples
    except ExpositionError:
        raise
    except Exception as error:  # whatever it meets: ValueError, IndexError, OverflowError
        raise _not_metrics(line) from error


def _refuse_unsound(body: bytes) -> None:
    """Raise ``not_metrics`` unless every line is part of an exposition and at least one is more than a remark.

    This is for bodies without a line of the inference engine. In other bodies, other families' lines do not matter.
    """
    said_anything = False

    def is_sample(line: bytes) -> bool:
        nonlocal said_anything
        if line.lstrip().startswith(b"#"):
            said_anything |= _DECLARATION.match(line) is not None
            return False
        wanted = not line.isspace() and len(line) <= bounds.SERIES_BYTES
        said_anything |= wanted
        return wanted

    for _ in _samples(body, is_sample):
        pass
    if not said_anything:
        raise _not_metrics(body)
