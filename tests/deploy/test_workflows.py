"""What the files for GitHub say is true of this repository: targets, flags, folders, versions of Python."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.workflows import GITHUB, WORKFLOWS, jobs, make_targets, scripts, steps
from support.fieldtools import ROOT, run

MANIFESTS = {
    "pip": "pyproject.toml",
    "docker": "Dockerfile",
    "docker-compose": "compose.yaml",
    "gomod": "go.mod",
    "npm": "package-lock.json",
    "github-actions": ".github/workflows/*.yml",
}


def dependabot() -> list[dict[str, Any]]:
    updates: list[dict[str, Any]] = yaml.safe_load((GITHUB / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    return updates


def folders(update: dict[str, Any]) -> list[Path]:
    patterns = update["directories"] if "directories" in update else [update["directory"]]
    return [folder for pattern in patterns for folder in ([ROOT] if pattern == "/" else ROOT.glob(pattern.strip("/")))]


def test_workflows_and_hooks_call_targets_that_exist() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    lines = [line for text in (*scripts(), *(hook["entry"] for hook in hooks)) for line in text.splitlines()]
    called = {word for line in lines if line.startswith("make ") for word in shlex.split(line)[1:] if "=" not in word}

    assert {"check", "test", "test-tools", "test-vllm", "dist", "lint"} <= called
    assert called - make_targets() == set()


def test_what_others_can_move_is_named_by_commit_or_digest() -> None:
    """A tag of an action or an image can be moved; a commit and a digest cannot."""
    used = [step["uses"] for file in WORKFLOWS for step in steps(file) if "uses" in step]
    images = [job["container"]["image"] for file in WORKFLOWS for job in jobs(file).values() if "container" in job]

    assert used
    assert images
    assert [one for one in used if not re.search(r"@[0-9a-f]{40}$", one)] == []
    assert [one for one in images if not re.search(r"@sha256:[0-9a-f]{64}$", one)] == []
    assert len(set(images)) == 1


def test_every_python_that_the_package_names_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: Python :: 3\.", one)]

    tested = jobs(GITHUB / "workflows" / "ci.yml")["check"]["strategy"]["matrix"]["python"]

    assert project["requires-python"] == f">={tested[0]}"
    assert set(named) <= set(tested)


def test_the_image_is_built_with_arguments_that_it_knows() -> None:
    recipe = (ROOT / "make/release.mk").read_text(encoding="utf-8")
    given = set(re.findall(r"--build-arg (\w+)=", recipe)) - {"SOURCE_DATE_EPOCH"}  # BuildKit's own

    known = set(re.findall(r"(?m)^ARG (\w+)", (ROOT / "Dockerfile").read_text(encoding="utf-8")))

    assert given == known - {"PYTHON_IMAGE"}


@pytest.mark.parametrize("update", dependabot(), ids=lambda update: update["package-ecosystem"])
def test_dependabot_looks_where_there_is_something(update: dict[str, Any]) -> None:
    found = folders(update)

    assert found
    assert [folder for folder in found if not [*folder.glob(MANIFESTS[update["package-ecosystem"]])]] == []


@pytest.mark.field
def test_zizmor_finds_nothing() -> None:
    found = run("zizmor", "--offline", "--no-progress", "--color=never", GITHUB)
    assert found.returncode == 0, found.stdout


@pytest.mark.field
@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-workflows", "workflows/*.yml"),
        ("custom.github-workflows-require-timeout", "workflows/*.yml"),
        ("vendor.dependabot", "dependabot.yml"),
        ("vendor.github-issue-config", "ISSUE_TEMPLATE/config.yml"),
        ("vendor.github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml"),
    ],
)
def test_github_can_read_it(schema: str, pattern: str) -> None:
    files = sorted(GITHUB.glob(pattern))
    assert files
    found = run("check-jsonschema", "--builtin-schema", schema, *files)
    assert found.returncode == 0, found.stdout
