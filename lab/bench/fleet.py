"""A fleet of exporters for a Prometheus to scrape: the page of a real one, under as many names as wanted."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from specdec_exporter.histogram import Histogram
from support.builders import CAPTURES
from support.rulelint import series_types
from support.running import exporter, predictor

CAPTURE = CAPTURES / "0.32.0-ngram-k5"
# The capture saw 4 requests with 28 drafts. Every minute brings five times that: in 30 minutes enough for every guard.
GROWTH_PER_MINUTE = 5.0
SCRAPE_SECONDS = 60  # as the pack assumes (scrape_interval_seconds)
PAST_MINUTES = 36  # what the first scrape brings: windows of 30 minutes are full at once
SERVICES_PER_CONTROL = 10
SLIS = {"tpot": "time_per_output_token", "ttft": "time_to_first_token", "e2e": "request_latency"}


def service_name(number: int) -> str:
    """One in ten has the name of a live control of its neighbour, so that rules pay for controls, too."""
    last = number % SERVICES_PER_CONTROL == SERVICES_PER_CONTROL - 1
    return f"service-{number - 1:04}-control" if last else f"service-{number:04}"


def targets(address: str, services: int) -> list[dict[str, Any]]:
    """Static configurations of Prometheus: one target for each service, with the labels that a PodMonitor gives."""
    return [
        {
            "targets": [address],
            "labels": {
                "cluster": "eu-1",
                "namespace": f"team-{number // SERVICES_PER_CONTROL:03}",
                "inference_service": name,
                "pod": f"{name}-predictor-0",
                "instance": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:10409",
                "__param_service": name,
            },
        }
        for number, name in ((number, service_name(number)) for number in range(services))
    ]


class Page:
    """An exporter's exposition as it goes on counting."""

    def __init__(self, exposition: str) -> None:
        types = series_types(exposition)
        self._counters: list[tuple[str, float]] = []
        self._gauges: list[tuple[str, float]] = []
        for line in [*exposition.splitlines(), *_baselines(exposition)]:
            if line and not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                samples = self._counters if types.get(series.partition("{")[0]) == "counter" else self._gauges
                samples.append((_without(series, "inference_service"), float(value)))
        self._epoch = time.time() - 86400
        self.at_second = lru_cache(maxsize=2)(self._at_second)

    @property
    def series(self) -> int:
        """Series of one service."""
        return len(self._counters) + len(self._gauges)

    def past(self) -> bytes:
        """The last minutes, every sample with its time."""
        now = time.time()
        times = [now - SCRAPE_SECONDS * ago for ago in reversed(range(PAST_MINUTES))]
        scales = [(self._scale(at), int(at * 1000)) for at in times]
        lines = [f"{series} {value * scale} {at}\n" for series, value in self._counters for scale, at in scales]
        lines += [f"{series} {value} {at}\n" for series, value in self._gauges for _, at in scales]
        return "".join(lines).encode()

    def _at_second(self, now: int) -> bytes:
        scale = self._scale(now)
        lines = [f"{series} {value * scale}\n" for series, value in self._counters]
        return "".join([*lines, *(f"{series} {value}\n" for series, value in self._gauges)]).encode()

    def _scale(self, at: float) -> float:
        return GROWTH_PER_MINUTE * (at - self._epoch) / 60


def real_page() -> Page:
    """Ask a real exporter, beside a stand-in that plays a capture of vLLM, with its log."""
    return Page(asyncio.run(_exposition()))


@contextmanager
def serving(page: Page) -> Iterator[str]:
    """Answer scrapes of ``?service=NAME``: the past first, then what is now; yield host and port."""
    met: set[str] = set()
    past = page.past()

    def answer(service: str) -> bytes:
        if service in met:
            return page.at_second(int(time.time()))
        met.add(service)
        return past

    with exposing(answer) as address:
        yield address


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of scrapers that are stopped."""
        if not isinstance(sys.exception(), ConnectionResetError):
            super().handle_error(request, client_address)


@contextmanager
def exposing(answer: Callable[[str], bytes]) -> Iterator[str]:
    """Answer scrapes of ``?service=NAME`` with the exposition that ``answer`` has for it; yield host and port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = answer(parse_qs(urlsplit(self.path).query)["service"][0])
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def _exposition() -> str:
    async with predictor((CAPTURE / "metrics-1-good-copy.txt").read_bytes()) as standing_in:
        arguments = (
            f"--predictor.url={standing_in.url}",
            f"--predictor.log-path={CAPTURE / 'server.log'}",
            "--predictor.log-from=start",
        )
        async with exporter(*arguments) as running:
            await running.until(lambda samples: any('method="ngram' in series for series in samples))
            return await running.get("/metrics")


def _baselines(exposition: str) -> Iterator[str]:
    """What the exporter serves of a baseline file, from its own histograms."""
    for sli, name in SLIS.items():
        family = f"specdec_{name}_seconds"
        found = dict(re.findall(rf'^{family}_bucket{{.*le="([^"]+)".*}} (\S+)$', exposition, re.MULTILINE))
        if not found:
            continue
        (total,) = re.findall(rf"^{family}_sum{{.*}} (\S+)$", exposition, re.MULTILINE)
        counts = tuple(1000 * float(count) for count in found.values())
        whole = Histogram(tuple(map(float, found)), counts, 1000 * float(total))
        for stat, value in {"mean": whole.mean, "p99": whole.interpolated(0.99)}.items():
            yield f'specdec_baseline_latency_seconds{{model_name="tiny",sli="{sli}",stat="{stat}"}} {value}'
        if sli == "tpot":
            served = whole.tail(0.9)
            for le, count in served.buckets():
                yield f'specdec_baseline_{name}_seconds_bucket{{model_name="tiny",le="{le}"}} {count}'
            yield f'specdec_baseline_{name}_seconds_sum{{model_name="tiny"}} {served.sum}'
            yield f'specdec_baseline_{name}_seconds_count{{model_name="tiny"}} {served.count}'
    yield 'specdec_baseline_load_ratio{model_name="tiny"} 1'
    yield 'specdec_baseline_recorded_timestamp_seconds{model_name="tiny"} 1.7698608e+09'
    yield 'specdec_baseline_acceptance_ratio{model_name="tiny"} 0.9'
    yield 'specdec_baseline_mean_acceptance_length{model_name="tiny"} 5.5'


def _without(series: str, label: str) -> str:
    return re.sub(rf'(?<=[{{,]){label}="[^"]*",?', "", series).replace(",}", "}").replace("{}", "")
