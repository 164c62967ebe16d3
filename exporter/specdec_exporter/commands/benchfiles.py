"""The files of ``compare``: results of ``vllm bench serve`` and AIPerf, or recordings; the files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from specdec_exporter import bounds
from specdec_exporter.errors import BaselineError, BenchResultError, ForeignResultError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.aiperfresult import EXPORT, SERVER_METRICS
from specdec_exporter.predictor.benchresult import BenchResult, parse_results
from specdec_exporter.yamlfile import read_bytes

_HEAD_BYTES: Final = 4096
# What vLLM writes beside the results: runs that do not count, and copies of the results in other forms.
_PHASES: Final = "phases"  # AIPerf's folder of its warm-up, and of a second copy of the result
_NO_RESULTS: Final = ("warmup.json", "summary.json", ".failure.json", ".pytorch.json")


def read_once(path: str) -> bytes | None:
    """Return the content of an argument, which may be a pipe; ``None``: a folder. Raises :class:`BaselineError`."""
    return None if Path(path).is_dir() else read_bytes(path, BaselineError, bounds.RESULT_BYTES)


def is_recording(content: bytes | None) -> bool:
    """Whether a content is a recording, which may be written as JSON too."""
    return b"recorded_at" in (content or b"")[:_HEAD_BYTES]


def is_bench(path: str, content: bytes | None) -> bool:
    """Whether an argument is a folder, or JSON that is no recording."""
    json = Path(path).suffix == ".json" or (content or b"").lstrip()[:1] in (b"{", b"[")
    return content is None or (json and not is_recording(content))


def results_of(path: str, content: bytes | None) -> list[BenchResult]:
    """Return the results in a content, or in all ``*.json`` of a folder and those below; at least one.

    A folder may hold JSON of other kinds, which is passed over. Raises :class:`BenchResultError`.
    """
    if content is not None:
        if is_recording(content):
            raise BenchResultError(
                f"{plain(path)}: expected a result of a benchmark like the others, found a recording"
            )
        return _results(Path(path), content)
    results: list[BenchResult] = []
    others: list[str] = []
    for file in _files(Path(path)):
        try:
            results += _results(file, read_bytes(file, BenchResultError, bounds.RESULT_BYTES))
        except ForeignResultError as error:
            others.append(str(error))
    if not results:
        more = f" and {len(others) - 1} more like this" if len(others) > 1 else ""
        why = f"found none: {others[0]}{more}" if others else "found no *.json"
        raise BenchResultError(f"{plain(path)}: expected results of `vllm bench serve` or AIPerf, {why}")
    return results


def _files(folder: Path) -> list[Path]:
    files = sorted(
        file
        for file in folder.rglob("*.json")
        if not file.name.endswith(_NO_RESULTS) and _PHASES not in file.relative_to(folder).parts
    )
    if len(files) > bounds.RESULT_FILES:
        raise BenchResultError(
            f"{plain(str(folder))}: expected at most {bounds.RESULT_FILES} files, found {len(files)}"
        )
    return files


def _results(place: Path, content: bytes) -> list[BenchResult]:
    beside = place.with_name(SERVER_METRICS)
    told = place.name == EXPORT and beside.is_file()
    more = read_bytes(beside, BenchResultError, bounds.RESULT_BYTES) if told else None
    return parse_results(content, plain(str(place)), more)
