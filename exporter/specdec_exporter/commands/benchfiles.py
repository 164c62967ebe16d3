"""The files of ``compare``: results of ``vllm bench serve``, or recordings; the files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from specdec_exporter import bounds
from specdec_exporter.errors import BenchResultError, ForeignResultError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.aiperfresult import EXPORT, SERVER_METRICS
from specdec_exporter.predictor.benchresult import BenchResult, parse_results

_HEAD_BYTES: Final = 4096
# What vLLM writes beside the results: runs that do not count, and copies of the results in other forms.
_PHASES: Final = "phases"  # AIPerf's folder of its warm-up, and of a second copy of the result
_NO_RESULTS: Final = ("warmup.json", "summary.json", ".failure.json", ".pytorch.json")


def is_bench(path: str) -> bool | None:
    """Whether a path is a folder or holds JSON that is no recording, which may be written as JSON too.

    ``None``: nothing is there.
    """
    place = Path(path)
    if not place.exists():
        return None
    if not place.is_file():  # nothing is read ahead from a pipe
        return place.is_dir()
    head = _bytes(place, _HEAD_BYTES)
    return b"recorded_at" not in head and (place.suffix == ".json" or head.lstrip()[:1] in (b"{", b"["))


def read_results(path: str) -> list[BenchResult]:
    """Return the results in a file, or in all ``*.json`` of a folder and those below; at least one.

    A folder may hold JSON of other kinds, which is passed over. Raises :class:`BenchResultError`.
    """
    place = Path(path)
    if not place.is_dir():
        return _results(place)
    found: list[BenchResult] = []
    others: list[str] = []
    for each in _files(place):
        try:
            found += _results(each)
        except ForeignResultError as error:
            others.append(str(error))
    if not found:
        more = f" and {len(others) - 1} more like this" if len(others) > 1 else ""
        why = f"found none: {others[0]}{more}" if others else "found no *.json"
        raise BenchResultError(f"{plain(path)}: expected results of `vllm bench serve`, {why}")
    return found


def _files(folder: Path) -> list[Path]:
    files = sorted(
        each
        for each in folder.rglob("*.json")
        if not each.name.endswith(_NO_RESULTS) and _PHASES not in each.relative_to(folder).parts
    )
    if len(files) > bounds.RESULT_FILES:
        raise BenchResultError(
            f"{plain(str(folder))}: expected at most {bounds.RESULT_FILES} files, found {len(files)}"
        )
    return files


def _results(place: Path) -> list[BenchResult]:
    most, beside = bounds.RESULT_BYTES + 1, place.with_name(SERVER_METRICS)
    more = _bytes(beside, most) if place.name == EXPORT and beside.is_file() else None
    return parse_results(_bytes(place, most), plain(str(place)), more)


def _bytes(place: Path, most: int) -> bytes:
    try:
        with place.open("rb") as file:
            return file.read(most)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
        raise BenchResultError(plain(f"{place}: cannot be read: {reason}")) from cause
