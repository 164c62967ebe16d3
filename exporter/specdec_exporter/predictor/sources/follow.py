"""Following the log files of one predictor as ``tail -F`` does.

A path says where to look; device and inode say which file is there. When another file has come under a path, the one
before is read to its end first. A file that is shorter than what was read of it was cut, and is read anew.
``docs/limits.md`` says what may be lost or read twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, Literal

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig, Event
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, LineCutter, Scanner
from specdec_exporter.predictor.sources.aside import Aside
from specdec_exporter.predictor.sources.history import search_start
from specdec_exporter.predictor.sources.logfile import LogFile
from specdec_exporter.predictor.sources.places import Findings, Identity, Place, look, open_regular, rotated

_logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5
POLL_BYTES: Final = 1024 * 1024  # takes one or two milliseconds
ROTATE_WAIT_SECONDS: Final = 5.0  # without growth, after which nobody writes any more to a file that left its path

_LAST_BYTES: Final = 64 * POLL_BYTES  # read when stopping, which so takes about a second at most
_LONGEST_BACKOFF_SECONDS: Final = 30.0
_REST: Final = 20  # rests this many times as long as a round takes, so that many files cost 5 % of a core
_MISSING_SECONDS: Final = 20.0  # without a log file before it is said: the predictor may start later
_LATE_SECONDS: Final = 10.0  # a round that takes longer is a problem: a network file system that does not answer

From = Literal["end", "start"]


class LogFollower:
    """Reads one predictor's log files as they grow.

    ``paths`` are paths and globs of regular files. ``start`` says where to begin in the files of the first look; later
    files are read whole. ``scanner_factory`` makes a scanner for each path. With ``config_scanner_factory``, the
    follower also searches the part before the start for the last arguments and the last engine configuration and gives
    them as events, unless it reads a newer configuration first. The scanners may share ``counters``.

    :meth:`poll` is one bounded, synchronous round; :meth:`follow` repeats it in a thread.
    """

    def __init__(
        self,
        paths: Sequence[str],
        scanner_factory: Callable[[], Scanner],
        config_scanner_factory: Callable[[], Scanner] | None = None,
        *,
        counters: ReaderCounters,
        start: From = "end",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = counters
        self.more = False  # the last poll left work undone
        self._paths = tuple(dict.fromkeys(paths))
        self._scanner_factory = scanner_factory
        self._config_scanner_factory = config_scanner_factory
        self._start = start
        self._clock = clock
        self._logs: dict[str, LogFile] = {}
        self._there: set[Identity] = set()  # under a path at the last look
        # Where reading stands in files that are there, but not open: beyond the bound, or renamed.
        self._positions: dict[Identity, int] = {}
        self._buffer = bytearray(CHUNK_BYTES)
        self._history: Generator[int, None, list[Event]] | None = None
        self._troubles: dict[str, str] = {}  # of this round: why a path cannot be read
        self._announced: dict[str, str] = {}
        self._failure: str | None = None
        self._aside = Aside()
        self._left_out = 0  # files beyond the bound at the last look
        self._open_files = 0
        self._rest_seconds = 0.0
        self._begun = self._closed = False
        self._seen_at = clock()
        self._said_missing = False

    @property
    def problem(self) -> str | None:
        """Why the log cannot be read; None if it can."""
        if self._failure:
            return self._failure
        for path, reason in self._announced.items():
            return f"cannot read the log {path}: {reason}"
        if self._said_missing or not self._open_files:
            return f"there is no log file at {', '.join(self._paths)} yet"
        return None

    async def begin(self) -> None:
        """Look for the first time. What the files hold now was there at the start."""
        await self._survive(lambda: self.poll(0), lambda _: None)

    def poll(self, max_bytes: int = POLL_BYTES) -> list[Event]:
        """Do one round: look at the paths, read at most about ``max_bytes`` of new bytes, return events in order.

        Problems with files raise nothing: :attr:`problem` reports them.
        """
        if self._closed:
            return []
        began = time.perf_counter()
        began_work = time.thread_time()  # without waiting for a disk
        now = self._clock()
        findings = look(self._paths)
        self._troubles = dict(findings.problems)
        self._note_left_out(findings)
        self._look_at_open_files(findings)
        events = self._read(max_bytes, now)
        events += self._move_on(findings.places, now)
        if not self._begun:
            self._begun = True
            self._begin_history()
        events[:0] = self._search_history(events, max_bytes)
        open_files = [log for log in self._logs.values() if log.identity is not None]
        self._open_files = len(open_files)
        self.counters.bytes_behind = sum(log.size_bytes - log.seen for log in open_files)
        self._announce()
        self._announce_missing(bool(findings.places), now)
        self.counters.round_seconds = time.perf_counter() - began
        self._rest_seconds = _REST * (time.thread_time() - began_work)
        return events

    def close(self, *, final: bool = True) -> list[Event]:
        """Close all files. If ``final``, first read what has come, but no unterminated line: it may be half written."""
        if self._closed:
            return []
        events: list[Event] = []
        try:
            for _ in range(_LAST_BYTES // POLL_BYTES if final else 0):
                events += self.poll()
                if not self.more:
                    break
            for log in self._logs.values() if final else ():
                events += log.cutter.scanner.finish()
        finally:
            self._closed = True
            if self._history:
                self._history.close()
            for log in self._logs.values():
                log.close()
        return events

    async def follow(self, sink: Callable[[Event], None], stop: asyncio.Event) -> None:
        """Give events to ``sink`` until ``stop`` is set, then :meth:`close`. No exception ends it.

        Cancel it if it does not come back, because a file system hangs.
        """
        failures = 0
        try:
            while not stop.is_set():
                failures = 0 if await self._survive(self.poll, sink) else failures + 1
                if self.more and not failures:
                    continue
                wait_seconds = max(POLL_SECONDS * 2 ** min(failures, 10), self._rest_seconds)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), min(wait_seconds, _LONGEST_BACKOFF_SECONDS))
            await self._survive(self.close, sink)
        finally:
            self._aside.end()

    async def _survive(self, read: Callable[[], list[Event]], sink: Callable[[Event], None]) -> bool:
        """Give the events of ``read`` to ``sink``. Return False if either raised; log an error when it first occurs."""
        late = asyncio.get_running_loop().call_later(
            _LATE_SECONDS, self._fail, f"a look at the log has taken {_LATE_SECONDS:g} s; its file system may hang"
        )
        try:
            for event in await self._aside.run(read):
                sink(event)
        except Exception as error:  # noqa: BLE001  logged; nothing that happens here may end the server
            self._fail(f"reading the log failed: {error!r}", error)
            return False
        finally:
            late.cancel()
        if self._failure:
            self._failure = None
            _logger.info("the log is being read again")
        return True

    def _fail(self, reason: str, error: Exception | None = None) -> None:
        self.counters.read_errors += 1
        if self._failure != reason:
            self._failure = reason
            _logger.error("%s; trying again", reason, exc_info=error)

    # --- one round -------------------------------------------------------------------------------------------------

    def _note_left_out(self, findings: Findings) -> None:
        """Count the files beyond the bound; log it once when there are any, and once when there are none."""
        left_out = len(findings.left_out)
        self.counters.dropped["log_files"] += max(0, left_out - self._left_out)
        if left_out and not self._left_out:
            files = f"{left_out + bounds.LOG_FILES} log files, of which it reads {bounds.LOG_FILES}"
            _logger.warning("%s: the exporter finds %s, those changed last", ", ".join(self._paths), files)
        if self._left_out and not left_out:
            _logger.info("%s: all log files are read again", ", ".join(self._paths))
        self._left_out = left_out

    def _look_at_open_files(self, findings: Findings) -> None:
        self._there = {place.identity for place in (*findings.places, *findings.left_out)}
        for place in findings.left_out:
            if (log := self._logs.pop(place.path, None)) is not None:
                self._close(log)
            elif not self._begun and self._start == "end":
                self._positions[place.identity] = place.size_bytes
        self._positions = {identity: at for identity, at in self._positions.items() if identity in self._there}
        for log in self._logs.values():
            with self._losing(log):
                self.counters.truncations += log.identity is not None and log.look()

    def _read(self, max_bytes: int, now: float) -> list[Event]:
        events: list[Event] = []
        unread = deque(log for log in self._logs.values() if log.identity is not None)
        while unread and max_bytes > 0:
            log = unread.popleft()
            with self._losing(log):
                piece, size = log.read(self._buffer)
                if size:
                    events += piece
                    max_bytes -= size
                    self.counters.bytes += size
                    log.alive_at = now
                    unread.append(log)
        self.more = bool(unread)
        return events

    def _move_on(self, places: Iterable[Place], now: float) -> list[Event]:
        """Leave the files that were read to their end and are no longer under their path; open what is there now."""
        events: list[Event] = []
        by_path = {place.path: place for place in places}
        for path in [*self._logs, *(path for path in by_path if path not in self._logs)]:
            place, log = by_path.get(path), self._logs.get(path)
            if log is not None and log.identity is not None:
                if place is not None and place.identity == log.identity:
                    log.alive_at = now
                    continue
                if not self._is_left(log, place, now):
                    continue
                with self._losing(log):
                    events += log.end_line()
                    self._close(log)
                    self.counters.rotations += place is not None
            if place is not None:
                self._open(place, now)
            elif path not in self._paths:
                self._logs.pop(path, None)
        return events

    def _is_left(self, log: LogFile, place: Place | None, now: float) -> bool:
        """Whether nothing more is to come in a file that is not under its path; ``place`` is what is there now.

        A process that writes to a renamed file goes on with it until it opens the path again.
        """
        if not log.drained:
            return False
        if place is not None and place.size_bytes:
            return True
        nobody_writes = now - log.alive_at >= ROTATE_WAIT_SECONDS
        return nobody_writes and (place is not None or log.deleted or log.path not in self._paths)

    def _open(self, place: Place, now: float) -> None:
        """Open the file that is at a path now, unless it is open under another path."""
        at_first = place.size_bytes if self._start == "end" and not self._begun else 0
        try:
            fd, status = open_regular(place.path)
        except FileNotFoundError:
            return
        except OSError as error:
            self._troubles[place.path] = error.strerror or str(error)
            self._positions.setdefault(place.identity, at_first)
            return
        identity = (status.st_dev, status.st_ino)
        if any(log.identity == identity for log in self._logs.values()):
            os.close(fd)
            return
        log = self._logs.setdefault(place.path, LogFile(place.path, LineCutter(self._scanner_factory(), self.counters)))
        log.open(fd, status)
        log.alive_at = now
        with self._losing(log):
            log.place(self._positions.pop(identity, at_first))
        self.more = self.more or log.seen < log.size_bytes

    @contextlib.contextmanager
    def _losing(self, log: LogFile) -> Iterator[None]:
        """Close a file that cannot be read any more. If it can be opened again, go on at the same place."""
        try:
            yield
        except OSError as error:
            self._troubles[log.path] = error.strerror or str(error)
            self._close(log)

    def _close(self, log: LogFile) -> None:
        """Close a file. The number of one that is gone may be another's soon, so its place is forgotten."""
        if log.identity in self._there:
            self._positions[log.identity] = log.offset
        log.close()

    # --- the part before the start ----------------------------------------------------------------------------------

    def _begin_history(self) -> None:
        if self._config_scanner_factory is None:
            return
        newest_first = [log for log in reversed(self._logs.values()) if log.offset]
        parts: list[tuple[str, int | None]] = [(log.path, log.offset) for log in newest_first]
        parts += [(path, None) for log in newest_first for path in rotated(log.path) if path not in self._logs]
        if parts:
            self._history = search_start(parts, self._config_scanner_factory)

    def _search_history(self, events: list[Event], max_bytes: int) -> list[Event]:
        """Return the events of vLLM's last start once they are found, unless ``events`` have a newer configuration."""
        if self._history is None:
            return []
        if any(isinstance(event, EngineConfig) for event in events):
            self._history.close()
            self._history = None
            return []
        try:
            while max_bytes > 0:
                max_bytes -= next(self._history)
        except StopIteration as end:
            self._history = None
            return list(end.value)
        self.more = True
        return []

    # --- problems ----------------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        """Log each problem once when it begins and once when it ends."""
        for path, reason in self._troubles.items():
            if self._announced.get(path) != reason:
                self.counters.read_errors += 1
                _logger.warning("cannot read the log %s: %s", path, reason)
        for path in self._announced.keys() - self._troubles.keys():
            _logger.info("the problem with the log %s is over", path)
        self._announced = self._troubles

    def _announce_missing(self, there: bool, now: float) -> None:
        """Say once that no path has a file, when that has lasted, and once that one has."""
        if there or self._announced:
            if self._said_missing:
                _logger.info("there is a log file at %s now", ", ".join(self._paths))
            self._seen_at, self._said_missing = now, False
        elif now - self._seen_at >= _MISSING_SECONDS and not self._said_missing:
            self._said_missing = True
            _logger.warning("there is no log file at %s; waiting for one", ", ".join(self._paths))
