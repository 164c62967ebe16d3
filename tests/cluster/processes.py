"""Servers that live as long as the test run: each is started, and stopped, by its own handle."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from running import wait_until

START_SECONDS = 180.0  # the machine may be busy
STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Process:
    """A running server. ``log`` is the file with its output, ``seconds`` how long it took to be ready."""

    name: str
    log: Path
    handle: subprocess.Popen[bytes]
    seconds: float

    @property
    def peak_mib(self) -> float:
        """Most memory that it has had resident, MiB."""
        status = Path(f"/proc/{self.handle.pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def said(self) -> str:
        """Everything that it has logged."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def started(
    name: str,
    command: Sequence[str | Path],
    *,
    directory: Path,
    ready: Callable[[], bool],
    environment: dict[str, str] | None = None,
) -> Iterator[Process]:
    """Run ``command`` from the time that ``ready`` is true; its output goes to ``<name>.log`` in ``directory``.

    ``environment`` is added to ours. A server that ends before it is ready fails with the end of its log.
    """
    log = directory / f"{name}.log"
    begun = time.monotonic()
    with log.open("wb") as output:
        handle = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C is handled by pytest, which stops all in order
        )

    def answers() -> bool:
        assert handle.poll() is None, f"{name} ended with {handle.returncode}:\n{_end(log)}"
        return ready()

    try:
        wait_until(answers, seconds=START_SECONDS, what=f"ready {name} ({log})")
        yield Process(name, log, handle, time.monotonic() - begun)
    finally:
        handle.terminate()
        try:
            handle.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            handle.kill()
            handle.wait()


def _end(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
