"""Real vLLM, exporter, Prometheus with the rule pack, Alertmanager with its routes, and a receiver of webhooks.

One story, since each part of it needs what came before: a baseline is recorded without speculation; then acceptance is
high, low, and high again; then vLLM dies and comes back. The pack is the one that is shipped; its windows are shortened
through ``_config`` (config.libsonnet).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp

from demo.pager import Pager, pager
from demo.processes import Server as Process
from demo.stack import alertmanager, exporter, prometheus
from e2e.traffic import Traffic, flowing
from support.processes import exporter_ran
from vllm.language import Language
from vllm.scenarios import DRAFT_MODEL_K3, NO_SPECULATION
from vllm.server import MODEL_NAME, Installation, Server, Slowness

WARM_UP_BATCHES: Final = 8  # the first requests of a server are ten times as slow
BASELINE_SECONDS: Final = 45
WINDOW_SECONDS: Final = 60  # of the shortened pack
HIGH, NONE = 0.9, 0.0  # shares of the successors that the draft model knows
# Two services on one server: alerts of the second are about latency, too, and may mute others of its own.
PLAIN, COMPARED = "tiny", "tiny-compared"
PACK_CONFIG = Path(__file__).with_name("config.libsonnet")
Alert = dict[str, Any]


class Stack:
    """Everything around the predictor."""

    def __init__(self, prom: Process, exp: Process, receiver: Pager, session: aiohttp.ClientSession) -> None:
        self.exporter = exp
        self.receiver = receiver
        self._prometheus = prom
        self._session = session

    async def query(self, expression: str) -> dict[str, float]:
        """Values of an instant query by ``inference_service`` (empty where there is no such label)."""
        async with self._session.get(f"{self._prometheus.url}/api/v1/query", params={"query": expression}) as response:
            answer = await response.json()
        assert answer["status"] == "success", answer
        return {
            each["metric"].get("inference_service", ""): float(each["value"][1]) for each in answer["data"]["result"]
        }

    def alerts(self, **labels: str) -> list[Alert]:
        """All notifications of alerts with these labels (and ``status``), in the order in which they came."""
        return [
            alert
            for page in self.receiver.pages
            for alert in page["alerts"]
            if {**alert["labels"], "status": alert["status"]}.items() >= labels.items()
        ]

    async def page(self, seconds: float, **labels: str) -> Alert:
        """Wait for such an alert."""

        async def came() -> bool:
            return bool(self.alerts(**labels))

        await until(came, seconds, f"notification of {labels}; came: {self._came()}")
        return self.alerts(**labels)[0]

    def _came(self) -> list[str]:
        return [
            f"{a['status']} {a['labels']['alertname']} {a['labels'].get('inference_service')}" for a in self.alerts()
        ]


async def until(condition: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Ask again and again until it holds; ``AssertionError`` naming ``what`` was awaited."""
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"no {what} within {seconds:g} s") from None


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


async def shown_nowhere(_page: str, _service: str | None) -> None:
    """The pages are read from the receiver."""


@contextlib.asynccontextmanager
async def stack_beside(server: Server, baseline: Path, directory: Path) -> AsyncIterator[Stack]:
    predictor = {"url": server.url, "log_paths": [str(server.log_path)]}
    config = {
        "predictors": [{"name": PLAIN, **predictor}, {"name": COMPARED, **predictor, "baseline": str(baseline)}],
        "log": {"level": "warn"},
    }
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        exp = await stack.enter_async_context(exporter(json.dumps(config), directory))
        receiver = await stack.enter_async_context(pager(shown_nowhere))
        alerts_to = await stack.enter_async_context(alertmanager(receiver.url, directory))
        prom = await stack.enter_async_context(prometheus({"tiny-0": exp}, alerts_to, directory, PACK_CONFIG))
        yield Stack(prom, exp, receiver, session)


async def record_baseline(server: Server, file: Path) -> None:
    flags = (f"--predictor.log-path={server.log_path}", f"--duration={BASELINE_SECONDS}s", f"--file={file}")
    record = ("baseline", "record", f"--predictor.url={server.url}", *flags)
    done = await asyncio.to_thread(exporter_ran, *record)
    assert done.returncode == 0, done.stderr


async def test_from_a_dying_draft_head_to_a_page(
    installation: Installation, language: Language, models: Path, tmp_path: Path
) -> None:
    baseline = tmp_path / "baseline.yaml"
    plain = Server(installation, models=models, directory=_made(tmp_path / "plain"))
    async with serving(plain):
        traffic = Traffic(plain, language, NO_SPECULATION, HIGH)
        for _ in range(WARM_UP_BATCHES):
            await traffic.batch()
        async with flowing(traffic):
            await record_baseline(plain, baseline)

    server = Server(
        installation, models=models, directory=_made(tmp_path / "vllm"), arguments=DRAFT_MODEL_K3.arguments(models)
    )
    async with serving(server), stack_beside(server, baseline, _made(tmp_path / "stack")) as stack:
        traffic = Traffic(server, language, DRAFT_MODEL_K3, HIGH)
        async with flowing(traffic):
            await high_acceptance_is_recorded_and_nobody_is_woken(stack, traffic)
            await a_draft_that_does_not_fit_pages(stack, traffic)
            await being_slower_than_without_speculation_is_told(stack, traffic, server)
            traffic.share = HIGH
            await stack.page(
                2 * WINDOW_SECONDS, alertname="SpecDecodeAcceptanceLow", status="resolved", severity="critical"
            )
        await a_dead_predictor_pages_once_and_comes_back_without_a_spike(stack, server, language)


