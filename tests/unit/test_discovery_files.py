"""Targets from files in Prometheus' file_sd format, and what is made of bad ones."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter import bounds
from specdec_exporter.errors import ConfigError
from specdec_exporter.serving.discovery.files import FileProvider, _targets
from specdec_exporter.serving.discovery.target import Target

GROUPS = [
    {"targets": ["10.0.0.1:8080", "10.0.0.2:8080"], "labels": {"inference_service": "chat", "team": "a"}},
    {
        "targets": ["[fd00::1]:8000"],
        "labels": {
            "__scheme__": "https",
            "__metrics_path__": "/vllm/metrics",
            "namespace": "prod",
            "pod": "code-0",
            "instance": "code",
        },
    },
]


def provider(*patterns: Path) -> FileProvider:
    return FileProvider(tuple(map(str, patterns)), lambda: None)


def addresses(provider: FileProvider) -> list[str]:
    return [target.instance for target in provider.targets]


@pytest.mark.parametrize("name", ["targets.json", "targets.yaml"])
def test_json_and_yaml_say_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(GROUPS, indent="\t" if name.endswith("json") else 2))
    assert list(_targets(str(path))) == [
        Target(url="http://10.0.0.1:8080", inference_service="chat", instance="10.0.0.1:8080"),
        Target(url="http://10.0.0.2:8080", inference_service="chat", instance="10.0.0.2:8080"),
        Target(
            url="https://[fd00::1]:8000/vllm",
            inference_service="default",
            instance="code",
            namespace="prod",
            pod="code-0",
        ),
    ]


def test_files_that_change_appear_and_go_are_noticed_and_others_cost_nothing(tmp_path: Path) -> None:
    one, two = tmp_path / "1.yaml", tmp_path / "2.yaml"
    one.write_text("- targets: [a:1]")
    files = provider(tmp_path / "*.yaml")
    assert files.look()
    assert not files.look()
    two.write_text("- targets: [b:1, 'c:1']")
    assert files.look()
    assert addresses(files) == ["a:1", "b:1", "c:1"]
    other = tmp_path / "other"
    other.write_text("- targets: [d:1]")
    other.replace(one)  # as a ConfigMap changes
    assert files.look()
    assert addresses(files) == ["d:1", "b:1", "c:1"]
    two.unlink()
    assert files.look()
    assert addresses(files) == ["d:1"]
    assert files.health.problem is None


def test_of_a_bad_file_the_last_good_one_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two = tmp_path / "1.yaml", tmp_path / "2.json"
    one.write_text("- targets: [a:1]")
    two.write_text('[{"targets": ["b:1"]}]')
    files = provider(tmp_path / "*.yaml", tmp_path / "*.json")
    files.look()
    good = files.health.last_success
    two.write_text('[{"targets": ["b:1", ')
    assert files.look()
    assert not files.look()
    assert addresses(files) == ["a:1", "b:1"]
    assert (files.health.failures, files.health.last_success) == (1, good)
    assert str(two) in (files.health.problem or "")
    assert len(caplog.records) == 1
    two.write_text("[]")
    files.look()
    assert (addresses(files), files.health.problem) == (["a:1"], None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- targets: [user:pw@h:1]", "expected a target such as"),
        ("- targets: ['h:1/metrics?x=']", "expected a target such as"),
        ("- targets: ['h:port']", "expected a target such as"),
        ("- targets: ['']", "expected a target such as"),
        ("- targets: [h:1]\n  labels: {__scheme__: ftp}", "expected a target such as"),
        ("- targets: [h:1]\n  labels: {__metrics_path__: /custom}", "ends in /metrics"),
        (f"- targets: [h:1]\n  labels: {{inference_service: {'x' * 300}}}", "at most 256"),
        ("- {targets: [h:1], label: {}}", "unknown key"),
        ("- {labels: {}}", "the key targets"),
        ("targets: [h:1]", "expected a list"),
    ],
)
def test_what_cannot_be_a_target_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        list(_targets(str(path)))
    assert str(path) in str(caught.value)


@given(content=st.binary(max_size=200) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_only_our_own_error_is_ever_raised(tmp_path_factory: pytest.TempPathFactory, content: str | bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigError):
        assert all(isinstance(target, Target) for target in _targets(str(path)))


def test_more_files_than_the_bound_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TARGET_FILES", 2)
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(f"- targets: ['{name}:1']")
    files = provider(tmp_path / "*")
    files.look()
    assert addresses(files) == ["a:1", "b:1"]


def test_a_pipe_or_a_missing_folder_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    files = provider(tmp_path / "*.yaml", tmp_path / "no" / "such" / "*.yaml")
    assert files.look()
    assert (files.targets, files.health.failures) == ([], 1)
