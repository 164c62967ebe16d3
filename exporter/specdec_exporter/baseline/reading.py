"""A baseline's file -> :class:`Baseline`, strictly."""

from __future__ import annotations

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.baseline.schema import File
from specdec_exporter.errors import BaselineError
from specdec_exporter.formatting import plain
from specdec_exporter.yamlfile import convert, parse_yaml, read_bytes


def read_baseline(path: str) -> Baseline:
    """Read a baseline's file.

    Raises :class:`BaselineError` with file, key, the expected and the found value, for an unreadable file, unknown
    keys, wrong types, falling counts, buckets without ``+Inf`` at the end, or a sum that contradicts the buckets.
    """
    return parse_baseline(read_bytes(path, BaselineError), path)


def parse_baseline(content: bytes, path: str = "baseline") -> Baseline:
    """Read the bytes of a baseline's file as :func:`read_baseline`; errors call it ``path``."""
    document = parse_yaml(content, path, BaselineError)
    if document is None:
        raise BaselineError(f"{path}: expected a baseline, found nothing")
    file = convert(document, File, path, BaselineError)
    try:
        return file.baseline()
    except ValueError as error:
        raise BaselineError(plain(f"{path}: {error}")) from error
