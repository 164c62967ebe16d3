"""What belongs to a release: its notes, and files that everybody builds alike."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tomllib
import uuid
from pathlib import Path

import pytest
import yaml

from release.notes import main, notes
from release.remaining import checksums, steps, unready
from render import reference, with_reference
from specdec_exporter import __version__
from support.fieldtools import ROOT, tool
from support.processes import ran, said
from support.running import exporter, predictor

CHANGELOG = """\
# Changelog

## 0.2.0 (2026-12-01)

### Added

- More.

## 0.1.1 (2026-11-30)

## 0.1.0 (2026-11-20)

- First.

## 0.1.0rc1 (unreleased)

- Nothing.
"""

# Folders whose files link to others of this repository.
LINKING = ("rules/rendered", "dashboards/rendered", "dashboards/provisioning", "deploy", "docs")
SUFFIXES = {".md", ".yaml", ".json"}
REPOSITORY = "specdec-exporter/specdec-exporter"
OWN_LINK = rf"{REPOSITORY}/(?:blob/|tree/)?(main|v[\d.]+)/([\w./-]+)|{REPOSITORY}/([\w./-]+)(?:\?ref=|@)(main|v[\d.]+)"


def own_links(text: str) -> set[tuple[str, str]]:
    """Git reference and path of every link to a file of this repository."""
    return {
        (ref or component_ref, path or component.lstrip("/"))
        for ref, path, component, component_ref in re.findall(OWN_LINK, text)
    }


def test_the_notes_are_the_section_of_the_release() -> None:
    assert notes(CHANGELOG, "0.2.0") == "### Added\n\n- More.\n"
    assert notes(CHANGELOG, "0.1.0") == "- First.\n"


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0.3.0", "has no section 0.3.0"),
        ("0.1", "has no section 0.1"),
        ("0.1.1", "says nothing about 0.1.1"),
        ("0.1.0rc1", "needs the day of the release"),
    ],
)
def test_without_a_finished_section_there_is_no_release(version: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        notes(CHANGELOG, version)


@pytest.mark.parametrize("arguments", [["v9.9.9"], [__version__], [], [f"v{__version__}", "more"]])
def test_a_tag_is_v_and_the_version_of_the_package(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert "is not v and the version of the package" in capsys.readouterr().err


def test_the_changelog_has_a_section_of_this_version() -> None:
    """Its text becomes the notes once the day is filled in."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert notes(changelog.replace("(unreleased)", "(2026-12-01)"), __version__)


# --- what a person must do --------------------------------------------------------------------------------------------


def test_each_step_of_the_page_is_printed_once_on_one_line() -> None:
    page = (ROOT / "docs/releasing.md").read_text(encoding="utf-8")
    found = steps(page)

    assert list(found) == ["Once", "Each time"]
    assert sum(map(len, found.values())) == len(re.findall(r"(?m)^\d+\. ", page))
    assert found["Once"][-1].endswith("`monitoring-mixins/website`.")
    assert not [step for listed in found.values() for step in listed if "](" in step or "  " in step]


def test_what_is_not_ready_is_said_until_it_is(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        said("git", *arguments, directory=tmp_path)

    git("init")
    (tmp_path / "CHANGELOG.md").write_text("## 0.2.0 (unreleased)\n\n- More.\n", encoding="utf-8")
    hub = "deploy/helm/artifacthub-repo.yml"
    (tmp_path / hub).parent.mkdir(parents=True)
    shutil.copy(ROOT / hub, tmp_path / hub)
    lacking = unready(tmp_path, "0.2.0")
    assert [one.split(" ", 1)[0] for one in lacking] == ["CHANGELOG.md", hub, "not", "there"]
    assert lacking[2] == "not committed: CHANGELOG.md, deploy/"

    (tmp_path / "CHANGELOG.md").write_text("## 0.2.0 (2026-12-01)\n\n- More.\n", encoding="utf-8")
    (tmp_path / hub).write_text(f"repositoryID: {uuid.uuid4()}\nowners: []\n", encoding="utf-8")
    git("add", ".")
    git("-c", "user.name=one", "-c", "user.email=one@example.com", "commit", "-m", "Release")
    git("tag", "v0.2.0")
    assert unready(tmp_path, "0.2.0") == []


def test_the_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "one.whl").write_bytes(b"one")
    (tmp_path / "SHA256SUMS").write_text(checksums(tmp_path), encoding="utf-8")

    said("sha256sum", "--check", "SHA256SUMS", directory=tmp_path)
    assert checksums(tmp_path).endswith("  one.whl\n")


