"""A thread for what may block: a file system that hangs must hang nothing else."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


class Aside:
    """Makes calls one after the other in a thread of its own.

    Unlike an executor's, the thread is a daemon: a call that hangs does not keep the process from ending.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, function: Callable[[], Result]) -> Result:
        """Return what ``function`` returns, or raise what it raises. Cancelling does not stop it."""
        outcome: Future[Result] = Future()
        outcome.set_running_or_notify_cancel()  # from here on it cannot be cancelled

        def call() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:  # noqa: BLE001  raised where the result is awaited
                outcome.set_exception(error)

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="log reader", daemon=True)
            self._thread.start()
        self._calls.put(call)
        return await asyncio.wrap_future(outcome)

    def end(self) -> None:
        """Let the thread end after the calls so far."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
