"""``/probe?target=``: one fetch of what the scraper names, if the settings allow that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.counting import ONE_ENGINE
from running import exporter, predictor
from specdec_exporter.errors import ConfigError
from specdec_exporter.serving.probe import asked_for

BODY = ONE_ENGINE.read_bytes()
ALLOWED = r"https?://[\w-]+\.prod\.svc:8080"


async def test_a_target_is_fetched_once_and_nothing_of_it_is_kept() -> None:
    async with predictor(BODY) as own, predictor(BODY) as other:
        arguments = (f"--predictor.url={own.url}", r"--web.probe=http://127\.0\.0\.1:\d+")
        async with exporter(*arguments) as running:
            text = await running.get(f"/probe?target={other.url}&name=chat")
            assert (own.requests, other.requests) == (0, 1)
            assert 'specdec_up{inference_service="chat"} 1.0' in text
            assert 'specdec_drafts_total{engine="0",inference_service="chat",model_name="tiny"} 2675.0' in text
            # A single reading does not tell whether it drafts, and the rest is about the exporter.
            for family in ("specdec_predictor_state", "specdec_window_", "specdec_exporter_", "process_"):
                assert family not in text
            assert "chat" not in await running.get("/metrics")
            other.status = 500
            assert 'specdec_up{inference_service="default"} 0.0' in await running.get(f"/probe?target={other.url}")
            assert not [line for line in running.log if "level=warn" in line]


async def test_what_is_not_allowed_is_not_asked() -> None:
    async with predictor(BODY) as other, exporter("--web.probe=http://10[.].*") as running:
        for target in (other.url, "", "http://10.0.0.1@127.0.0.1", "file:///etc/passwd"):
            async with running.session.get(f"{running.url}/probe", params={"target": target}) as response:
                assert response.status == 400
                assert "does not allow" in (text := await response.text()) or "expected a URL" in text
        assert other.requests == 0


async def test_without_the_flag_there_is_no_such_endpoint() -> None:
    async with predictor(BODY) as other, exporter() as running:
        async with running.session.get(f"{running.url}/probe", params={"target": other.url}) as response:
            assert response.status == 404
        assert other.requests == 0


@pytest.mark.parametrize(
    "target",
    [
        "http://chat.prod.svc:8080/metrics",
        "http://chat.prod.svc:8080@evil:80",
        "http://evil/http://chat.prod.svc:8080",
        "http://chat.prod.svc:8080#@evil",
        "http://user:pw@chat.prod.svc:8080",
        "http://chat.prod.svc:8080\n",
        " http://chat.prod.svc:8080",
        "http://chatXprod.svc:8080",
        "x" * 5000,
    ],
)
def test_the_whole_target_must_match(target: str) -> None:
    assert asked_for(ALLOWED, "http://chat.prod.svc:8080", "").url == "http://chat.prod.svc:8080"
    with pytest.raises(ConfigError):
        asked_for(ALLOWED, target, "")


@given(target=st.text(), name=st.text())
def test_nothing_else_is_ever_raised(target: str, name: str) -> None:
    with pytest.raises(ConfigError):
        asked_for("never", target, name)
