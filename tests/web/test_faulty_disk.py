"""No space, no descriptors, no directory: the exporter says so in a metric, stays up, and is well again afterwards."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

from support.logfiles import Log
from support.loglines import HEADER, SPEC
from support.running import Exporter, exporter

NAME = 'inference_service="default"'
WINDOWS = f'specdec_log_windows_total{{engine="0",{NAME},model_name=""}}'
ERRORS = f"specdec_log_reader_read_errors_total{{{NAME}}}"
SUCCESS = f'specdec_scrape_collector_success{{collector="log",{NAME}}}'


@contextlib.contextmanager
def limited(running: Exporter, kind: int, limit: int) -> Iterator[None]:
    """Take a resource from the running process for a while."""
    usual = resource.prlimit(running.process.pid, kind)
    resource.prlimit(running.process.pid, kind, (limit, usual[1]))
    try:
        yield
    finally:
        resource.prlimit(running.process.pid, kind, usual)


async def test_a_disk_that_fails_degrades_only_what_needs_it(tmp_path: Path) -> None:
    log, state = Log(tmp_path / "vllm.log"), tmp_path / "state"
    log.write("before")
    state.mkdir()
    written = 0

    async def write_and_read(*, read: bool = True, saved: str = "") -> dict[str, float]:
        """Write a window and wait until it counts; if ``read`` is false, until the failure counts."""
        nonlocal written
        log.write(HEADER + SPEC)
        written += 1
        before = (await running.samples())[ERRORS]
        running.log.clear()
        samples = await running.until(
            lambda now: now[ERRORS] > before and not now[SUCCESS] if not read else now.get(WINDOWS) == written
        )
        if saved:
            await running.said(saved)
        return samples

    async with exporter(
        f"--predictor.log-path={log.path}",
        f"--predictor.log-state={state / 'positions'}",
        "--predictor.url=http://127.0.0.1:1",
    ) as running:
        assert (await write_and_read())[ERRORS] == 0
        with limited(running, resource.RLIMIT_FSIZE, 0):
            full = await write_and_read(saved="File too large; going on without them")
            assert (full[ERRORS] >= 1, full[SUCCESS]) == (True, 1)
        await write_and_read(saved="log positions are saved again")

        state.rename(tmp_path / "away")
        assert (await write_and_read(saved="No such file or directory; going on"))[SUCCESS] == 1
        (tmp_path / "away").rename(state)
        await write_and_read(saved="log positions are saved again")

        log.rotate()
        with limited(running, resource.RLIMIT_NOFILE, 4):
            await write_and_read(read=False, saved="Too many open files")
        await running.until(lambda now: now.get(WINDOWS) == written and now[SUCCESS] == 1)
        await running.said("the problem with the log")
        assert not [line for line in running.log if "Traceback" in line]
