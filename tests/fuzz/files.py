"""Files and words that people write: settings, web configuration, baselines, read positions, commands, flags."""

from __future__ import annotations

import functools
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders import CAPTURES
from fuzz.target import MIB, Target, require_numbers, require_one_line
from recordings import loaded, recording
from specdec_exporter import config, yamlfile
from specdec_exporter.baseline.file import Baseline, to_yaml
from specdec_exporter.baseline.reading import parse_baseline
from specdec_exporter.baseline.prometheus import _matchers
from specdec_exporter.errors import BaselineError, ConfigError, SpecdecError
from specdec_exporter.predictor import speculativeconfig, versions
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.sources.positions import PositionFile
from specdec_exporter.web import webconfig
from specdec_exporter.yamlfile import parse_yaml

ROOT = Path(__file__).parents[2]

SETTINGS = b"""\
web:
  listen_addresses: [":10409", "[::1]:10409"]
  telemetry_path: /metrics
  config_file: null
  enable_lifecycle: true
log: {level: info, format: json}
window: 5m
predictors:
  - &first
    name: llama
    url: http://user:pass@127.0.0.1:8080/base
    timeout: 2.5s
    log_paths: [/var/log/a.log, "/var/log/*.log"]
    log_from: start
    log_state: /data/positions
  - <<: *first
    name: 'qwen'
    baseline: |
      text
    log_state: null
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
COMMAND_WORDS = (
    *(
        b"--speculative-config ",
        b"-sc=",
        b"--speculative_config='",
        b'{"method": "eagle3", ',
        b'"model": "m", ',
        b"[[1, 2, 4]]",
    ),
    *(b'"num_speculative_tokens": 3}', b"-dp ", b"--data-parallel-size=", b"vllm serve ", b"NaN", b"Infinity"),
)


def check_yaml(content: bytes, error: type[SpecdecError], read: Callable[[yamlfile.Node], Any]) -> Any:
    """Return what is read, or ``None`` where the file is refused in one line."""
    try:
        return read(parse_yaml(content, "file.yaml", error))
    except error as refused:
        require_one_line(str(refused))
        return None


def check_settings(content: bytes) -> None:
    settings: config.Settings | None = check_yaml(content, ConfigError, lambda node: node.read(config.Settings))
    if settings is not None:
        require_numbers([settings.window, *(predictor.timeout for predictor in settings.predictors)])
        for address in settings.web.listen_addresses:
            config.parse_listen_address(address)


def check_web(content: bytes) -> None:
    def read(node: yamlfile.Node) -> webconfig.WebConfig:
        webconfig._refuse_unsupported(node)
        found: webconfig.WebConfig = node.read(webconfig.WebConfig)
        try:
            webconfig._check_headers(found.http_server_config.headers)
            webconfig._check_users(found.basic_auth_users)
        except ConfigError as error:
            node.blame(error)
        return found

    check_yaml(content, ConfigError, read)


def check_baseline(content: bytes) -> None:
    try:
        baseline = parse_baseline(content, "file.yaml")
    except BaselineError as refused:
        require_one_line(str(refused))
        return
    require_baseline(baseline)


def require_baseline(baseline: Baseline) -> None:
    """What is read can be written, and read again; its numbers make sense."""
    written = to_yaml(baseline)
    assert parse_baseline(written.encode()) == baseline
    require_numbers([baseline.duration_seconds, baseline.recorded_timestamp, baseline.requests_finished])
    for _, histogram in baseline.histograms():
        require_numbers([*histogram.counts, histogram.sum, histogram.mean])
    for name in baseline.counts.__struct_fields__:
        value = getattr(baseline.counts, name)
        require_numbers(value if isinstance(value, tuple) else [value])


@functools.cache
def state() -> Path:
    """A file of this process alone."""
    return Path(tempfile.mkdtemp(prefix="fuzz")) / "state.json"


def check_positions(content: bytes) -> None:
    path = state()
    path.write_bytes(content)
    counters = ReaderCounters()
    found = PositionFile(str(path), counters).load()
    assert not (found and counters.read_errors)
    assert PositionFile(str(path), counters).save(found, durable=False)
    again = PositionFile(str(path), ReaderCounters()).load()
    assert again == found


def check_command(content: bytes) -> None:
    """A command that starts vLLM."""
    command = content.decode("utf-8", "replace")
    given = speculativeconfig.given_config(command)
    speculativeconfig.is_data_parallel(command)
    speculativeconfig.lacks_draft_model(given)
    found = speculativeconfig.config_for(given, None, 3, schedule=[(1, 2, 3)], limit=8)
    if found is None:
        return
    assert found["num_speculative_tokens"] == 3
    text = json.dumps(found)
    if "'" not in text and "NaN" not in text:
        assert speculativeconfig.given_config(f"vllm serve m --speculative-config '{text}'") == found


def check_word(content: bytes) -> None:
    """A flag's value or a release."""
    text = content.decode("utf-8", "replace")
    for parse in (config.parse_duration, config.parse_listen_address, config.valid_url, config.valid_path, _matchers):
        try:
            found = parse(text)
        except (ConfigError, BaselineError) as error:
            require_one_line(str(error))
        else:
            if isinstance(found, float):
                assert 0 < found < math.inf
            if isinstance(found, tuple):
                assert 0 <= found[1] <= 65535
    release = versions.parse_release(text)
    if release is not None:
        assert versions.parse_release(versions._dotted(release)) == release
    assert versions.canonical_method(versions.canonical_method(text)) == versions.canonical_method(text)
    number = yamlfile.number_of(text)
    assert number is None or math.isfinite(number)


