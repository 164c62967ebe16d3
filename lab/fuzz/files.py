"""Files that people or the exporter itself write: settings, web configuration, baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fuzz.target import Target, require_numbers, require_one_line
from specdec_exporter import config
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.baseline.reading import parse_baseline
from specdec_exporter.baseline.remarks import remarks
from specdec_exporter.baseline.writing import to_yaml
from specdec_exporter.errors import BaselineError, ConfigError, SpecdecError
from specdec_exporter.web import webconfig
from specdec_exporter.yamlfile import convert, parse_yaml
from support.fieldtools import ROOT
from support.recordings import loaded, recording

T = TypeVar("T")

SETTINGS = b"""\
web:
  listen_addresses: [":10409", "[::1]:10409"]
  telemetry_path: /metrics
  config_file: null
  enable_lifecycle: true
log: {level: info, format: json}
window: 5m
predictors:
  - name: llama
    url: http://user:pass@127.0.0.1:8080/base
    timeout: 2.5s
    log_paths: [/var/log/a.log, "/var/log/*.log"]
    log_from: start
  - name: 'qwen'
    baseline: |
      text
"""
WEB = b"""\
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  min_version: TLS12
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
http_server_config:
  http2: true
  headers: {X-Frame-Options: deny, X-XSS-Protection: 0, Strict-Transport-Security: max-age=1}
basic_auth_users:
  alice: $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG
"""
YAML_WORDS = (
    *(
        b"\n  ",
        b"\n- ",
        b": ",
        b" # ",
        b"&x ",
        b"*x",
        b"<<: *first",
        b"<<: [*a, *b]",
        b"!!python/object:os.system ",
        b"| ",
    ),
    *(
        b">-\n ",
        b"2026-13-45",
        b"010",
        b"1:30",
        b"yes",
        b"~",
        b"%YAML 1.1\n",
        b"...\n",
        b"[" * 50,
        b"{a: " * 12,
        b"- " * 15,
    ),
)


def check_yaml(content: bytes, error: type[SpecdecError], read: Callable[[Any], T]) -> T | None:
    """Return what is read, or ``None`` where the file is refused in one line."""
    try:
        return read(parse_yaml(content, "file.yaml", error))
    except error as refused:
        require_one_line(str(refused))
        return None


def check_settings(content: bytes) -> None:
    def read(data: Any) -> config.Settings:
        return convert(data, config.Settings, "file.yaml", ConfigError)

    settings = check_yaml(content, ConfigError, read)
    if settings is not None:
        require_numbers([settings.window, *(predictor.timeout for predictor in settings.predictors)])
        for address in settings.web.listen_addresses:
            config.parse_listen_address(address)


def check_web(content: bytes) -> None:
    def read(data: Any) -> None:
        found = convert(data, webconfig.WebConfig, "file.yaml", ConfigError)
        webconfig._check_headers(found.http_server_config.headers)
        webconfig._check_users(found.basic_auth_users)

    check_yaml(content, ConfigError, read)


def check_baseline(content: bytes) -> None:
    try:
        baseline = parse_baseline(content, "file.yaml")
    except BaselineError as refused:
        require_one_line(str(refused))
        return
    require_baseline(baseline)


def require_baseline(baseline: Baseline) -> None:
    """What is read can be written, and read again; its numbers make sense, and its step times can be fitted."""
    assert all(remarks(baseline))
    assert parse_baseline(to_yaml(baseline).encode()) == baseline
    require_numbers([baseline.duration_seconds, baseline.recorded_timestamp, baseline.requests_finished])
    for _, histogram in baseline.histograms():
        require_numbers([*histogram.counts, histogram.sum, histogram.mean])
    for name in baseline.counts.__struct_fields__:
        value = getattr(baseline.counts, name)
        require_numbers(value if isinstance(value, tuple) else [value])


def baselines() -> list[bytes]:
    demo = [path.read_bytes() for path in sorted((ROOT / "deploy" / "demo").glob("b*.yaml"))]
    made = [recording(curve=(0.7, 0.5), blocks=3), recording(tpot=(0.02,) * 3), loaded("loaded", {1: 0.02, 2: 0.03})]
    return [*demo, *(to_yaml(each).encode() for each in made)]


TARGETS = (
    Target("settings", check_settings, lambda: [SETTINGS], YAML_WORDS),
    Target("web configuration", check_web, lambda: [WEB], YAML_WORDS),
    Target("baseline file", check_baseline, baselines, YAML_WORDS),
)
