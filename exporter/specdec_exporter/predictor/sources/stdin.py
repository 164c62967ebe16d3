"""Following a log that its writer sends through a pipe."""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import Callable

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.lines import Scanner
from specdec_exporter.predictor.sources.stream import Pieces, deliver

_logger = logging.getLogger(__name__)

_LAST_BYTES = 64 * 1024 * 1024  # read at most this much after the order to stop: the writer may never stop


class StreamFollower:
    """Follows the log on an open descriptor, usually stdin, until its writer closes it. Used like ``LogFollower``.

    The descriptor's flags stay as they are, because a shell or the predictor may share it.
    """

    def __init__(self, fd: int, scanner: Scanner, *, counters: ReaderCounters) -> None:
        self.counters = counters
        self.problem: str | None = None  # why the log cannot be read
        self.ended = False  # nothing more will be read
        self._fd = fd
        self._pieces = Pieces(scanner, counters)

    async def begin(self) -> None:
        """Do nothing: a stream is read from its first byte."""

    async def follow(self, sink: Callable[[Event], None], stop: asyncio.Event) -> None:
        """Give events to ``sink`` until the stream ends or ``stop`` is set; then read what the pipe still holds."""
        loop = asyncio.get_running_loop()
        wakened = asyncio.Event()
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda _: wakened.set())
        always_ready = False
        try:
            loop.add_reader(self._fd, wakened.set)
        except PermissionError:  # epoll refuses regular files and /dev/null; reading them never waits
            always_ready = True
        except OSError as error:
            self._fail(error)
        try:
            while not stop.is_set() and not self.ended:
                if not always_ready:
                    await wakened.wait()
                    wakened.clear()
                if always_ready or self._is_ready():
                    self._read(sink)
                await asyncio.sleep(0)
        finally:
            if not always_ready:
                loop.remove_reader(self._fd)
            stopping.cancel()
            self._drain(sink)

    def _is_ready(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))

    def _read(self, sink: Callable[[Event], None]) -> int:
        """Read one piece; return the number of bytes, 0 at the end."""
        try:
            count = os.readv(self._fd, [self._pieces.space])
        except BlockingIOError:
            return 0
        except OSError as error:
            self._fail(error)
            return 0
        if count:
            self._deliver(self._pieces.take(count), sink)
        else:
            self.ended = True
            self._deliver(self._pieces.finish(), sink)
            _logger.info("the log on stdin has ended")
        return count

    def _drain(self, sink: Callable[[Event], None]) -> None:
        budget = _LAST_BYTES
        while budget > 0 and not self.ended and self._is_ready() and (count := self._read(sink)):
            budget -= count
        if not self.ended:
            # The writer goes on, so the unterminated line may be cut in the middle of a number.
            self.ended = True
            self._deliver(self._pieces.finish(ended=False), sink)

    def _deliver(self, events: list[Event], sink: Callable[[Event], None]) -> None:
        deliver(events, sink, self.counters, "the log on stdin")

    def _fail(self, error: OSError) -> None:
        self.ended = True
        self.problem = f"cannot read the log on stdin: {error.strerror}"
        self.counters.read_errors += 1
        _logger.error("%s", self.problem)
