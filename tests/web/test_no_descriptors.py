"""No descriptors: the exporter says so in a metric, stays up, and is well again afterwards."""

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


async def test_a_log_that_cannot_be_opened_degrades_only_what_needs_it(tmp_path: Path) -> None:
    log = Log(tmp_path / "vllm.log")
    log.write("before")
    arguments = (f"--predictor.log-path={log.path}", "--predictor.url=http://127.0.0.1:1")
    async with exporter(*arguments) as running:
        log.write(HEADER + SPEC)
        await running.until(lambda now: now.get(WINDOWS) == 1)
        log.rotate()
        log.write(HEADER + SPEC)
        with limited(running, resource.RLIMIT_NOFILE, 4):
            await running.until(lambda now: now[ERRORS] > 0 and not now[SUCCESS])
            await running.said("Too many open files")
        await running.until(lambda now: now.get(WINDOWS) == 2 and now[SUCCESS] == 1)
        await running.said("the problem with the log")
        assert not [line for line in running.log if "Traceback" in line]
