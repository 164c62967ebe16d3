"""Flags over environment over file over defaults; wrong input named by file, key and expectation."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.config import (
    Duration,
    Settings,
    listed_predictor,
    load_settings,
    parse_listen_address,
    url_of,
)
from specdec_exporter.errors import ConfigError, SpecdecError
from support.running import commanded


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "specdec.yaml"
    path.write_text(text)
    return load_settings(str(path), {})


def test_nothing_set_finds_a_predictor_on_this_pod() -> None:
    settings = load_settings(None, {})
    assert settings.predictors[0].url == "http://127.0.0.1:8080"
    assert settings.web.listen_addresses == (":10409",)
    assert settings.window == Duration(300)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("# soon\n", "expected settings, found nothing", id="just being written"),
        ("predictors: [{nmae: x}]", "predictors[0].nmae: unknown key, expected one of ca_file,"),
        ("webb: {}", "webb: unknown key, expected one of web, log, window, predictors"),
        ("predictors: [{interval: 0.5}]", "predictors[0].interval: expected at least 1s, found '0.5'"),
        ("predictors: [{timeout: -1}]", "predictors[0].timeout: expected a duration"),
        ("predictors: [{log_from: middle}]", "predictors[0].log_from: expected one of end, start, found 'middle'"),
        ("predictors: []", "predictors: expected at least one"),
        ("predictors: [{name: a}, {name: a}]", "two predictors are called 'a'"),
        ("predictors: [{name: ''}]", "one printable line"),
        ("predictors: [{url: 'ftp://x'}]", "expected a URL"),
        ("web: {listen_addresses: ['nowhere']}", "expected a listen address"),
        ("web: {telemetry_path: metrics}", "expected a path"),
        ("web: {telemetry_path: /-/healthy}", "that no other endpoint has"),
        ("predictors: [{name: a, log_paths: ['-']}, {name: b, log_paths: ['-']}]", "stdin"),
    ],
)
def test_a_wrong_file_is_named_with_key_and_expectation(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "specdec.yaml") in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://u:SECRET@h:99999/",
        "u:SECRET@h:8080",
        "http://u:S/SECRET@h:8080",
        "http://u:1?SECRET@h:8080",
        "http://u:SECRET@",
    ],
)
def test_no_password_is_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"predictors: [{{url: '{url}'}}]")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(("key", "flag"), [("url", "--predictor.url"), ("baseline", "--baseline.file")])
def test_predictor_flags_cannot_choose_among_several(tmp_path: Path, key: str, flag: str) -> None:
    path = tmp_path / "two.yaml"
    path.write_text("predictors: [{name: a}, {name: b}]")
    with pytest.raises(ConfigError, match=rf"lists 2 predictors: {flag} cannot select"):
        load_settings(str(path), {"predictor": {key: "http://x"}})


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("90", 90), (15, 15), ("1d", 86400)]
)
def test_durations(text: str | float, seconds: float) -> None:
    assert Duration(text) == seconds


@given(st.text())
def test_any_text_is_a_duration_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(SpecdecError):
        assert Duration(text) > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":10409", (None, 10409)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9", ("::1", 9)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_listen_addresses(text: str, expected: tuple[str | None, int]) -> None:
    assert parse_listen_address(text) == expected


@pytest.mark.parametrize(
    ("addresses", "clash"),
    [
        ((":0", ":0"), False),
        ((":1", "127.0.0.1:1"), True),
        (("0.0.0.0:1", "127.0.0.1:1"), True),
        (("[::1]:1", "[::]:1"), True),
        (("0.0.0.0:1", "[::1]:1"), False),
        (("0.0.0.0:1", "[::]:1"), False),
    ],
)
def test_two_listen_addresses_must_not_overlap(addresses: tuple[str, ...], clash: bool) -> None:
    for given_addresses in (addresses, addresses[::-1]):
        expected = pytest.raises(ConfigError, match="have port 1 on the same") if clash else contextlib.nullcontext()
        with expected:
            load_settings(None, {"web": {"listen_addresses": given_addresses}})


@given(st.text())
def test_any_text_is_a_listen_address_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(SpecdecError):
        assert 0 <= parse_listen_address(text)[1] <= 65535


def test_flag_beats_environment_beats_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def remember(settings: Settings, *_: object) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr("specdec_exporter.serving.serve.run", remember)
    path = tmp_path / "specdec.yaml"
    path.write_text("window: 1m\npredictors: [{name: from-file, url: 'http://file', timeout: 1s}]")
    arguments = ["--config.file", str(path), "--predictor.name", "from-flag"]
    commanded(*arguments, SPECDEC_PREDICTOR_NAME="from-env", SPECDEC_PREDICTOR_URL="http://env")
    (settings,) = seen
    (predictor,) = settings.predictors
    assert (predictor.name, predictor.url, predictor.timeout, settings.window) == (
        *("from-flag", "http://env"),
        *(Duration(1), Duration(60)),
    )


@pytest.mark.parametrize(
    ("file", "flags", "names"),
    [
        ("window: 1m", {}, ["chat"]),
        ("predictors: [{url: 'http://a'}]", {"predictor": {"url": "http://b"}}, ["chat"]),
        ("predictors: [{name: from-file}]", {}, ["from-file"]),
        ("window: 1m", {"predictor": {"name": "from-flag"}}, ["from-flag"]),
        ("predictors: [{name: a}, {name: b}]", {}, ["a", "b"]),
    ],
)
def test_kserve_names_a_predictor_that_nobody_else_names(
    file: str, flags: dict[str, Any], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "specdec.yaml"
    path.write_text(file)
    monkeypatch.setenv("INFERENCE_SERVICE_NAME", "chat")
    assert [one.name for one in load_settings(str(path), flags).predictors] == names


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("h:80", "http://h:80"),
        ("10.0.0.1", "http://10.0.0.1"),
        ("[::1]:80", "http://[::1]:80"),
        ("https://h", "https://h"),
    ],
)
def test_a_url_may_leave_out_its_scheme(text: str, url: str) -> None:
    assert url_of(text) == url


def test_a_listed_predictor_is_meant_by_name_or_url(tmp_path: Path) -> None:
    path = tmp_path / "specdec.yaml"
    path.write_text("predictors: [{name: a, url: 'https://h:1/', ca_file: ca.crt}, {name: b}]")
    assert listed_predictor(str(path), "a") == listed_predictor(str(path), "https://h:1")
    assert listed_predictor(str(path), "a").ca_file == "ca.crt"
    for target in ("c", "http://h:1", None):
        with pytest.raises(ConfigError, match="expected one of a, b; found"):
            listed_predictor(str(path), target)
    path.write_text("predictors: [{name: a}]")
    assert listed_predictor(str(path), None).name == "a"
