"""Logs and saved responses that are read once from start to end: files, gzipped files and stdin, as one sequence."""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import cast

from specdec_exporter.errors import SpecdecError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.lines import Scanner
from specdec_exporter.predictor.log.scan import LogScanner, LogTrust
from specdec_exporter.predictor.responses import ResponseScanner, SavedLine
from specdec_exporter.predictor.sources.places import AGE, look
from specdec_exporter.predictor.sources.stream import BinaryStream, read_stream

STDIN = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_FOREIGN = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class LogInputs:
    """The inputs of one run. ``failed`` maps each input that could not be read to an error message.

    ``paths`` are read in this order, but rotated files before the one that they were cut from: a shell gives
    ``server.log*`` with the newest first.
    ``trust`` as for :class:`LogScanner`, for each input by itself.
    """

    def __init__(self, paths: Sequence[str], *, stdin: BinaryStream | None = None, trust: LogTrust = "auto") -> None:
        self.paths = tuple(_oldest_first(paths))
        self.counters = ReaderCounters()
        self.failed: dict[str, str] = {}
        self._stdin = stdin
        self._trust: LogTrust = trust

    @classmethod
    def found(cls, patterns: Sequence[str]) -> LogInputs:
        """Return the logs at paths and globs as ``serve`` finds them: regular files, and of a glob none that is packed.

        ``failed`` says what else is at a path, or that nothing is.
        """
        files = [pattern for pattern in patterns if pattern != STDIN]
        looked = look(files)
        inputs = cls([*([STDIN] if STDIN in patterns else []), *(place.path for place in looked.places)])
        inputs.failed = {path: f"{plain(path)}: cannot be read: {reason}" for path, reason in looked.problems.items()}
        for pattern in files:
            there = look([pattern])
            if not there.places and not there.problems:
                words = f"no log at {plain(pattern)}: expected the predictor's log, which names method and draft model"
                inputs.failed[pattern] = words
        return inputs

    @property
    def live(self) -> bool:
        """Whether lines may come while they are read."""
        return STDIN in self.paths

    def size(self) -> int:
        """Return the size on disk of all inputs that have one, bytes."""
        total = 0
        for path in self.paths:
            with suppress(OSError):
                total += Path(path).stat().st_size if path != STDIN else 0
        return total

    def events(self, kinds: frozenset[type] | None, progress: Callable[[int], None] | None = None) -> Iterator[Event]:
        """Yield the events of all inputs in order; ``kinds`` as for :class:`LogScanner`.

        ``progress`` gets the number of :meth:`size` bytes read so far.
        """
        new_scanner = partial(LogScanner, self.counters, trust=self._trust, kinds=kinds, joins=True, count_lines=False)
        return chain.from_iterable(self._read(new_scanner, progress))

    def responses(self, header: str | None, progress: Callable[[int], None] | None = None) -> Iterator[SavedLine]:
        """Yield what the lines of all inputs say as saved responses; ``header`` as for :func:`parse_response`.

        ``progress`` as for :meth:`events`.
        """
        # The readers pass on what a scanner finds and do not look at it, so it need not be an event of a log.
        scanner = cast("Scanner", ResponseScanner(self.counters, header=header))
        return cast("Iterator[SavedLine]", chain.from_iterable(self._read(lambda: scanner, progress)))

    def _read(
        self, new_scanner: Callable[[], Scanner], progress: Callable[[int], None] | None
    ) -> Iterator[list[Event]]:
        done = 0
        for path in self.paths:
            try:
                with self._open(path) as (file, position):
                    telling = _telling(progress, done, position)
                    yield from read_stream(file, new_scanner(), telling, counters=self.counters)
                    done += position() if position else 0
            except (OSError, EOFError, zlib.error, SpecdecError) as error:
                self.failed[path] = _in_words(path, error)

    @contextmanager
    def _open(self, path: str) -> Iterator[tuple[BinaryStream, Callable[[], int] | None]]:
        """Open one input: its bytes, and for a file a function that returns how many bytes of it were read."""
        if path == STDIN:
            yield _Stdin(self._stdin or cast("BinaryStream", sys.stdin.buffer)), None
            return
        with Path(path).open("rb", buffering=0) as raw:
            if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
                yield raw, None
                return
            beginning = raw.read(max(map(len, _FOREIGN)))
            raw.seek(0)
            _refuse_foreign(beginning, _FOREIGN)
            if not beginning.startswith(_GZIP_MAGIC):
                yield raw, raw.tell
                return
            import gzip  # noqa: PLC0415  most logs are not gzipped

            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked, raw.tell


class _Stdin:
    """Looks at the first bytes as they come: of a live log, none may be waited for."""

    def __init__(self, file: BinaryStream) -> None:
        self.fileno = file.fileno
        self._readinto = getattr(file, "readinto1", file.readinto)
        self._foreign = {_GZIP_MAGIC: "gzip", **_FOREIGN}

    def readinto(self, buffer: memoryview) -> int | None:
        """See :class:`BinaryStream`. Raises SpecdecError for bytes that are no text."""
        count: int | None = self._readinto(buffer)
        if count:
            _refuse_foreign(bytes(buffer[: min(count, 8)]), self._foreign)
            self._foreign = {}
        return count


def _refuse_foreign(beginning: bytes, foreign: Mapping[bytes, str]) -> None:
    for magic, name in foreign.items():
        if beginning.startswith(magic):
            raise SpecdecError(f"it is {name}; unpack or convert it first")


def _oldest_first(paths: Sequence[str]) -> list[str]:
    def place(path: str) -> tuple[int, int, int, str]:
        for number, base in enumerate(paths):
            if path.startswith(base) and (age := AGE.fullmatch(path, len(base))) is not None:
                at = age[1]
                return (number, 1, -int(at), "") if at.isdigit() and len(at) < len("20261120") else (number, 0, 0, at)
        return paths.index(path), 2, 0, ""

    return sorted(paths, key=place)


def _telling(
    progress: Callable[[int], None] | None, done: int, position: Callable[[], int] | None
) -> Callable[[int], None] | None:
    """Turn "bytes read of this input" into "bytes on disk read of all inputs"."""
    if progress is None:
        return None
    return lambda read: progress(done + (position() if position else read))


def _in_words(path: str, error: Exception) -> str:
    name = "stdin" if path == STDIN else plain(path)
    cause = error.__cause__ or error
    damaged = isinstance(cause, OSError) and cause.errno is None  # gzip.BadGzipFile
    if damaged or isinstance(cause, EOFError | zlib.error):
        return f"cannot read {name}: damaged gzip data ({cause}); the lines before it count"
    reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return f"cannot read {name}: {reason}"
