"""One verdict, wherever it is asked for: the function, the exporter's API, ``check``, and the rule pack's record.

Each case is a predictor that a real server plays. The rules see what the exporter served of it, as half an hour of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from builders import known
from loglines import ARGUMENTS_HEADER
from rules.scenario import SLOW_MINUTES, Case, Pack, Series
from running import Exporter, exporter, listening, printed
from specdec_exporter.baseline.file import Baseline, write_baseline
from specdec_exporter.commands.livecheck import check
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.facts import DecodingBaseline, Evidence, StateName
from specdec_exporter.speculation.figures import figures
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.sentences import SUSPECTED

# What the record says; without a sample it says nothing, which is what "unknown" and "off" are.
ENUM = {"idle": 0, "healthy": 1, "watch": 2, "not_paying": 3, "harmful": 4, "broken": 5, "unknown": None, "off": None}
ENUM["slower"] = 6
# An alert about what speculation is worth fires only where the verdict is at least as bad; slower says that it is fine.
ALERTS = {"SpecDecodeHarmful": 4, "SpecDecodeNotPayingOff": 3, "SpecDecodeAcceptanceLow": 2}
MINUTES = 45
LONG_WINDOW_MINUTES = 30
BASELINE_SECONDS = 0.02
BASELINE_REQUESTS = 5000.0
BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, float("inf"))

RATES = (0.05, 0.2, 0.35, 0.45, 0.55, 0.7, 0.9)
METHODS = (None, "eagle3", "ngram", "ngram_gpu", "suffix", "deepseek_mtp", "medusa")
KS = (1, 3, 8)
DRAFTS = (0, 40, 2000)
# Time per output token over that of a baseline, and whether that was recorded with drafts; or no baseline.
BASELINES = (
    None,
    (0.5, False),
    (1.0, False),
    (1.2, False),
    (1.6, False),
    (0.5, True),
    (1.1, True),
    (1.2, True),
    (1.6, True),
)
# A slow request takes this much time per output token; the baseline has none.
SLOW_SECONDS = 0.06
REQUESTS = (20, 1000)


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """One case: what a predictor did between two readings. ``drafts`` 0: nothing is drafted, ``requests`` or not."""

    name: str
    rate: float
    method: str | None
    k: int
    drafts: int
    baseline: tuple[float, bool] | None
    requests: int
    slow: int = 0  # of the requests
    head: float | None = None  # accepted at position 0, where vLLM verifies only part of each draft
    busy: bool = False  # whether a large batch decodes

    @property
    def accepted(self) -> tuple[int, ...]:
        """At each position."""
        first = self.rate if self.head is None else self.head
        return tuple(round(rate * self.drafts) for rate in (first, *[self.rate] * (self.k - 1)))

    @property
    def seconds(self) -> float:
        return BASELINE_SECONDS * (self.baseline[0] if self.baseline else 1.0)

    @property
    def state(self) -> StateName:
        return "drafting" if self.drafts else "not_drafting" if self.requests else "idle"

    def judged(self) -> str:
        counts = Counts(
            drafts=self.drafts,
            draft_tokens=self.drafts * self.k,
            accepted_tokens=sum(self.accepted),
            accepted_per_position=self.accepted,
            timed_requests=self.requests,
            output_token_seconds=self.requests * self.seconds,
            timed_bounds=BOUNDS,
            timed_within=tuple(float(self.within(bound)) for bound in BOUNDS),
        )
        against = None
        if self.baseline is not None:
            times = known(known(self.recorded()).time_per_output_token_seconds)
            against = DecodingBaseline(BASELINE_SECONDS, BASELINE_REQUESTS, speculative=self.baseline[1], times=times)
        partly = self.head is not None
        evidence = Evidence(
            state=self.state,
            figures=figures(
                counts, self.k, "metrics", 1.0, adaptive_verification=partly, concurrency=1000.0 if self.busy else 0.0
            ),
            deployment=Deployment(adaptive_verification=partly),
            method=self.method,
            num_speculative_tokens=self.k,
            baseline=against,
        )
        return judge(evidence, load_policy()).verdict.code

    def within(self, bound: float) -> int:
        """How many of the requests have at most this time per output token. Slow ones leave the others less."""
        usual = self.seconds
        if self.slow:
            usual = (self.requests * self.seconds - self.slow * SLOW_SECONDS) / (self.requests - self.slow)
        return (self.requests - self.slow) * (usual <= bound) + self.slow * (bound >= SLOW_SECONDS)

    def exposition(self, *, done: bool) -> str:
        """The predictor's metrics before (nothing) and after (everything)."""
        times = float(done)
        labels = 'model_name="tiny",engine="0"'
        steps = self.drafts or self.requests * 10
        counters = {
            "spec_decode_num_drafts": self.drafts,
            "spec_decode_num_draft_tokens": self.drafts * self.k,
            "spec_decode_num_accepted_tokens": sum(self.accepted),
            "generation_tokens": steps + self.requests + sum(self.accepted),
        }
        lines = []
        for name, value in counters.items():
            lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}_total{{{labels}}} {times * value}"]
        name = "vllm:spec_decode_num_accepted_tokens_per_pos"
        lines.append(f"# TYPE {name} counter")
        for position, accepted in enumerate(self.accepted):
            lines.append(f'{name}_total{{{labels},position="{position}"}} {times * accepted}')
        histograms = {
            "request_time_per_output_token_seconds": (self.requests, self.seconds),
            "time_to_first_token_seconds": (self.requests, 0.02),
            "inter_token_latency_seconds": (steps, 100.0 if self.busy else 1e-6),  # whatever the time between readings
        }
        for name, (count, mean) in histograms.items():
            lines.append(f"# TYPE vllm:{name} histogram")
            for bound in BOUNDS:
                le = "+Inf" if bound == float("inf") else repr(bound)
                within = times * (count if mean <= bound else 0)
                if name.startswith("request_time"):
                    within = times * self.within(bound)
                lines.append(f'vllm:{name}_bucket{{{labels},le="{le}"}} {within}')
            lines.append(f"vllm:{name}_sum{{{labels}}} {times * count * mean}")
            lines.append(f"vllm:{name}_count{{{labels}}} {times * count}")
        lines += ["# TYPE vllm:num_requests_running gauge", f"vllm:num_requests_running{{{labels}}} 0"]
        return "\n".join(lines) + "\n"

    def log(self) -> str:
        """The engine-init line, where there is a method to be told, and before it the one of arguments."""
        if self.method is None:
            return ""
        given = {"method": self.method, "num_speculative_tokens": self.k, "enable_adaptive_verification": True}
        arguments = f"{ARGUMENTS_HEADER}non-default args: {{'model': 'tiny', 'speculative_config': {given}}}\n"
        config = f"SpeculativeConfig(method='{self.method}', model=None, num_spec_tokens={self.k})"
        return ("" if self.head is None else arguments) + (
            "INFO 11-20 21:44:42 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='tiny', "
            f"speculative_config={config}, tokenizer='tiny', served_model_name=tiny\n"
        )

    def recorded(self) -> Baseline | None:
        if self.baseline is None:
            return None
        drafted = Counts(drafts=1000, draft_tokens=3000, accepted_tokens=2000, accepted_per_position=(1000, 700, 300))
        return Baseline(
            name=self.name,
            recorded_at="2026-11-20T10:00:00Z",
            duration_seconds=1800.0,
            model_name="tiny",
            time_per_output_token_seconds=Histogram(
                bounds=BOUNDS,
                counts=tuple(BASELINE_REQUESTS if bound >= BASELINE_SECONDS else 0.0 for bound in BOUNDS),
                sum=BASELINE_REQUESTS * BASELINE_SECONDS,
            ),
            counts=drafted if self.baseline[1] else Counts(),
            requests_finished=BASELINE_REQUESTS,
        )


