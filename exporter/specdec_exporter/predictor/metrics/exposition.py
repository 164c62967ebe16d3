"""Bytes of a predictor's ``/metrics`` -> :class:`Snapshot`, for every spelling from vLLM 0.6.6 to 0.33.0.

One grammar serves the text format 0.0.4 and OpenMetrics 1.0; only ``# EOF`` differs. TYPE lines do not matter, because
vLLM's frontends disagree on them (``_total`` or not, ``_created`` gauges). Names must match as a whole.

The first body is read line by line and gives a :class:`Layout`. With it, later scrapes of the same predictor need no
parsing of names and labels.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from io import BytesIO
from itertools import compress, islice

import msgspec

from specdec_exporter import bounds
from specdec_exporter.errors import ExpositionError
from specdec_exporter.predictor.metrics.admission import Admission, EngineKey
from specdec_exporter.predictor.metrics.families import (
    LENGTH_MEANINGS,
    MEANINGS,
    PREFIXES,
    TELLING_FAMILIES,
    Meaning,
    engine_generation,
)
from specdec_exporter.predictor.metrics.layout import Key, Layout, Recipe, Series
from specdec_exporter.predictor.metrics.snapshot import Snapshot

_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = rb'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\\n]*(?:\\.[^"\\\n]*)*)"'
_ANY_LABEL = re.sub(rb"\((?!\?)", b"(?:", _LABEL)
_NUMBER = rb"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))"
_SAMPLE = re.compile(
    rb"[ \t]*" + _NAME + rb"(?:[ \t]*\{"
    rb"[ \t]*(?P<labels>(?:" + _ANY_LABEL + rb"(?:[ \t]*,[ \t]*" + _ANY_LABEL + rb")*[ \t]*(?:,[ \t]*)?)?)"
    rb"\}[ \t]*|[ \t]+)(?P<value>" + _NUMBER + rb")"
    rb"(?:[ \t]+" + _NUMBER + rb")?"  # timestamp: milliseconds in the text format, seconds in OpenMetrics; not used
    rb"(?:[ \t]+#[ \t]*\{.*|[ \t\r]*)"  # exemplar
)
_LABELS = re.compile(_LABEL)
_ESCAPE = re.compile(r"\\([\\\"n])")
_BOUND = re.compile(_NUMBER.decode())
_POSITION = re.compile(r"[0-9]{1,4}")
_WHOLE = re.compile(r"[0-9]{1,15}")

# A line of the inference engine: a sample, or a HELP or TYPE line that declares a family.
_ENGINE_LINE = re.compile(
    rb"[ \t\r]*(?:#[ \t]+(?P<comment>HELP|TYPE)[ \t]+)?"  # a sample behind a carriage return is refused
    rb"(?P<name>(?:" + "|".join(PREFIXES).encode() + rb")"
    rb"(?P<family>[a-zA-Z0-9_:]*?)(?:_total|_bucket|_sum|_count)?)(?![a-zA-Z0-9_:])"
)
_DECLARATION = re.compile(rb"[ \t]*#[ \t]+(?:(?:HELP|TYPE|UNIT)[ \t]+" + _NAME + rb"[ \t].*|EOF[ \t\r]*)")
# The beginning of the first line with content, even if it is cut off.
_BEGINNING = re.compile(rb"\s*+(?:#|" + _NAME + rb"(?:[ \t]*\{|[ \t]+[-+.0-9iInN]))")

_FOREIGN_ENCODINGS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_OPENMETRICS = "application/openmetrics-text"

_START_TIME = b"\nprocess_start_time_seconds "
_FINITE = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?")

_LAYOUTS_KEPT = 8
_layouts: deque[Layout] = deque(maxlen=_LAYOUTS_KEPT)  # of the last bodies, newest first; each predictor needs one


def parse_exposition(
    body: bytes,
    content_type: str | None = None,
    *,
    lengths: bool = False,
    most_engines: int = bounds.ENGINES,
    known: AbstractSet[EngineKey] = frozenset(),
) -> Snapshot:
    """Read one answer of a predictor's ``/metrics``.

    ``content_type`` is the header as received; it only decides whether the body must end in ``# EOF``. ``lengths``:
    also read the lengths of requests; each call is then as slow as a first one. At most ``most_engines`` engines are
    read: those of ``known``, then the first of the body. Equal arguments give equal results.
    Raises :class:`ExpositionError` with reason ``not_metrics`` (HTML, JSON, nothing at all, a line of ours that is no
    sample), ``truncated`` (ends in mid-line, or without a required ``# EOF``), ``encoding`` (compressed, or not UTF-8
    where we read it) or ``too_large`` (too many lines).
    """
    _refuse_other_text(body)
    _refuse_fragment(body, content_type)
    learns = not lengths and len(body) <= bounds.LEARNT_BODY_BYTES
    if learns:
        lines = list(BytesIO(body))  # takes less than half the time of split()
        for layout in tuple(_layouts):
            if snapshot := layout.read(lines, len(body)):
                return snapshot
    if (found := body.count(b"\n")) > bounds.BODY_LINES:
        raise ExpositionError("too_large", f"expected at most {bounds.BODY_LINES} lines, found {found}")
    return _parse_lines(body, Admission(most_engines, known), lengths=lengths, learns=learns)


def process_start_time(body: bytes) -> float | None:
    """Return when the process behind the metrics started, Unix time; ``None`` where it does not say.

    Several API servers (the client's multiprocess mode) and the Rust frontend do not say it.
    """
    at = body.find(_START_TIME)
    if at < 0:
        return None
    words = body[at + len(_START_TIME) : body.find(b"\n", at + 1)].split(maxsplit=1)
    return float(words[0]) if words and _FINITE.fullmatch(words[0]) else None


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


def _lines(body: bytes) -> Iterator[bytes]:
    """Return the lines one at a time: as a list, those of a large body would take several times its memory."""
    return (line.removesuffix(b"\n") for line in BytesIO(body))


def _parse_lines(body: bytes, admission: Admission, *, lengths: bool = False, learns: bool = False) -> Snapshot:
    """Read line by line. ``learns``: keep the layout."""
    meanings = MEANINGS | LENGTH_MEANINGS if lengths else MEANINGS
    families: set[str] = set()
    stats_present = False
    engine_labels = False
    # Whether the layout can be learnt: each value is the last word of its line.
    plain = learns
    series: list[Series] = []
    values: list[float] = []
    places: list[tuple[int, int]] = []
    for index, line in enumerate(_lines(body)):
        if not (engine_line := _ENGINE_LINE.match(line)):
            continue
        stats_present = True
        if (family := engine_line["family"].decode()) in TELLING_FAMILIES:
            families.add(family)
        if engine_line["comment"] or not (meaning := meanings.get(engine_line["name"].decode())):
            continue
        if len(line) > bounds.SERIES_BYTES:
            admission.dropped["labels"] += 1
            continue
        if not (sample := _SAMPLE.fullmatch(line)):
            raise _not_metrics(line)
        labels = _parse_labels(sample["labels"] or b"")
        engine_labels |= "engine" in labels
        # Releases without the label (V0, and V1 before 0.8.3) run one engine.
        if meaning.shape == "info":
            found = _info(meaning, labels)
        else:
            found = Series(labels.get("model_name", ""), labels.get("engine", "0"), meaning, _key(meaning, labels))
        if not admission.admits(found):
            continue
        series.append(found)
        values.append(float(sample["value"]))
        if plain:
            places.append((index, sample.start("value")))
            plain = sample.end("value") == len(line)
    if not stats_present:
        _refuse_unsound(_lines(body))
        return Snapshot(engines=(), engine_generation=None, stats_present=False)
    kept = admission.engines()
    stays = [each.meaning.shape == "info" or (each.model_name, each.engine) in kept for each in series]
    if not all(stays):
        series, values = list(compress(series, stays)), list(compress(values, stays))
    recipe = Recipe(series)
    generation = engine_generation(families, engine_labels=engine_labels)
    snapshot = recipe.snapshot([values[index] for index in recipe.order], generation)
    if admission.dropped:
        return msgspec.structs.replace(snapshot, dropped={**snapshot.dropped, **admission.dropped})
    # Do not cache the layout where a series was ignored: it could start to matter if its labels change.
    if plain and index < bounds.LEARNT_BODY_LINES and len(recipe.order) == len(series) > 1:
        lines = list(BytesIO(body))
        layout = Layout(lines, places, recipe, generation)
        if layout.read(lines, len(body)) == snapshot:
            _layouts.appendleft(layout)
    return snapshot


def _parse_labels(text: bytes) -> dict[str, str]:
    try:
        pairs = [(name.decode(), value.decode()) for name, value in _LABELS.findall(text)]
    except UnicodeDecodeError as error:
        raise ExpositionError("encoding", f"expected UTF-8 in labels, found {text[:60]!r}") from error
    labels = dict(pairs)
    if len(labels) != len(pairs):
        raise _not_metrics(text)
    return {name: _ESCAPE.sub(_unescape, value) if "\\" in value else value for name, value in pairs}


def _unescape(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _info(meaning: Meaning, labels: dict[str, str]) -> Series:
    """Return the capacity of a KV cache, tokens; releases before 0.24.0 only tell its blocks."""
    tokens, blocks, size = (
        int(text) if _WHOLE.fullmatch(text := labels.get(name, "")) else 0
        for name in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size")
    )
    if not tokens:
        meaning, tokens = meaning._replace(field="kv_cache_block_tokens"), blocks * size
    return Series("", labels.get("engine", "0"), meaning, float(tokens) if 0 < tokens <= bounds.COUNT else None)


def _key(meaning: Meaning, labels: dict[str, str]) -> Key:
    if meaning.key_label is None:
        return meaning.key
    text = labels.get(meaning.key_label)
    if text is None or meaning.key_label == "finished_reason":
        return text
    if meaning.shape == "histogram":
        bound = float(text) if _BOUND.fullmatch(text) else math.nan
        return None if math.isnan(bound) else bound
    return int(text) if _POSITION.fullmatch(text) else None


def _refuse_unsound(lines: Iterable[bytes]) -> None:
    """Raise ``not_metrics`` unless every line is part of an exposition and at least one is more than a remark.

    This is for bodies without a line of the inference engine. In other bodies, other families' lines do not matter.
    """
    said_anything = False
    for line in lines:
        if _DECLARATION.fullmatch(line) or _SAMPLE.fullmatch(line):
            said_anything = True
        elif line.strip() and not line.lstrip().startswith(b"#"):
            raise _not_metrics(line)
    if not said_anything:
        raise _not_metrics(b"\n".join(islice(lines, 60)))