def baselines() -> list[bytes]:
    demo = [path.read_bytes() for path in sorted((ROOT / "deploy" / "demo").glob("b*.yaml"))]
    made = [recording(curve=(0.7, 0.5), blocks=3), recording(tpot=(0.02,) * 3), loaded("loaded", {1: 0.02, 2: 0.03})]
    return [*demo, *(to_yaml(each).encode() for each in made)]


def commands() -> list[bytes]:
    return [
        b"""vllm serve m --speculative-config '{"method": "eagle3", "num_speculative_tokens": 3}' -dp 2""",
        b"""vllm serve m -sc='{"method": "ngram", "num_speculative_tokens_per_batch_size": [[1, 2, 4], [3, 8, 0]]}'""",
        *(path.read_bytes() for path in sorted(CAPTURES.glob("*/command.txt"))),
    ]


def positions() -> list[bytes]:
    one = {
        "path": "/var/log/a.log",
        "device": 1,
        "inode": 2,
        "offset": 3000,
        "head_bytes": 256,
        "head_digest": "ab",
        "marker_bytes": 64,
        "marker_digest": "cd",
        "rotated": False,
        "skipping": True,
    }
    return [json.dumps({"specdec_log_positions": 1, "files": [one] * count}).encode() for count in (0, 1, 3)]


WORDS_OF_FLAGS = (
    *(b"1h30m", b"250ms", b"2.5s", b":10409", b"[::1]:10409", b"http://u:p@h:1/x?q#f", b"https://[::1%25eth0]:8080"),
    *(b"0.32.0rc1.dev12+gabc", b"v0.6.6.post1", b"deepseek_mtp", b'{a="b", c=~"d|e"}', b"/metrics", b"127.0.0.1:1"),
)

TARGETS = (
    Target("settings", check_settings, lambda: [SETTINGS], YAML_WORDS),
    Target("web configuration", check_web, lambda: [WEB], YAML_WORDS),
    Target("baseline file", check_baseline, baselines, YAML_WORDS),
    Target("read positions", check_positions, positions, (b'"files": [', b'"offset": ', b"[" * 3000)),
    Target("vLLM command", check_command, commands, COMMAND_WORDS, largest=4096),
    Target("flag", check_word, lambda: list(WORDS_OF_FLAGS), WORDS_OF_FLAGS, largest=MIB // 8),
)