def services() -> list[Service]:
    """Some of all combinations, among them every pair of a rate and a baseline."""
    every = list(itertools.product(METHODS, KS, DRAFTS, REQUESTS, BASELINES, RATES))
    pairs = [each for each in every if each[:4] == (None, 3, 2000, 1000)]
    idle_and_not_drafting = [(None, 3, 0, 0, None, 0.5), (None, 3, 0, 1000, None, 0.5)]
    # With 15 requests a mean of 1.35 times the baseline's may be chance at the policy's z-score; 1.45 times is not.
    hardly_measured = [(None, 3, 2000, 15, (slowdown, False), 0.35) for slowdown in (1.35, 1.45)]
    chosen = pairs + every[5::251] + idle_and_not_drafting + hardly_measured
    found = [
        Service(f"case-{number}", rate, method, k, drafts, baseline, requests, busy=number % 2 == 1)
        for number, (method, k, drafts, requests, baseline, rate) in enumerate(chosen)
    ]
    # The rate is that of the positions after the first, most of which are not verified.
    partly = [
        (method, k, head, rate, drafts, requests, baseline)
        for method, k, baselines in (("eagle3", 3, BASELINES), ("dspark", 7, (None,)))
        for head, rate in ((0.05, 0.0), (0.05, 0.5), (0.72, 0.0), (0.72, 0.1), (1.0, 0.1), (1.0, 0.5))
        for drafts, requests, against in ((2000, 1000, baselines), (40, 20, (None,)), (2000, 2, (None,)))
        for baseline in against
    ]
    tails = itertools.product((0.35, 0.7), (False, True), (90, 200))
    found += [
        Service(f"partly-{number}", rate, method, k, drafts, baseline, requests, head=head, busy=number % 2 == 1)
        for number, (method, k, head, rate, drafts, requests, baseline) in enumerate(partly)
    ]
    return found + [
        Service(f"tail-{number}", rate, None, 3, 2000, (0.8, speculative), 1000, slow)
        for number, (rate, speculative, slow) in enumerate(tails)
    ]