async def high_acceptance_is_recorded_and_nobody_is_woken(stack: Stack, traffic: Traffic) -> None:
    await asyncio.sleep(WINDOW_SECONDS)  # the window that decides
    async with traffic.paused() as expected:

        async def counted() -> bool:
            return await stack.query("sum by (inference_service) (specdec_draft_tokens_total)") == {
                PLAIN: expected.draft_tokens,
                COMPARED: expected.draft_tokens,
            }

        await until(counted, 15, f"{expected.draft_tokens} draft tokens in Prometheus")
        accepted = sum(expected.accepted_per_position)
        assert (await stack.query("specdec_accepted_tokens_total"))[PLAIN] == accepted
        assert (await stack.query("specdec_drafts_total"))[PLAIN] == expected.drafts
        for position, count in enumerate(expected.accepted_per_position):
            found = await stack.query(f'specdec_accepted_tokens_per_position_total{{position="{position}"}}')
            assert found[PLAIN] == count
    recorded = await stack.query("inference_service:specdec_acceptance:ratio30m")
    assert abs(recorded[PLAIN] - accepted / expected.draft_tokens) < 0.02
    length = await stack.query("inference_service:specdec_acceptance:length30m")
    assert abs(length[PLAIN] - (1 + accepted / expected.drafts)) < 0.05
    assert (await stack.query('specdec_verdict{verdict=~"healthy|not_measured"}'))[PLAIN] == 1
    # What is said of latency (error budgets), and whether drafts pay against the baseline, is the machine's matter.
    told = {alert["labels"]["alertname"] for alert in stack.alerts(inference_service=PLAIN)}
    assert not [name for name in told if "Acceptance" in name or "Harmful" in name]
    assert not stack.alerts(alertname="SpecDecodeAcceptanceLow")


async def a_draft_that_does_not_fit_pages(stack: Stack, traffic: Traffic) -> None:
    traffic.share = NONE
    page = await stack.page(
        2 * WINDOW_SECONDS,
        alertname="SpecDecodeAcceptanceLow",
        inference_service=PLAIN,
        severity="critical",
        status="firing",
    )
    text = page["annotations"]
    assert text["summary"].startswith(f"demo/{PLAIN} ({MODEL_NAME})")
    assert text["runbook_url"].endswith("/SpecDecodeAcceptanceLow.md")
    assert "?" not in text["summary"] + text["description"]
    assert page["labels"]["namespace"] == "demo"


async def being_slower_than_without_speculation_is_told(stack: Stack, traffic: Traffic, server: Server) -> None:
    """The machine may have been busier when the baseline was recorded, so the server is slowed until it is slower."""
    traffic.shorten()
    with server.slowed() as slowness:
        slowing = asyncio.create_task(_slow_until_slower(stack, slowness))
        try:
            await _the_regression_is_told(stack)
        finally:
            slowing.cancel()


async def _slow_until_slower(stack: Stack, slowness: Slowness) -> None:
    """Slow it further as long as a token does not take twice what it took at baseline."""
    family = "specdec_time_per_output_token_seconds"
    now = f"rate({family}_sum[10s]) / rate({family}_count[10s])"
    then = 'specdec_baseline_latency_seconds{sli="tpot", stat="mean"}'
    ratio = f"sum by (inference_service) ({now}) / sum by (inference_service) ({then})"
    while True:
        await asyncio.sleep(10)  # what the rate looks at
        if (await stack.query(ratio)).get(COMPARED, 0.0) < 2:
            slowness.times += 1


async def _the_regression_is_told(stack: Stack) -> None:
    async def regressed() -> bool:
        firing = 'group by (inference_service) (ALERTS{alertname="SpecDecodeP99Regression", alertstate="firing"})'
        return await stack.query(firing) == {COMPARED: 1}

    await until(regressed, 5 * WINDOW_SECONDS, "regression against the baseline")

    # Where it is as bad as harm, the page for that says it all and mutes the ticket.
    async def told() -> bool:
        return any(
            stack.alerts(alertname=name, inference_service=COMPARED, status="firing")
            for name in ("SpecDecodeP99Regression", "SpecDecodeHarmful")
        )

    await until(told, WINDOW_SECONDS, "notification of the regression")


async def a_dead_predictor_pages_once_and_comes_back_without_a_spike(
    stack: Stack, server: Server, language: Language
) -> None:
    await asyncio.to_thread(server.stop)
    await stack.page(WINDOW_SECONDS, alertname="SpecDecodeTargetDown", inference_service=PLAIN, status="firing")
    assert await stack.query("specdec_up") == {PLAIN: 0, COMPARED: 0}
    await asyncio.to_thread(server.start)
    async with flowing(Traffic(server, language, DRAFT_MODEL_K3, HIGH)):
        await stack.page(WINDOW_SECONDS, alertname="SpecDecodeTargetDown", inference_service=PLAIN, status="resolved")
        await asyncio.sleep(WINDOW_SECONDS)
    since = f"[{WINDOW_SECONDS}s]"
    drafts = "inference_service:specdec_drafts:increase30m"
    spikes = await stack.query(f"max_over_time({drafts}{since}) / quantile_over_time(0.5, ({drafts} > 0)[5m:1s])")
    assert spikes[PLAIN] < 5
    assert (await stack.query(f"max_over_time(inference_service:specdec_acceptance:ratio5m{since})"))[PLAIN] <= 1
    firing = 'ALERTS{alertname=~"SpecDecode(Acceptance.*|Harmful)", alertstate="firing"}'
    assert PLAIN not in await stack.query(f"count_over_time({firing}{since})")


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
