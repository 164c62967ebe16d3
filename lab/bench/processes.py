"""What processes cost: CPU time and memory, of those that end and of those that go on running."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.rows import BenchError

# Bytecode is kept, as in any installation: pip writes it. C: no tool spends time on characters of several bytes.
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "LC_ALL": "C.UTF-8"}

_QUIET_SECONDS = 0.4
_QUIET_CPU_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A process that has ended well: CPU time of all its threads (user and system), and what it printed."""

    cpu_seconds: float
    output: str


def run(*command: str | Path, ends_with: int = 0) -> Run:
    """Run a command to its end; raises BenchError with what it said unless its exit code is ``ends_with``."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=complaints, env=ENVIRONMENT)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != ends_with:
            complaints.seek(0)
            raise BenchError(f"{command} ended with {process.returncode}: {complaints.read().decode()}")
        output.seek(0)
        return Run(usage.ru_utime + usage.ru_stime, output.read().decode())


def python(module: str, *arguments: str | Path, ends_with: int = 0) -> Run:
    """Run a module of ours, or of this directory, with the Python that runs this."""
    return run(sys.executable, "-m", module, *arguments, ends_with=ends_with)


def cpu_seconds(pid: int) -> float:
    """CPU time that a running process has taken, all threads, to the nanosecond (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


async def cpu_when_quiet(pid: int) -> float:
    """CPU seconds so far, as soon as a running process has nothing left to do."""
    async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
        after = cpu_seconds(pid)
        while True:
            before = after
            await asyncio.sleep(_QUIET_SECONDS)
            after = cpu_seconds(pid)
            if after - before < _QUIET_CPU_SECONDS:
                return before


def bytes_read(pid: int) -> int:
    """How much a running process has read, from whatever source."""
    return _figure(pid, "io", "rchar")


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in MiB: now, and the most there ever was."""

    now: float
    peak: float


def memory(pid: int) -> Memory:
    """Return the resident memory of a running process."""
    return Memory(_figure(pid, "status", "VmRSS") / 1024, _figure(pid, "status", "VmHWM") / 1024)


def descriptors(pid: int) -> int:
    """How many files and sockets a running process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def threads(pid: int) -> int:
    """How many threads a running process has."""
    return _figure(pid, "status", "Threads")


def _figure(pid: int, file: str, name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+)", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
    assert found is not None, f"/proc/{pid}/{file} has no {name}"
    return int(found[1])