SERVICES = services()
SOME = SERVICES[::12]


class Fleet:
    """A server that plays all predictors, each below its name; ``check`` finds them below ``check/`` once more."""

    def __init__(self, services: Sequence[Service]) -> None:
        self.services = services
        self.done = False
        self.url = ""
        self._asked: set[str] = set()
        self._services = {service.name: service for service in services}

    async def metrics(self, request: web.Request) -> web.Response:
        name, checked = request.match_info["name"], "check" in request.path
        done = name in self._asked if checked else self.done
        if checked:
            self._asked.add(name)
        return web.Response(text=self._services[name].exposition(done=done))


@pytest.fixture(
    params=[pytest.param(SOME, id="some"), pytest.param(SERVICES, id="all", marks=pytest.mark.nightly)],
)
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    playing = Fleet(request.param)
    app = web.Application()
    app.add_routes([web.get("/{name}/metrics", playing.metrics), web.get("/check/{name}/metrics", playing.metrics)])
    async with listening(app) as port:
        playing.url = f"http://127.0.0.1:{port}"
        yield playing


@pytest.fixture
def files(fleet: Fleet, tmp_path: Path) -> Path:
    """The log and, where there is one, the baseline of each service."""
    for service in fleet.services:
        (tmp_path / f"{service.name}.log").write_text(service.log())
        if (baseline := service.recorded()) is not None:
            write_baseline(str(tmp_path / f"{service.name}.yaml"), baseline)
    return tmp_path


@contextlib.asynccontextmanager
async def observing(fleet: Fleet, files: Path) -> AsyncIterator[Exporter]:
    """The exporter with all predictors."""
    predictors = [
        {
            "name": service.name,
            "url": f"{fleet.url}/{service.name}/metrics",
            "log_paths": [str(files / f"{service.name}.log")],
            "log_from": "start",
            **({"baseline": str(files / f"{service.name}.yaml")} if service.baseline else {}),
        }
        for service in fleet.services
    ]
    config = files / "exporter.yaml"
    config.write_text(yaml.safe_dump({"predictors": predictors}))
    async with exporter(f"--config.file={config}") as running:
        yield running


