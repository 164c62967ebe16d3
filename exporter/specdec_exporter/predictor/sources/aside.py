"""A thread for what may block: a file system that hangs must hang nothing else."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
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
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result] = loop.create_future()

        def deliver(result: Result | None, error: BaseException | None) -> None:
            if done.done():  # nobody waits any more
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def call() -> None:
            result, failure = None, None
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  raised where the result is awaited
                failure = error
            try:
                loop.call_soon_threadsafe(deliver, result, failure)
            except RuntimeError:  # the loop has been closed meanwhile
                return

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="log reader", daemon=True)
            self._thread.start()
        self._calls.put(call)
        return await done

    def end(self) -> None:
        """Let the thread end after the calls so far."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
