"""Logs and saved responses that are read once from start to end: files, gzipped files and stdin, as one sequence."""

from __future__ import annotations

import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol, cast

from specdec_exporter.errors import SpecdecError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.lines import Scanner
from specdec_exporter.predictor.log.scan import LogScanner, LogTrust
from specdec_exporter.predictor.responses import ResponseScanner, SavedLine
from specdec_exporter.predictor.sources.places import AGE, look
from specdec_exporter.predictor.sources.stream import BinaryStream, open_stdin, read_stream

STDIN = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LENGTH = 4  # bytes at the end of a gzipped file that say how long it is unpacked
_COMPARED = 1 << 20  # bytes at a time
_FOREIGN = {
    _GZIP_MAGIC: "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


# A hole of NULs is one: a log has holes where it was truncated under its writer. Escape begins a colour.
_HOLE = re.compile(rb"\0+")
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROL = 1 / 16  # of the bytes; 1/30 in an export of journald, 1/10 in random bytes
_LOOKED_AT, _TELLING = 4096, 64  # the most bytes, and the fewest, that tell


class _File(BinaryStream, Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class LogInputs:
    """The inputs of one run. ``failed`` maps each input that could not be read to an error message.

    ``repeated`` maps each file that is left out to the earlier input with the same content.

    ``paths`` are read in this order, but rotated files before the one that they were cut from: a shell gives
    ``server.log*`` with the newest first.
    ``trust`` as for :class:`LogScanner`, for each input by itself.
    """

    def __init__(self, paths: Sequence[str], *, stdin: BinaryStream | None = None, trust: LogTrust = "auto") -> None:
        self.paths = tuple(_oldest_first(paths))
        self.counters = ReaderCounters()
        self.failed: dict[str, str] = {}
        self.repeated: dict[str, str] = {}
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
        for number, path in enumerate(self.paths):
            try:
                earlier = next((other for other in self.paths[:number] if _is_same(other, path)), None)
                if earlier is not None:
                    self.repeated[path] = earlier
                    done += Path(path).stat().st_size
                    continue
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
            yield _Text(self._stdin or cast("BinaryStream", open_stdin())), None
            return
        with Path(path).open("rb", buffering=0) as raw:
            if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
                yield raw, None
                return
            with _unpacked(raw) as file:
                yield _Text(file), raw.tell


@contextmanager
def _unpacked(raw: io.FileIO) -> Iterator[_File]:
    """Unpack a gzipped file."""
    is_gzip = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    raw.seek(0)
    if not is_gzip:
        yield raw
        return
    import gzip  # noqa: PLC0415  most logs are not gzipped

    with gzip.GzipFile(fileobj=raw) as file:
        yield file


def _is_same(one: str, other: str) -> bool:
    """Whether two files have the same content, gzipped or not. Nothing is read where the lengths differ."""
    if STDIN in (one, other):
        return False
    with suppress(OSError, EOFError, zlib.error), ExitStack() as opened:
        stats = Path(one).stat(), Path(other).stat()
        if not all(stat.S_ISREG(each.st_mode) for each in stats):
            return False
        if os.path.samestat(*stats):
            return True
        raws = [opened.enter_context(Path(path).open("rb", buffering=0)) for path in (one, other)]
        if _length(raws[0]) != _length(raws[1]):
            return False
        files = [opened.enter_context(_unpacked(raw)) for raw in raws]
        while (chunk := files[0].read(_COMPARED)) == files[1].read(_COMPARED):
            if not chunk:
                return True
    return False


def _length(raw: io.FileIO) -> int:
    """Return the bytes of a file, unpacked; of a gzipped one modulo 2^32, as the last bytes of its last member say."""
    size = raw.seek(0, os.SEEK_END)
    raw.seek(0)
    if raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC and size > _GZIP_LENGTH:
        raw.seek(-_GZIP_LENGTH, os.SEEK_END)
        size = int.from_bytes(raw.read(_GZIP_LENGTH), "little")
    raw.seek(0)
    return size


class _Text:
    """Looks at the first bytes as they come: of a live log, none may be waited for."""

    def __init__(self, file: BinaryStream) -> None:
        self.fileno = file.fileno
        self.name = getattr(file, "name", "the log")
        self._readinto: Callable[[memoryview], int | None] = getattr(file, "readinto1", file.readinto)
        self._begun = False

    def readinto(self, buffer: memoryview) -> int | None:
        """See :class:`BinaryStream`. Raises SpecdecError for bytes that are no text."""
        count = self._readinto(buffer)
        if count and not self._begun:
            self._begun = True
            _refuse_other_than_text(bytes(buffer[: min(count, _LOOKED_AT)]))
        return count


def _refuse_other_than_text(beginning: bytes) -> None:
    for magic, name in _FOREIGN.items():
        if beginning.startswith(magic):
            raise SpecdecError(f"it is {name}; unpack or convert it first")
    told = _HOLE.sub(b"\0", beginning.lstrip(b"\0"))
    if len(told) >= _TELLING and len(_CONTROL.findall(told)) > _MOST_CONTROL * len(told):
        raise SpecdecError("it is not text")


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
