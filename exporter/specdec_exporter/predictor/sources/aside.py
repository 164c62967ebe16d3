"""Running what may block in a thread of its own: a file system that hangs must hang nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(function: Callable[[], Result]) -> Result:
    """Return what ``function`` returns, or raise what it raises.

    Unlike ``asyncio.to_thread``, this neither waits for other calls that hang nor keeps the process from ending: the
    thread is a daemon. Cancelling leaves the thread to itself.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def deliver(outcome: Callable[[], None]) -> None:
        if not done.done():  # somebody still waits
            outcome()

    def run() -> None:
        try:
            result = function()
            outcome = lambda: done.set_result(result)  # noqa: E731
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            failure = error
            outcome = lambda: done.set_exception(failure)  # noqa: E731
        try:
            loop.call_soon_threadsafe(deliver, outcome)
        except RuntimeError:  # the loop has been closed meanwhile
            return

    threading.Thread(target=run, name="log reader", daemon=True).start()
    return await done