# --- the package ------------------------------------------------------------------------------------------------------

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_package_names_every_python_that_ci_tests() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    tested = workflow["jobs"]["check"]["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: "

    assert [
        each.removeprefix(prefix) for each in PROJECT["project"]["classifiers"] if each.startswith(prefix)
    ] == tested


def test_packages_for_work_on_the_project_are_a_group_whose_lock_has_all_of_them() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    names = {re.split(r"[>=<]", each)[0].lower() for each in PROJECT["dependency-groups"]["dev"]}

    assert names <= locked
    assert PROJECT["project"]["optional-dependencies"].keys() == {"plot"}


# --- where users look -------------------------------------------------------------------------------------------------


def linking() -> dict[str, str]:
    """The text of every file that links to this repository."""
    files = [path for folder in LINKING for path in (ROOT / folder).rglob("*.*") if path.suffix in SUFFIXES]
    texts = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    return {file: text for file, text in texts.items() if own_links(text)}


def test_links_lead_to_files_of_this_checkout() -> None:
    """To the branch, until the changelog has the day of the release: then there is a tag."""
    links = {(file, ref, path) for file, text in linking().items() for ref, path in own_links(text)}
    expected = reference((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)

    assert len({file for file, _, _ in links}) > len(LINKING)
    assert [link for link in links if link[1] != expected or not (ROOT / link[2]).exists()] == []


def test_a_release_rewrites_every_link() -> None:
    unreleased = CHANGELOG.replace("(2026-12-01)", "(unreleased)")
    assert (reference(unreleased, "0.2.0"), reference(CHANGELOG, "0.2.0")) == ("main", "v0.2.0")

    for text in linking().values():
        links = own_links(with_reference(text, "v0.2.0"))
        assert links == {("v0.2.0", path) for _, path in own_links(text)}


def test_artifact_hub_shows_what_belongs_to_the_chart() -> None:
    chart = yaml.safe_load((ROOT / "deploy/helm/specdec-exporter/Chart.yaml").read_text(encoding="utf-8"))

    assert chart["version"] == __version__
    for name in ("changes", "links", "recommendations", "screenshots"):
        assert yaml.safe_load(chart["annotations"][f"artifacthub.io/{name}"])


@pytest.mark.field
def test_the_site_of_mixins_renders_the_mixin(tmp_path: Path) -> None:
    """With the commands of its generate.sh, run in the folder of its entry with `vendor` as only path."""
    entry = yaml.safe_load((ROOT / "tools/release/mixin.yaml").read_text(encoding="utf-8"))
    assert entry.keys() == {"name", "source", "subdir", "description"}
    folder = ROOT / entry["subdir"]

    def rendered(*arguments: str) -> str:
        return said(tool("jsonnet-current"), "-J", "vendor", *arguments, directory=folder)

    for field in ("prometheusAlerts", "prometheusRules"):
        manifest = rendered("-S", "-e", f'std.manifestYamlDoc((import "mixin.libsonnet").{field})')
        groups = yaml.safe_load(manifest)["groups"]
        assert all(group["rules"] for group in groups)
        assert groups
    rendered("-m", str(tmp_path), "-e", '(import "mixin.libsonnet").grafanaDashboards')
    assert {file.name for file in tmp_path.iterdir()} == {
        file.name for file in (ROOT / "dashboards/rendered").iterdir()
    }


# --- built twice ------------------------------------------------------------------------------------------------------

COMMIT = "0123456789" * 4
SOURCES = [
    *("exporter", "deploy/systemd", "make", "tools", "pyproject.toml", "requirements.lock"),
    *("README.md", "CHANGELOG.md", "LICENSE", "Makefile"),
]


def built(folder: Path, *targets: str) -> Path:
    """The dist folder of a copy of the sources, with the tools of this checkout."""
    for source in SOURCES:
        target = folder / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    command = ["make", "-C", str(folder), f"TOOLS={ROOT}/.tools", "EPOCH=1700000000", f"COMMIT={COMMIT}", *targets]
    made = ran(*command, seconds=900)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    return built(folder, "install", f"DESTDIR={folder}/root")


@pytest.mark.field
def test_two_builds_are_the_same_byte_by_byte(dist: Path, tmp_path: Path) -> None:
    again = built(tmp_path / "another" / "folder", "dist")

    files = {file.name for file in dist.iterdir()}
    assert len(files) == 2
    assert {file.name for file in again.iterdir()} == files
    assert [name for name in files if (dist / name).read_bytes() != (again / name).read_bytes()] == []


@pytest.mark.field
async def test_what_is_installed_serves_and_checks(dist: Path) -> None:
    root = dist.parent / "root"
    shebang, *lines = (root / "usr/bin/specdec-exporter").read_text(encoding="utf-8").splitlines()
    python, isolated = shebang.removeprefix("#!").split(" ")

    assert not Path(python).is_relative_to(ROOT)  # it outlives the checkout
    await serves_and_checks(python, isolated, "-c", "\n".join(lines).replace('"/usr/lib/', f'"{root}/usr/lib/'))
    assert not list(root.rglob("*.pth"))


async def serves_and_checks(*program: str) -> None:
    """It says its version, serves, judges what it serves, and ends when told to."""
    assert said(*program, "--version") == f"specdec-exporter, version {__version__}\n"
    body = (ROOT / "tests/fixtures/captures/0.32.0-draft_model-k3/metrics-2-p30.txt").read_bytes()
    async with predictor(body) as vllm, exporter("--predictor.url=" + vllm.url, program=program) as running:
        assert f'revision="{COMMIT}"' in await running.get("/metrics")
        assert (await running.samples())["specdec_exporter_config_last_reload_successful"] == 1
        assert "<html" in await running.get("/")
        judged = await asyncio.to_thread(ran, *program, "check", running.url, "--output", "json")
    assert json.loads(judged.stdout)["status"]["up"]
    assert running.process.returncode == 0
