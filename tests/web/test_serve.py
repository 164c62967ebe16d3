"""The running exporter, end to end over real HTTP: what it serves, and what bad predictors do to it."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from support.builders import CAPTURES
from support.fieldtools import tool
from support.processes import exporter_ran, ran
from support.running import answer_nothing, exporter, predictor

K3 = CAPTURES / "0.32.0-draft_model-k3"
FIRST, SECOND = (K3 / name for name in ("metrics-8-p90.txt", "metrics-5-p60.txt"))
ENGINE = 'engine="0",inference_service="default",model_name="tiny"'
UP = 'specdec_up{inference_service="default"}'
START_TIME = re.compile(rb"^(process_start_time_seconds) .*$", re.MULTILINE)
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


async def test_counters_are_copied_to_the_token_and_figures_follow_from_two_scrapes() -> None:
    async with predictor(FIRST.read_bytes()) as vllm, exporter(f"--predictor.url={vllm.url}") as running:
        first = await running.samples()
        assert first[UP] == 1
        assert first[f"specdec_drafts_total{{{ENGINE}}}"] == 464
        assert first[f"specdec_draft_tokens_total{{{ENGINE}}}"] == 1392
        assert first[f"specdec_accepted_tokens_total{{{ENGINE}}}"] == 1136
        positions = [f'specdec_accepted_tokens_per_position_total{{{ENGINE},position="{i}"}}' for i in range(3)]
        assert [first[name] for name in positions] == [418, 375, 343]
        assert f"specdec_acceptance_ratio{{{ENGINE}}}" not in first  # one reading tells nothing about a window
        vllm.body = SECOND.read_bytes()
        second = await running.samples()
        assert second[f"specdec_acceptance_ratio{{{ENGINE}}}"] == pytest.approx(855 / 2235)
        assert second[f"specdec_mean_acceptance_length{{{ENGINE}}}"] == pytest.approx(1 + 855 / 745)
        assert second[f'specdec_position_acceptance_ratio{{{ENGINE},position="0"}}'] == pytest.approx(394 / 745)
        assert second[f"specdec_num_speculative_tokens{{{ENGINE}}}"] == 3
        assert second[f'specdec_predictor_state{{{ENGINE},state="drafting"}}'] == 1


async def test_a_predictor_that_answers_badly_is_down_and_nothing_stale_is_served() -> None:  # test_fetch has others
    async with (
        predictor(FIRST.read_bytes()) as vllm,
        exporter(f"--predictor.url={vllm.url}", "--predictor.timeout=1s") as running,
    ):
        assert (await running.samples())[UP] == 1
        vllm.answer = answer_nothing
        for _ in range(2):
            samples = await running.samples()
            assert samples[UP] == 0
            assert not any(
                name.startswith(("specdec_drafts", "specdec_time_to", "specdec_requests")) for name in samples
            )
            assert samples['specdec_scrape_collector_success{collector="metrics",inference_service="default"}'] == 0
            assert samples[f'specdec_predictor_state{{{ENGINE},state="unreachable"}}'] == 1
        vllm.answer = None
        assert (await running.samples())[UP] == 1
        complaints = [line for line in running.log if "cannot be read" in line]
        assert len(complaints) == 1  # once per change of state, not per scrape
        assert not any("Traceback" in line for line in running.log)


async def test_a_predictor_with_tls_that_demands_a_certificate_and_a_token(folder: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    sent = set()

    async def behind_a_proxy(request: web.Request) -> web.Response:
        sent.add(request.headers.get("Authorization"))
        return web.Response(body=FIRST.read_bytes(), headers=vllm.headers)

    async with predictor(tls=tls) as vllm:
        vllm.answer = behind_a_proxy
        settings: dict[str, Any] = {
            "SPECDEC_PREDICTOR_URL": vllm.url,
            "SPECDEC_PREDICTOR_CA_FILE": str(folder / "ca.crt"),
            "SPECDEC_PREDICTOR_CERT_FILE": str(folder / "client.crt"),
            "SPECDEC_PREDICTOR_KEY_FILE": str(folder / "client.key"),
            "SPECDEC_PREDICTOR_SERVER_NAME": "localhost",
            "SPECDEC_PREDICTOR_BEARER_TOKEN_FILE": str(folder / "token"),
        }
        async with exporter(**settings) as running:
            assert (await running.samples())[UP] == 0
            status = json.loads(await running.get("/api/v1/status"))
            assert status["predictors"][0]["up_reason"].startswith(f"bearer_token_file {folder}/token: cannot be")
            (folder / "token").write_text("s3cret\n")
            assert (await running.samples())[UP] == 1
            assert sent == {"Bearer s3cret"}
            assert "s3cret" not in await running.get("/api/v1/status")
            (folder / "token").write_text("s3cret and more")
            assert (await running.samples())[UP] == 0
            assert "s3cret" not in await running.get("/api/v1/status")
        assert not [line for line in running.log if "s3cret" in line]


async def test_formats_are_negotiated_and_compressed() -> None:
    async with predictor(FIRST.read_bytes()) as vllm, exporter(f"--predictor.url={vllm.url}") as running:
        async with running.session.get(running.url + "/metrics", headers={"Accept": OPENMETRICS}) as response:
            chosen = response.headers["Content-Type"]
            assert chosen.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
            text = await response.text()
        assert text.endswith("# EOF\n")
        names = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
        assert {"specdec_drafts", "specdec_time_to_first_token_seconds", "specdec_predictor_info"} <= names
        for accept in ("*/*", "application/openmetrics-text;version=none,*/*;q=0.1"):
            async with running.session.get(running.url + "/metrics", headers={"Accept": accept}) as response:
                assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        async with ClientSession(auto_decompress=False) as raw:
            async with raw.get(running.url + "/metrics", headers={"Accept-Encoding": "gzip"}) as response:
                assert response.headers["Content-Encoding"] == "gzip"
                assert b"specdec_drafts_total" in gzip.decompress(await response.read())


async def test_endpoints_answer_without_touching_the_predictor() -> None:
    async with predictor() as vllm, exporter(f"--predictor.url={vllm.url}") as running:
        await running.samples()
        asked = vllm.requests
        assert "healthy" in await running.get("/-/healthy")
        assert "ready" in await running.get("/-/ready")
        assert "<!doctype html>" in (await running.get("/")).lower()
        assert vllm.requests == asked
        async with running.session.get(running.url + "/") as response:
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        async with running.session.post(running.url + "/metrics") as response:
            assert response.status == 405
        async with running.session.post(running.url + "/-/reload") as response:
            assert response.status == 403
        async with running.session.get(running.url + "/nowhere") as response:
            assert response.status == 404


@pytest.mark.debian
async def test_promtool_is_content_with_whatever_release_is_read() -> None:
    async with predictor() as vllm, exporter(f"--predictor.url={vllm.url}") as running:
        for number, capture in enumerate(sorted(CAPTURES.glob("*/metrics-*.txt"))):
            # Each is a process of its own, after a time without answer.
            vllm.answer = answer_nothing
            assert (await running.samples())[UP] == 0
            body = START_TIME.sub(rb"\g<1> %d" % (2_000_000_000 + number), capture.read_bytes())
            vllm.answer, vllm.body = None, body
            text = await running.get("/metrics")
            assert "NaN" not in text, capture
            assert "_created" not in text, capture
            assert not any(":" in line.partition("{")[0] for line in text.splitlines() if not line.startswith("#"))
            checked = await asyncio.to_thread(ran, tool("promtool"), "check", "metrics", told=text)
            assert (checked.returncode, checked.stderr) == (0, ""), capture
        assert not [line for line in running.log if "does not continue" in line]


async def test_sighup_takes_a_good_file_and_refuses_a_bad_one(tmp_path: Path) -> None:
    async with predictor(FIRST.read_bytes()) as vllm:
        config = tmp_path / "specdec.yaml"
        config.write_text(f"predictors: [{{name: one, url: '{vllm.url}'}}]")
        async with exporter(f"--config.file={config}", "--web.enable-lifecycle") as running:
            assert 'specdec_up{inference_service="one"}' in await running.samples()
            config.write_text(f"predictors: [{{name: one, url: '{vllm.url}'}}, {{name: two, url: '{vllm.url}'}}]")
            samples = await running.reloaded("configuration loaded")
            assert samples['specdec_up{inference_service="two"}'] == 1
            assert samples["specdec_exporter_config_last_reload_successful"] == 1
            config.write_text("predictors: [{nmae: three}]")
            samples = await running.reloaded("stays in force")
            assert samples["specdec_exporter_config_last_reload_successful"] == 0
            assert samples['specdec_up{inference_service="two"}'] == 1
            async with running.session.post(running.url + "/-/reload") as response:
                assert (response.status, "unknown key" in await response.text()) == (500, True)


async def test_256_predictors_in_the_file_and_a_reload_that_replaces_one(tmp_path: Path) -> None:
    config = tmp_path / "specdec.yaml"

    def listed(url: str, *numbers: int) -> None:
        config.write_text(json.dumps({"predictors": [{"name": f"p{n}", "url": url} for n in numbers]}))

    def up(samples: dict[str, float]) -> set[str]:
        return {series for series, value in samples.items() if series.startswith("specdec_up{") and value == 1}

    def of(*numbers: int) -> set[str]:
        return {f'specdec_up{{inference_service="p{n}"}}' for n in numbers}

    # A short answer: what many cost is the bench's matter.
    async with predictor(b'vllm:num_requests_running{engine="0",model_name="m"} 1\n') as vllm:
        listed(vllm.url, *range(256))
        async with exporter(f"--config.file={config}") as running:
            await running.until(lambda samples: up(samples) == of(*range(256)))
            listed(vllm.url, *range(1, 257))
            await running.reloaded("configuration loaded")
            await running.until(lambda samples: up(samples) == of(*range(1, 257)))


async def test_a_port_that_is_taken_is_one_clear_line() -> None:
    async with predictor() as vllm:
        taken = vllm.url.removeprefix("http://")
        done = await asyncio.to_thread(exporter_ran, "serve", f"--web.listen-address={taken}")
    assert done.returncode == 1
    assert f"cannot listen on {taken}" in done.stderr
    assert "Traceback" not in done.stderr


async def test_lines_written_as_soon_as_it_is_ready_count(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_bytes(b"there before\n" * 1000)
    windows = 'specdec_log_windows_total{engine="0",inference_service="default",model_name=""}'
    lines = (CAPTURES / "0.32.0-draft_model-k3" / "server.log").read_bytes().splitlines(keepends=True)
    line = next(line for line in lines if b"SpecDecoding metrics: " in line)
    async with predictor() as vllm:
        for _ in range(2):
            async with exporter(f"--predictor.url={vllm.url}", f"--predictor.log-path={log}") as running:
                with log.open("ab") as stream:
                    stream.write(line)
                samples = await running.until(lambda samples: windows in samples)
                assert samples[windows] == 1


async def test_statistics_without_a_header_count_only_on_trust(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    windows = 'specdec_log_windows_total{engine="0",inference_service="default",model_name=""}'
    lines = (K3 / "server.log").read_bytes().splitlines(keepends=True)
    bare = next(line for line in lines if b"SpecDecoding metrics: " in line).partition(b"] ")[2]
    log.write_bytes(bare * 2)
    async with predictor() as vllm:
        words = (f"--predictor.url={vllm.url}", f"--predictor.log-path={log}", "--predictor.log-from=start")
        async with exporter(*words) as running:
            read = 'specdec_log_reader_lines_total{inference_service="default"}'
            samples = await running.until(lambda samples: samples.get(read) == 2)
            assert samples.get(windows, 0) == 0
            await running.samples()
            assert "--predictor.log-trust=any" in await running.said("lines of the log do not count")
            assert sum("do not count" in line for line in running.log) == 1
        async with exporter(*words, "--predictor.log-trust=any") as running:
            await running.until(lambda samples: samples.get(windows) == 2)
            assert not any("do not count" in line for line in running.log)
