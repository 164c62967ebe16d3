"""A :class:`Baseline` -> its file: YAML with comments, or a document for JSON."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.baseline.schema import CONTEXT, File
from specdec_exporter.errors import BaselineError


def to_document(baseline: Baseline) -> dict[str, Any]:
    """Return the file's content as dictionaries, numbers and text, the same for YAML and JSON."""
    document: dict[str, Any] = _plain(msgspec.to_builtins(File.of(baseline)))
    return document | {key: document[key] or {} for key in ("intervals", "blocks")}


def _plain(value: Any) -> Any:
    """Return whole numbers as integers."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


_COMMENTS = {
    "interrupted": "true: recording stopped early",
    "model_name": "the served name; the exporter serves this baseline for this model only",
    "acceptance": "increases over the span; null: recorded without speculation",
    "throughput": "increases over the span",
    "latency": "requests of the span at or below each bound in seconds (le), cumulative",
    "lengths": "tokens per finished request, cumulative by upper bound",
    "intervals": "step time and load of short parts, each of one engine, in the order of time; a value per part",
    "blocks": "the whole span in a few parts, in the order of time, for chance; a value per block",
}


def to_yaml(baseline: Baseline) -> str:
    """Return the file's text: a commented header, keys in a fixed order, ``null`` for unknown values."""
    lines = [
        "# A baseline of specdec-exporter: what this predictor did while it was recorded.",
        "# Serve it with `specdec-exporter serve --baseline.file=FILE`; check it after an edit with",
        "# `specdec-exporter baseline check FILE`.",
    ]
    for key, value in to_document(baseline).items():
        comment = _COMMENTS.get(key)
        if key in CONTEXT and value is None:
            comment = "not given: a comparison of numbers needs it"
        if key in ("hardware", "model_name", "acceptance", "throughput", "latency", "lengths", "intervals", "blocks"):
            lines.append("")
        lines += _yaml_lines(key, value, 0, comment)
    return "\n".join(lines) + "\n"


def _yaml_lines(key: str, value: Any, indent: int, comment: str | None = None) -> Iterator[str]:
    tail = f"  # {comment}" if comment else ""
    if isinstance(value, dict) and value:
        yield f"{' ' * indent}{key}:{tail}"
        for name, inner in value.items():
            yield from _yaml_lines(name, inner, indent + 2)
        return
    # Scalars and flat lists in JSON are YAML too.
    yield f"{' ' * indent}{key}: {json.dumps(value, ensure_ascii=False)}{tail}"


def refuse_to_overwrite(path: str) -> None:
    """Raise :class:`BaselineError` if ``path`` exists, or if its directory does not."""
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise BaselineError(f"{path}: expected a file in a directory that exists")
    if target.exists():
        raise BaselineError(f"{path} exists already: choose another name, or remove it first")


def write_baseline(path: str, baseline: Baseline) -> None:
    """Write the file, all or nothing. Raises :class:`BaselineError`; the recording may then lie beside ``path``."""
    target = Path(path)
    try:
        fd, temporary = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".tmp", dir=target.parent, text=True)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(to_yaml(baseline))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise BaselineError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        refuse_to_overwrite(path)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except (OSError, BaselineError) as error:
        raise BaselineError(f"{error}; the recording is in {temporary}") from error
