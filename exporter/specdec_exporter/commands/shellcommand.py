"""Shell commands of the operator: one that restarts the predictor, one that sends it requests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from specdec_exporter.errors import BaselineError
from specdec_exporter.formatting import plain

_LINES_SHOWN = 10  # of a failed command's output
_OUTPUT_BYTES = 16_384
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.2
# Again and again, until it fails: a load generator with a fixed list of prompts may end before the recording does.
_AGAIN = "while :; do\n(\n{}\n) || exit $?\nsleep 1\ndone"

_T = TypeVar("_T")


def run(command: str, variables: dict[str, str], limit_seconds: float) -> None:
    """Run the restart command. Raises :class:`BaselineError` with its last lines if it fails or takes too long."""
    # A file, not a pipe: a server that the command leaves running may hold its output open.
    with _output_file() as output:
        process = _start(command, variables, output)
        try:
            code = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            _stop(process)
            raise BaselineError(
                f"the restart command has not ended within {limit_seconds:g} s: it must start the predictor in the "
                f"background{_last_lines(output)}"
            ) from None
        except BaseException:
            _stop(process)
            raise
        if code:
            raise BaselineError(f"the restart command failed with {_how(code)}{_last_lines(output)}")


class Load:
    """The load command: it runs again and again from ``start`` to the end of the ``with`` block; ``None``: none."""

    def __init__(self, command: str | None, variables: dict[str, str]) -> None:
        self._command = command
        self._variables = variables
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._output = _output_file()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            _stop(self._process)
        self._output.close()

    def start(self) -> None:
        """Start the command, if there is one."""
        if self._command is not None:
            self._process = _start(_AGAIN.format(self._command), self._variables, self._output)

    async def during(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what ``work`` returns. Raises :class:`BaselineError` with its last lines if the command fails."""
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(self._failed())
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                watch.result()
            return await task
        finally:
            watch.cancel()
            task.cancel()

    async def _failed(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            code = None if self._process is None else self._process.poll()
            if code is not None:
                raise BaselineError(f"the load command failed with {_how(code)}{_last_lines(self._output)}")


def _output_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:  # a read-only root
        raise BaselineError(
            f"cannot keep a command's output: {error.strerror}; set TMPDIR, or run this elsewhere"
        ) from error


def _start(command: str, variables: dict[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    # In a session of its own, a server that the command leaves running also survives Ctrl-C here.
    try:
        return subprocess.Popen(  # noqa: S602  the operator's own command line
            command,
            shell=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
        )
    except OSError as error:  # the image has no shell
        raise BaselineError(f"cannot run {command!r}: expected a shell, found: {error.strerror or error}") from error


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the command and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _how(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _last_lines(output: IO[bytes]) -> str:
    output.seek(max(output.seek(0, os.SEEK_END) - _OUTPUT_BYTES, 0))
    lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "; it printed nothing"
    return "\n  ".join(["; its last lines:", *map(plain, lines[-_LINES_SHOWN:])])