def as_series(before: str, after: str) -> Iterator[Series]:
    """Two scrapes as series whose counters grow evenly, by what lies between them in every long window."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", after, re.MULTILINE))
    first = dict(line.rsplit(" ", 1) for line in before.splitlines() if not line.startswith("#"))
    for line in after.splitlines():
        if line.startswith("#"):
            continue
        series, value = line.rsplit(" ", 1)
        name, labels = re.fullmatch(r"([\w]+)(?:\{(.*)\})?", series, re.DOTALL).groups()  # type: ignore[union-attr]
        end = float(value)
        kind = kinds.get(name) or kinds.get(re.sub(r"_(?:bucket|count|sum)$", "", name))
        start = float(first.get(series, 0)) if kind in ("counter", "histogram") else end
        values = [start + (end - start) * minute / LONG_WINDOW_MINUTES for minute in range(MINUTES)]
        yield Series(name, dict(re.findall(r'(\w+)="([^"]*)"', labels or "")), values)


async def served(fleet: Fleet, files: Path) -> tuple[dict[str, str], list[Series]]:
    """What the API says of each service, and what the exporter's metrics would be over time."""
    async with observing(fleet, files) as running:
        # Methods are known when the logs are read.
        methods = sum(service.method is not None for service in fleet.services)
        await running.until(
            lambda samples: sum('method="' in series and 'method=""' not in series for series in samples) >= methods,
            seconds=60,
        )
        before = await running.get("/metrics")
        fleet.done = True
        after = await running.get("/metrics")
        verdicts = await said_twice(running)
    said = {name: verdict["code"] for name, verdict in verdicts.items()}
    wanted = re.compile(r"specdec_(?!log_reader|scrape|exporter|window)")
    return said, [series for series in as_series(before, after) if wanted.match(series.name)]


async def said_twice(running: Exporter) -> dict[str, dict[str, str]]:
    """The verdicts, by service, when harm that one look found was found by another one, some seconds later."""
    async with asyncio.timeout(60):
        while True:
            status = json.loads(await running.get("/api/v1/status"))
            verdicts = {predictor["inference_service"]: predictor["verdict"] for predictor in status["predictors"]}
            if SUSPECTED[0] not in {verdict["headline"] for verdict in verdicts.values()}:
                return verdicts
            await asyncio.sleep(0.5)
            await running.get("/metrics")


async def checked(fleet: Fleet, files: Path) -> dict[str, str]:
    """What ``check`` says of each service."""
    said = {}
    for service in fleet.services:
        with printed() as found:
            await check(
                f"{fleet.url}/check/{service.name}/metrics",
                log_paths=[str(files / f"{service.name}.log")],
                baseline_path=str(files / f"{service.name}.yaml") if service.baseline else None,
                window_seconds=0.001,
                output="json",
            )
        said[service.name] = json.loads(found.out)["verdict"]["code"]
    return said


def test_the_cases_have_every_verdict() -> None:
    assert {service.judged() for service in SERVICES} == set(ENUM) - {"off"}


async def test_function_api_check_and_rules_say_the_same(fleet: Fleet, files: Path, pack: Pack) -> None:
    expected = {service.name: service.judged() for service in fleet.services}
    described = {service.name: service for service in fleet.services}

    said, series = await served(fleet, files)
    assert {described[name]: code for name, code in said.items() if code != expected[name]} == {}

    found = await checked(fleet, files)
    assert {described[name]: code for name, code in found.items() if code != expected[name]} == {}

    verdict = "inference_service:specdec_verdict:enum"
    values: dict[str, float | None] = {
        f'{verdict}{{inference_service="{name}"}}': ENUM[code] for name, code in expected.items()
    }
    for rule in (rule for group in pack.groups for rule in group["rules"]):
        if rule.get("labels", {}).get("severity") == "info":
            continue  # the flag of the guides stands beside any verdict
        if (least := ALERTS.get(rule.get("alert"))) is not None:
            if fleet.services is SERVICES:
                values[f"count({rule['expr']}) > bool 0"] = 1
            # Fewer accepted tokens than before may be why a service is slower.
            most = "" if rule["alert"] == "SpecDecodeAcceptanceLow" else f" < {ENUM['slower']}"
            values[f"({rule['expr']}) unless on (inference_service) ({verdict} >= {least}{most})"] = None
    assert len(values) >= len(expected) + len(ALERTS)
    case = Case(name="verdicts", series=series, values={MINUTES - 5: values})
    pack.recording().run(case, every=SLOW_MINUTES)
