"""Following the log files of one predictor through rotation, truncation, copies and restarts.

A path only says where to look; identity and content say which file it is. The follower keeps a rotated file open,
because a process may still write to it: a handler that has not reopened yet, or another process of a multi-process
``RotatingFileHandler``, which may write to ``.1`` or ``.2`` for good. Bytes that may have been read before count as
read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Generator, Sequence

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig, Event
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, Scanner
from specdec_exporter.predictor.sources.aside import Aside
from specdec_exporter.predictor.sources.fileset import FileSet, Start
from specdec_exporter.predictor.sources.history import search_start
from specdec_exporter.predictor.sources.logfile import Identity, LogFile, Position
from specdec_exporter.predictor.sources.places import Directories, Findings, look
from specdec_exporter.predictor.sources.positions import PositionFile, Saved

_logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
POLL_BYTES = 1024 * 1024  # takes one or two milliseconds
ROTATE_WAIT_SECONDS = 5.0
HURRY_SECONDS = 1.0  # after a rotation, in which looks are 20 times as frequent: some rotators keep few files

_MAX_RETIRED = 16  # rotated files kept open
_SAVE_SECONDS = 10.0
_LAST_BYTES = 64 * POLL_BYTES  # read when stopping, which so takes about a second at most
_LONGEST_BACKOFF_SECONDS = 30.0
_REST = 20  # rests this many times as long as a round takes, so that a directory of many files costs 5 % of a core
_MISSING_SECONDS = 20.0  # without a log file before it is said: the predictor may start later
_LATE_SECONDS = 10.0  # a round that takes longer is a problem: a network file system that does not answer
_SILENT_SECONDS = 60.0  # then a file may yield its place to one beyond the bound


class LogFollower:
    """Reads one predictor's log files as they grow: each line once if its bytes still exist, and never twice.

    ``paths`` are paths and globs of regular files. ``start`` says where to begin in the files that exist at the first
    look; later files are read whole. ``scanner_factory`` makes a scanner for each file. With
    ``config_scanner_factory``, the follower also searches the part before the start for the last arguments and the last
    engine configuration and gives them as events, unless it reads a newer configuration first. ``state_path`` is the
    position file. The scanners may share ``counters``.

    :meth:`poll` is one bounded, synchronous round; :meth:`follow` repeats it in a thread.
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
        olddir: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = counters
        self.more = False  # the last poll left work undone
        self._paths = tuple(dict.fromkeys(paths))
        self._config_scanner_factory = config_scanner_factory
        self._state = PositionFile(state_path, counters) if state_path else None
        self._ignored = [self._state.path, self._state.temporary_path] if self._state else []
        self._set = FileSet(self._paths, scanner_factory, counters, start, Directories(olddir, self._ignored))
        self._clock = clock
        self._buffer = bytearray(CHUNK_BYTES)
        self._history: Generator[int, None, list[Event]] | None = None
        self._announced: dict[str, str] = {}
        self._failure: str | None = None
        self._aside = Aside()
        self._left_out = 0  # files beyond the bound at the last look
        self._rest_seconds = 0.0
        self._begun = False
        self._closed = False
        self._seen_at = self._saved_at = clock()
        self._said_missing = False
        self._hurries_until = 0.0  # looks are more frequent until then

    @property
    def problem(self) -> str | None:
        """Why the log cannot be read; None if it can."""
        if self._failure:
            return self._failure
        for path, reason in self._announced.items():
            return f"cannot read the log {path}: {reason}"
        if not self._set.files or self._said_missing:
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
        self._look(now)
        events = self._read(max_bytes, now)
        events += self._settle(now)
        events[:0] = self._search_history(events, max_bytes)
        self.counters.bytes_behind = sum(file.bytes_behind for file in self._set.files)
        self._announce()
        self._announce_missing(now)
        self._save(now, found=bool(events))
        self.counters.round_seconds = time.perf_counter() - began
        self._rest_seconds = _REST * (time.thread_time() - began_work)
        return events

    def close(self, *, final: bool = True) -> list[Event]:
        """Save the positions and close all files. If ``final``, first read what has come.

        An unterminated last line is left to the next start where its file still stands under its path, because the
        writer may be in the middle of it. In a rotated file it counts, unless the next start will find that file.
        """
        if self._closed:
            return []
        try:
            return self._finish() if final else []
        finally:
            self._closed = True
            if self._history:
                self._history.close()
            if self._begun:
                self._save_positions(durable=True)
            for file in self._set.files:
                file.close()
            self._set.files.clear()

    async def follow(self, sink: Callable[[Event], None], stop: asyncio.Event) -> None:
        """Give events to ``sink`` until ``stop`` is set, then :meth:`close`. No exception ends it.

        Cancel it if it does not come back, because a file system hangs; then nothing is saved any more.
        """
        failures = 0
        try:
            while not stop.is_set():
                failures = 0 if await self._survive(self.poll, sink) else failures + 1
                if self.more and not failures:
                    continue
                poll_seconds = POLL_SECONDS / (20 if self._clock() < self._hurries_until else 1)
                wait_seconds = max(poll_seconds * 2 ** min(failures, 10), self._rest_seconds)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), min(wait_seconds, _LONGEST_BACKOFF_SECONDS))
            await self._survive(self.close, sink)
        except asyncio.CancelledError:
            self._state = None  # another follower may use it when the thread goes on
            raise
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

    def _look(self, now: float) -> None:
        """Check the open files, then look for others."""
        self._set.troubles.clear()
        # Rotated files first: a copy that replaced an older copy needs the older one closed. All of them before the
        # paths: a copy of a truncated file must be known before the search for rotated files.
        for file in sorted(self._set.files, key=lambda file: file.retired_at is None):
            try:
                intact = file.look()
            except OSError as error:
                self._set.lose(file, error)
                continue
            if not intact:
                self._set.cut(file, now)
            if file.bytes_behind:
                file.grew_at = now
                file.flushed = False
        saved = self._state.load() if self._state and not self._begun else Saved()
        findings = look(self._paths, ignored=self._ignored, active=self._active(saved.files, now))
        self._set.troubles.update(findings.problems)
        self._note_left_out(findings)
        if self._begun:
            rotations = self.counters.rotations
            self._set.update(findings, now)
            if self.counters.rotations > rotations:
                self._hurries_until = now + HURRY_SECONDS
            return
        self._begun = True
        self._set.begin(findings, saved, now)
        self._begin_history()

    def _active(self, positions: Sequence[Position], now: float) -> set[Identity]:
        """Return the files that must not yield their place: there is more to read in them, or may be soon."""
        active = {position.identity for position in positions}
        for file in self._set.files:
            if file.bytes_behind or now - file.grew_at < _SILENT_SECONDS:
                active.add(file.identity)
        return active

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
                    piece = file.read(self._buffer)
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
                if file.seen > seen:
                    file.grew_at = now
        self.more = busy
        return events

    def _settle(self, now: float) -> list[Event]:
        """Finish and close rotated files after their writers have had time to leave them."""
        events: list[Event] = []
        retired = [file for file in self._set.files if file.retired_at is not None and file.drained]
        surplus = len(retired) - _MAX_RETIRED
        for file in retired:
            quiet_seconds = now - max(file.grew_at, file.retired_at or 0.0)
            if quiet_seconds < ROTATE_WAIT_SECONDS and surplus <= 0:
                continue
            if not file.flushed:
                try:
                    events += file.finish()
                except OSError as error:
                    self._set.lose(file, error)
                    continue
            # Keep a rotated file: a process may go on writing to it. Nobody writes to a copy, and a deleted file takes
            # disk space as long as it is open.
            if surplus > 0 or not file.links or file.copied:
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
            found_again = self._state is not None and file.links
            with contextlib.suppress(OSError):
                ended = file.retired_at is not None and file.drained and not found_again
                events += file.finish() if ended else file.cutter.scanner.finish()
        return events

    # --- the part before the start ----------------------------------------------------------------------------------

    def _begin_history(self) -> None:
        if self._config_scanner_factory is None:
            return
        newest_first = sorted(self._set.files, key=lambda file: -file.modified_ns)
        parts: list[tuple[str, int | None]] = [(file.path, file.offset) for file in newest_first if file.offset]
        live = {file.path for file in newest_first if file.offset and file.retired_at is None}
        held = {file.path for file in newest_first}
        for base in sorted(live):
            parts += [(path, None) for path in reversed(self._set.beside(base)) if path not in held]
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

    # --- positions, problems ----------------------------------------------------------------------------------------

    def _save(self, now: float, *, found: bool) -> None:
        """Save before events are given. A kill in between loses them, but the next start does not count them twice."""
        due = now - self._saved_at >= _SAVE_SECONDS
        if due or self._set.moved or found:
            if due:
                self._saved_at = now
            self._set.moved = False
            self._save_positions(durable=due)

    def _save_positions(self, *, durable: bool) -> None:
        if state := self._state:
            state.save(self._paths, self._set.positions, durable=durable)

    def _announce(self) -> None:
        """Log each problem once when it begins and once when it ends."""
        troubles = self._set.troubles
        for path, reason in troubles.items():
            if self._announced.get(path) != reason:
                self.counters.read_errors += 1
                _logger.warning("cannot read the log %s: %s", path, reason)
        for path in self._announced.keys() - troubles.keys():
            _logger.info("the problem with the log %s is over", path)
        self._announced = dict(troubles)

    def _announce_missing(self, now: float) -> None:
        """Say once that no path has a file, when that has lasted, and once that one has."""
        if self._announced or any(file.retired_at is None for file in self._set.files):
            if self._said_missing:
                _logger.info("there is a log file at %s now", ", ".join(self._paths))
            self._seen_at, self._said_missing = now, False
        elif now - self._seen_at >= _MISSING_SECONDS and not self._said_missing:
            self._said_missing = True
            _logger.warning("there is no log file at %s; waiting for one", ", ".join(self._paths))


def _waits(file: LogFile) -> bool:
    """Whether ``file`` must wait, because its predecessor has not been read to its end.

    The first bytes of ``file`` show that the writer has moved on. Then it takes over the predecessor's scanner, because
    two lines that belong together, or parts of one line, may stand on both sides of a rotation. A predecessor with an
    unfinished line keeps its scanner.
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
