"""The rendered rules and their sources please the linters of the field, and the checks of our own (rulelint.py)."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from support import rulelint, yamltext
from support.fieldtools import ROOT, run

RULES = ROOT / "rules"
RENDERED = sorted((RULES / "rendered").glob("*.yaml"))
FOLDERS = ("mixin", "deploy/demo")
SOURCES = [
    ROOT / "mixin.libsonnet",
    *sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*sonnet")),
]

# What fragile warns of, two sides with different labels, `matches` below finds where it is so.
PINT = ("--offline", "--no-color", "--disabled=promql/fragile", "lint", "--min-severity=info", "--fail-on=info")
LINTERS: dict[str, tuple[str, ...]] = {
    "promtool": ("check", "rules", "--lint=all", "--lint-fatal"),
    "promtool3": ("check", "rules", "--lint=all", "--lint-fatal"),
    "thanos": ("tools", "rules-check", "--rules"),
    "mimirtool": ("rules", "check", "--strict"),
    "pint": PINT,
}

MARKS = {"promtool": pytest.mark.debian, "thanos": pytest.mark.nightly, "mimirtool": pytest.mark.nightly}
LINTER_OF_THE_FIELD = [pytest.param(name, marks=MARKS.get(name, pytest.mark.field)) for name in LINTERS]

CHECKS: dict[str, Callable[[rulelint.Pack], Iterator[str]]] = {
    "templates": rulelint.templates,
    "existing": rulelint.existing,
    "matchers": rulelint.matchers,
    "matches": rulelint.matches,
    "ranges": lambda pack: rulelint.ranges(pack, scrape_seconds=60),
    "order": rulelint.order,
}


@cache
def served() -> dict[str, str]:
    """Types of what the exporter serves and vLLM served: our golden expositions and real servers'."""
    types: dict[str, str] = {}
    for path in [*(ROOT / "tests/golden").glob("*.txt"), *(ROOT / "tests/fixtures/captures").glob("*/metrics*.txt")]:
        types |= rulelint.series_types(path.read_text())
    # Absent while all is well, or without half an hour of traffic.
    return types | dict.fromkeys(("specdec_data_problem", "specdec_baseline_load_ratio"), "gauge")


@cache
def pack(path: Path) -> rulelint.Pack:
    """The rules of a file, read once for all checks."""
    return rulelint.load(path, served() | rulelint.OF_PROMETHEUS)


@pytest.fixture(params=RENDERED, ids=lambda path: path.name)
def rendered(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def plain(path: Path, folder: Path) -> Path:
    """The rule file itself, or the groups of a PrometheusRule as one."""
    text = path.read_text()
    if "spec" not in yamltext.load(text):
        return path
    unwrapped = folder / path.name
    # As it is written: with expressions in other quotes, pint takes a minute.
    unwrapped.write_text(textwrap.dedent(text.partition("\nspec:\n")[2]))
    return unwrapped


@pytest.mark.parametrize("linter", LINTER_OF_THE_FIELD)
def test_a_linter_of_the_field_is_content(linter: str, rendered: Path, tmp_path: Path) -> None:
    answer = run(linter, *LINTERS[linter], plain(rendered, tmp_path))

    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_of_ours_is_content(check: str, rendered: Path) -> None:
    assert list(CHECKS[check](pack(rendered))) == []


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        ("templates", "$labels.model_name", "$labels.sidecar"),
        ("templates", "- record: inference_service:specdec_", "- record: x:"),
        ("existing", "(specdec_drafts_total", "(specdec_draft_total"),
        ("matchers", '{stat="beyond"}', '{pod="beyond"}'),
        ("matches", "unless on (cluster, ", "unless on (sli, cluster, "),
        (
            "ranges",
            "last_over_time(inference_service:specdec_acceptance:usual1h[2h])",
            "inference_service:specdec_acceptance:usual1h",
        ),
        ("ranges", "[5m]", "[2m]"),  # a rate of two scrapes
        ("ranges", "[5h]", "[1h]"),  # one record
        ("ranges", "increase(specdec_draft_tokens_total", "delta(specdec_draft_tokens_total"),
        ("ranges", "min_over_time(inference_service", "rate(inference_service"),
    ],
)
def test_a_check_of_ours_finds_what_is_broken(check: str, right: str, wrong: str, tmp_path: Path) -> None:
    text = (RULES / "rendered" / "specdec.rules.yaml").read_text()
    broken = tmp_path / "rules.yaml"
    broken.write_text(text.replace(right, wrong))

    assert right in text
    assert list(CHECKS[check](pack(broken)))


def test_rules_in_a_wrong_order_are_found() -> None:
    right = pack(RULES / "rendered" / "specdec.rules.yaml")

    assert list(rulelint.order(dataclasses.replace(right, rules=right.rules[::-1])))


@pytest.mark.field
def test_jsonnet_is_formatted() -> None:
    answer = run("jsonnetfmt", "--test", *SOURCES)

    assert answer.returncode == 0, f"{answer.stdout}\njsonnetfmt -i puts it right"


@pytest.mark.field
def test_jsonnet_lint_is_content() -> None:
    answer = run("jsonnet-lint", "-J", ROOT, *SOURCES)

    assert answer.returncode == 0, answer.stdout
