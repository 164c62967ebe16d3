"""Servers as child processes: start them, wait until they answer, stop them by their own handle."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp

_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0


class ProcessError(Exception):
    """A server did not start, or has ended. The message names it and ends with the last lines of its log."""


class Server:
    """One running server. ``url`` is its base URL, and ``log`` the file with its output."""

    def __init__(self, name: str, url: str, log: Path, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.url = url
        self.log = log
        self.process = process

    def check(self) -> None:
        """Raise :class:`ProcessError` if it has ended."""
        if self.process.returncode is not None:
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
            raise ProcessError(f"{self.name} ended with exit code {self.process.returncode}:\n{last}")

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if that does not end it."""
        if self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def running(
    name: str, command: Sequence[str | Path], *, port: int, ready: str, directory: Path, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """Run ``command``, which listens on ``port`` of ``host``; yields once the path ``ready`` answers 200.

    Its output goes to ``<name>.log`` in ``directory``. Raises :class:`ProcessError`.
    """
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,  # Ctrl-C is handled by the parent, which stops all in order
        )
    server = Server(name, f"http://{host}:{port}", log, process)
    try:
        await _until_ready(server, ready)
        yield server
    finally:
        await server.stop()


async def _until_ready(server: Server, path: str) -> None:
    async with aiohttp.ClientSession() as session:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_SECONDS):
                while True:
                    server.check()
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(server.url + path) as response:
                            if response.ok:
                                return
                    await asyncio.sleep(0.05)
    raise ProcessError(f"{server.name} was not ready within {_READY_SECONDS:.0f} s; its log is {server.log}")
