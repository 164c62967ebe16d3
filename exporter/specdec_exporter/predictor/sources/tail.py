"""Following the log files of one predictor through everything that happens to log files.

Files are known by identity and content; paths are only where to look. A file that has left its path is kept open, for a
writer may still hold it: a handler that has not reopened yet, or another process of a multi-process
``RotatingFileHandler``, which may sit on ``.1`` or ``.2`` for good. Where it cannot be told whether bytes were read
before, they count as read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig, Event
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, Scanner
from specdec_exporter.predictor.sources.fileset import FileSet, Start
from specdec_exporter.predictor.sources.history import ConfigSearch
from specdec_exporter.predictor.sources.logfile import LogFile
from specdec_exporter.predictor.sources.places import look
from specdec_exporter.predictor.sources.positions import PositionFile
from specdec_exporter.predictor.sources.rotation import siblings

_logger = logging.getLogger(__name__)

POLL_SECONDS = 0.25
POLL_BYTES = 1024 * 1024  # one or two milliseconds of the event loop
ROTATE_WAIT_SECONDS = 5.0

_MAX_RETIRED = 16  # files kept open after they have left their path
_SAVE_SECONDS = 10.0
_LAST_BYTES = 64 * POLL_BYTES  # read at the end, so that stopping stays a matter of a second
_LONGEST_BACKOFF_SECONDS = 30.0


class LogFollower:
    """Reads one predictor's log files as they grow; each line at most once, and once wherever its bytes still exist.

    ``paths`` are paths and globs of regular files. ``start`` says where a file begins that is there at the first look;
    files that appear later are read whole. ``scanner_factory`` gives a scanner for each file; with
    ``config_scanner_factory`` the part before the start is searched for the engine configuration, the last of which is
    given as an event unless a newer one is read meanwhile. ``state_path`` is the position file. What is counted is
    added to ``counters``, which the scanners may share.

    :meth:`poll` is synchronous and bounded; :meth:`follow` is the loop around it.
    """

    def __init__(
        self,
        paths: Sequence[str],
        scanner_factory: Callable[[], Scanner],
        config_scanner_factory: Callable[[], Scanner] | None = None,
        *,
        counters: ReaderCounters,
        start: Start = "end",
        state_path: str | None = None,
        rotate_wait_seconds: float = ROTATE_WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = counters
        self.more = False  # the last poll left work undone
        self._paths = tuple(dict.fromkeys(paths))
        self._set = FileSet(self._paths, scanner_factory, counters, start)
        self._config_scanner_factory = config_scanner_factory
        self._state = PositionFile(state_path, counters) if state_path else None
        self._rotate_wait_seconds = rotate_wait_seconds
        self._clock = clock
        self._buffer = bytearray(CHUNK_BYTES)
        self._view = memoryview(self._buffer)
        self._history: ConfigSearch | None = None
        self._announced: dict[str, str] = {}
        self._failure: str | None = None
        self._begun = False
        self._closed = False
        self._saved_at = clock()

    @property
    def problem(self) -> str | None:
        """Why the log is not being read, in words; None when it is."""
        if self._failure:
            return self._failure
        for path, reason in self._announced.items():
            return f"cannot read the log {path}: {reason}"
        if not self._set.files:
            return f"there is no log file at {', '.join(self._paths)} yet"
        return None

    @property
    def healthy(self) -> bool:
        """Whether every path that exists is being read, and at least one does."""
        return self.problem is None

    def begin(self) -> None:
        """Look for the first time: what is in the files now was there at the start, what comes later was not."""
        self.poll(0)

    def poll(self, max_bytes: int = POLL_BYTES) -> list[Event]:
        """Do one round: look at the paths, read what is new, at most about ``max_bytes``; return events in order.

        Raises nothing for anything that a file does.
        """
        if self._closed:
            return []
        began = time.perf_counter()
        now = self._clock()
        self._look(now)
        events = self._read(max_bytes, now)
        events += self._settle(now)
        events[:0] = self._search_history(events, max_bytes)
        self.counters.bytes_behind = sum(file.bytes_behind for file in self._set.files)
        self._announce()
        self._save(now, found=bool(events))
        self.counters.round_seconds = time.perf_counter() - began
        return events

    def close(self, *, final: bool = True) -> list[Event]:
        """Let go of all files and save the positions. ``final``: read what has come, first.

        The unterminated last line of a file that stands under its path is left to the next start: its writer may be in
        the middle of it. That of a file which was rotated away is given, unless the next start will find it.
        """
        if self._closed:
            return []
        try:
            return self._finish() if final else []
        finally:
            self._closed = True
            if self._history:
                self._history.close()
            if self._state and self._begun:
                self._save_positions(self._state, durable=True)
            for file in self._set.files:
                file.close()
            self._set.files.clear()

    async def follow(self, sink: Callable[[Event], None], stop: asyncio.Event) -> None:
        """Give events to ``sink`` until ``stop`` is set, then :meth:`close`. Survives every exception."""
        failures = 0
        while not stop.is_set():
            failures = 0 if self._survive(self.poll, sink) else failures + 1
            if self.more and not failures:
                await asyncio.sleep(0)
                continue
            wait_seconds = min(POLL_SECONDS * 2 ** min(failures, 10), _LONGEST_BACKOFF_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait_seconds)
        self._survive(self.close, sink)

    def _survive(self, read: Callable[[], list[Event]], sink: Callable[[Event], None]) -> bool:
        """Give what ``read`` gives to ``sink``; say once what goes wrong. True when nothing did."""
        try:
            for event in read():
                sink(event)
        except Exception as error:  # whatever it is, the server must outlive it
            self.counters.read_errors += 1
            reason = f"reading the log failed: {error!r}"
            if self._failure != reason:
                self._failure = reason
                _logger.exception("%s; trying again", reason)
            return False
        if self._failure:
            self._failure = None
            _logger.info("the log is being read again")
        return True

    # --- one round -------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """See whether the files are still what they were, then which files there are."""
        self._set.troubles.clear()
        # In this order: the copy of a file that was cut must be known as one before rotated files are looked through,
        # and where it took the place of an older copy, that must be let go of before.
        for file in sorted(self._set.files, key=lambda file: file.retired_at is None):
            try:
                intact = file.look()
            except OSError as error:
                self._set.lose(file, error)
                continue
            if not intact:
                self._set.cut(file, now)
            if file.bytes_behind:
                self._set.pass_over_copy(file)
                file.grew_at = now
                file.flushed = False
        state_paths = [self._state.path, self._state.temporary_path] if self._state else []
        findings = look(
            self._paths,
            ignored={os.path.realpath(path) for path in state_paths},
            bases={file.path for file in self._set.files},
        )
        self._set.troubles.update(findings.problems)
        if self._begun:
            self._set.update(findings.places, now)
            return
        self._begun = True
        self._set.begin(findings.places, self._state.load() if self._state else (), now)
        self._begin_history()

    def _read(self, max_bytes: int, now: float) -> list[Event]:
        events: list[Event] = []
        busy = True
        while busy and max_bytes > 0:
            busy = False
            for file in tuple(self._set.files):
                if max_bytes <= 0:
                    busy = True
                    break
                if file.closed or file.drained or _waits(file):
                    continue
                seen = file.seen
                try:
                    piece = file.read(self._buffer, self._view)
                except OSError as error:
                    self._set.lose(file, error)
                    continue
                busy = True
                if piece is None:
                    self._set.cut(file, now)
                    max_bytes -= 1
                    continue
                events += piece[0]
                max_bytes -= piece[1]
                self.counters.bytes += file.seen - seen
        self.more = busy
        return events

    def _settle(self, now: float) -> list[Event]:
        """Finish and close the files that have left their path, once their writers have had time to leave them."""
        events: list[Event] = []
        retired = [file for file in self._set.files if file.retired_at is not None and file.drained]
        surplus = len(retired) - _MAX_RETIRED
        for file in retired:
            quiet_seconds = now - max(file.grew_at, file.retired_at or 0.0)
            if quiet_seconds < self._rotate_wait_seconds and surplus <= 0:
                continue
            if not file.flushed:
                try:
                    events += file.finish()
                except OSError as error:
                    self._set.lose(file, error)
                    continue
            # A process may sit on a rotated file for good, but not on a copy; a deleted file keeps its disk space as
            # long as it is held.
            if surplus > 0 or not file.links or file.frozen:
                surplus -= 1
                self._set.close(file)
        return events

    def _finish(self) -> list[Event]:
        events: list[Event] = []
        for _ in range(_LAST_BYTES // POLL_BYTES):
            events += self.poll()
            if not self.more:
                break
        for file in self._set.files:
            found_again = self._state is not None and file.resumable
            with contextlib.suppress(OSError):
                ended = file.retired_at is not None and file.drained and not found_again
                events += file.finish() if ended else file.cutter.scanner.finish()
        return events

    # --- what was written before ------------------------------------------------------------------------------------

    def _begin_history(self) -> None:
        if self._config_scanner_factory is None:
            return
        newest_first = sorted(self._set.files, key=lambda file: -file.modified_ns)
        parts: list[tuple[str, int | None]] = [(file.path, file.offset) for file in newest_first if file.offset]
        live = {file.path for file in newest_first if file.offset and file.retired_at is None}
        held = {file.path for file in newest_first}
        rotated = [path for base in sorted(live) for path in reversed(siblings(base)) if path not in held]
        self._history = ConfigSearch([*parts, *((path, None) for path in rotated)], self._config_scanner_factory)

    def _search_history(self, events: list[Event], max_bytes: int) -> list[Event]:
        """The configuration found in what was written before, when it is found. One read live is newer."""
        if self._history is None:
            return []
        if any(isinstance(event, EngineConfig) for event in events):
            self._history.close()
            self._history = None
            return []
        found = self._history.step(self._buffer, self._view, max_bytes)
        if self._history.done:
            self._history = None
        else:
            self.more = True
        return [found] if found else []

    # --- positions, complaints --------------------------------------------------------------------------------------

    def _save(self, now: float, *, found: bool) -> None:
        """Save before events are given: killed in between, they are lost rather than given again by the next start."""
        if self._state is None:
            return
        due = now - self._saved_at >= _SAVE_SECONDS
        if not due and not self._set.moved and (self.more or not found):
            return
        if due:
            self._saved_at = now
        self._set.moved = False
        self._save_positions(self._state, durable=due)

    def _save_positions(self, state: PositionFile, *, durable: bool) -> None:
        state.save([file.position() for file in self._set.files if file.resumable], durable=durable)

    def _announce(self) -> None:
        """Say what is wrong and what is right again, once."""
        troubles = self._set.troubles
        for path, reason in troubles.items():
            if self._announced.get(path) != reason:
                self.counters.read_errors += 1
                _logger.warning("cannot read the log %s: %s", path, reason)
        for path in self._announced.keys() - troubles.keys():
            _logger.info("%s is no longer a problem", path)
        self._announced = dict(troubles)


def _waits(file: LogFile) -> bool:
    """Whether ``file`` is not to be read yet: the file it took over from has not been read to its end.

    Its first bytes show that the writer has moved on; then the scanner moves on as well, unless a line is unfinished: a
    pair of lines, or the pieces of one, may be on both sides of a rotation.
    """
    older = file.predecessor
    if older is None:
        return False
    if not older.closed and not older.drained:
        return True
    if file.size_bytes <= file.offset:
        file.drained = True
        return True
    file.predecessor = None
    if not older.closed and older.seen == older.offset and not older.cutter.skipping:
        file.cutter.scanner, older.cutter.scanner = older.cutter.scanner, file.cutter.scanner
    return False
