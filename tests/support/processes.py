"""The processes of tests: a command that runs to its end, a child that is talked to, a server beside the test."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

EXPORTER = (sys.executable, "-m", "specdec_exporter")
END_SECONDS = 120.0
START_SECONDS = 180.0  # the machine may be busy
STOP_SECONDS = 20.0


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str, every: float = 0.1) -> None:
    """Ask until ``condition`` holds; ``TimeoutError`` naming ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            msg = f"no {what} within {seconds:g} s"
            raise TimeoutError(msg)
        time.sleep(every)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def unset(**variables: str) -> dict[str, str]:
    """This environment without settings of the exporter, and with these variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SPECDEC_")} | variables


def ran(
    *command: str | Path,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    told: str | None = None,
    seconds: float = END_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with ``told`` as its input; without an ``environment`` it has this one."""
    return subprocess.run(
        list(map(str, command)),
        cwd=directory,
        env=environment,
        input=told,
        stdin=subprocess.DEVNULL if told is None else None,
        capture_output=True,
        encoding="utf-8",
        timeout=seconds,
        check=False,
    )


def said(*command: str | Path, **how: Any) -> str:
    """What a command that must succeed prints; ``how`` is of :func:`ran`."""
    done = ran(*command, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout


def exporter_ran(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``specdec-exporter`` to its end, with no settings but these."""
    return ran(*EXPORTER, *arguments, environment=unset(**variables))


@contextlib.contextmanager
def child(*command: str | Path, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command and talk to it through pipes; ``how`` is of :class:`subprocess.Popen`. It ends with the block."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen[bytes](list(map(str, command)), **(pipes | how)) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A running server that answers HTTP."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")


@contextlib.contextmanager
def started(
    name: str,
    command: Sequence[str | Path],
    *,
    directory: Path,
    ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` from the time that ``ready`` is true; its output goes to ``<name>.log`` in ``directory``.

    ``environment`` is added to ours. A server that ends before it is ready fails with the end of its log.
    """
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C is handled by pytest, which stops all in order
        )

    def answers() -> bool:
        assert process.poll() is None, f"{name} ended with {process.returncode}:\n{_end(log)}"
        return ready()

    try:
        wait_until(answers, seconds=START_SECONDS, what=f"ready {name} ({log})")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


@contextlib.contextmanager
def serving(
    name: str,
    command: Sequence[str | Path],
    *,
    port: int,
    directory: Path,
    ready: str = "/-/ready",
    host: str = "127.0.0.1",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server that listens on ``port`` of ``host``, from the time that it answers the path ``ready``."""
    url = f"http://{host}:{port}"
    answers = partial(_answers, url + ready)
    with started(name, command, directory=directory, ready=answers, environment=environment) as process:
        yield Server(url, process)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


@contextlib.asynccontextmanager
async def beside(name: str, command: Sequence[str | Path], **how: Any) -> AsyncIterator[Server]:
    """The same for a test that goes on answering others while the server starts and ends."""
    with contextlib.ExitStack() as stack:
        starting = asyncio.create_task(asyncio.to_thread(stack.enter_context, serving(name, command, **how)))
        try:
            yield await asyncio.shield(starting)
        finally:
            await asyncio.wait({starting})
            await asyncio.to_thread(stack.close)
