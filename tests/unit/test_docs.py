"""The reference pages say what the code does: every flag, setting and metric, and no other."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
import yaml
from prometheus_client.metrics_core import Metric

from specdec_exporter.commands.serve import command as SERVE  # noqa: N812  a constant here
from specdec_exporter.commands.serve import overrides
from specdec_exporter.config import OwnLogSettings, PredictorSettings, Settings, WebSettings, load_settings
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.sources import kubelog
from specdec_exporter.predictor.versions import WARNINGS, releases_in_words
from specdec_exporter.serving.collector import ENGINE, MODEL, SERVICE, STATES, build_registry
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.web.tls import TLSServerConfig
from specdec_exporter.web.webconfig import HTTPServerConfig, WebConfig
from specdec_exporter.yamlfile import parse_yaml

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()
GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.txt"))


def section(page: str, heading: str) -> str:
    """What stands under ``heading`` up to the next one."""
    (text,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return str(text)


def tables(text: str) -> Iterator[dict[str, str]]:
    """The rows of all tables, each as column -> cell, with "" where a column is not there."""
    header: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            header = []
        elif not header:
            header = cells
        elif set(cells) != {"---"}:
            yield dict(zip(header, cells, strict=True))


def rows(page: str, column: str) -> dict[str, dict[str, str]]:
    """The rows of every table whose first column is ``column``, by the name in it. No name stands twice."""
    found = [row for row in tables(page) if next(iter(row)) == column]
    by_name = {row[column].strip("`"): row for row in found}
    assert len(by_name) == len(found)
    return by_name


def code(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


# --- configuration.md ------------------------------------------------------------------------------------------------

OPTIONS = {
    max(option.opts, key=len): option
    for option in SERVE.get_params(click.Context(SERVE))
    if isinstance(option, click.Option)
}
FLAGS = rows(CONFIGURATION, "Flag")
SECTIONS: dict[str, msgspec.Struct] = {
    "web": WebSettings(),
    "log": OwnLogSettings(),
    "predictor": PredictorSettings(),
    "top": Settings(),
}


def setting_of(option: click.Option) -> tuple[str, str] | None:
    """Section and key of the setting that an option sets; ``None`` for one that sets none."""
    sections = overrides({str(option.name): "set"})
    ((section_name, keys),) = sections.items()
    return (section_name, next(iter(keys))) if section_name in SECTIONS else None


def test_every_flag_of_serve_stands_in_the_table_and_no_other() -> None:
    assert set(FLAGS) == set(OPTIONS)


@pytest.mark.parametrize("flag", OPTIONS)
def test_a_flag_has_the_variable_that_is_documented(flag: str) -> None:
    variable = OPTIONS[flag].envvar
    assert FLAGS[flag]["Environment"] == (f"`{variable}`" if variable else "-")


@pytest.mark.parametrize("flag", OPTIONS)
def test_a_flag_has_the_key_and_the_default_that_are_documented(flag: str) -> None:
    option, row = OPTIONS[flag], FLAGS[flag]
    setting = setting_of(option)
    if setting is None:
        assert row["In the file"] == "-"
        assert row["Default"] == ("off" if option.is_flag else "none")
        return
    section_name, key = setting
    shown = {"top": key, "predictor": f"predictors[].{key}"}.get(section_name, f"{section_name}.{key}")
    assert row["In the file"] == f"`{shown}`"
    default = getattr(SECTIONS[section_name], key)
    if not default:
        assert row["Default"] == ("off" if option.is_flag else "none")
        return
    documented = option.type.convert(row["Default"].strip("`"), option, None)
    assert ((documented,) if option.multiple else documented) == default


@pytest.mark.parametrize("flag", [flag for flag, option in OPTIONS.items() if isinstance(option.type, click.Choice)])
def test_every_choice_of_a_flag_is_named(flag: str) -> None:
    choices = OPTIONS[flag].type
    assert isinstance(choices, click.Choice)
    named = re.findall(r"`(\w+)`", FLAGS[flag]["Meaning"] + FLAGS[flag]["Default"])
    assert set(named) == set(choices.choices)


def test_no_flag_is_mentioned_that_there_is_not() -> None:
    assert set(re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", CONFIGURATION)) == set(OPTIONS)


def test_no_variable_is_mentioned_that_is_not_read() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "exporter").rglob("*.py"))
    read = {str(option.envvar) for option in OPTIONS.values() if option.envvar}
    read |= set(re.findall(r'environ\.get\("((?:SPECDEC|POD)_\w+)"\)', sources))
    assert set(re.findall(r"\b(?:SPECDEC|POD)_\w+", CONFIGURATION)) == read


def test_the_kubernetes_defaults_are_those_of_the_code() -> None:
    variables = rows(CONFIGURATION, "Environment")
    assert variables["SPECDEC_PREDICTOR_CONTAINER"]["Default"] == f"`{kubelog.DEFAULT_CONTAINER}`"


def test_the_example_file_loads_and_shows_every_setting(tmp_path: Path) -> None:
    (example,) = code(section(CONFIGURATION, "The file"), "yaml")
    path = tmp_path / "specdec.yaml"
    path.write_text(example)
    settings = load_settings(str(path), {})
    assert len(settings.predictors) > 1
    data = yaml.safe_load(example)
    assert set(data) == set(Settings.__struct_fields__)
    assert set(data["web"]) == set(WebSettings.__struct_fields__)
    assert set(data["log"]) == set(OwnLogSettings.__struct_fields__)
    assert set(data["predictors"][0]) == set(PredictorSettings.__struct_fields__)


def test_the_example_of_a_web_configuration_is_one_and_shows_every_setting() -> None:
    (example,) = code(section(CONFIGURATION, "TLS and basic authentication"), "yaml")
    data = yaml.safe_load(example)
    parse_yaml(example.encode(), "the example", ConfigError).read(WebConfig)
    assert set(data) == set(WebConfig.__struct_fields__)
    assert set(data["tls_server_config"]) == set(TLSServerConfig.__struct_fields__)
    assert set(data["http_server_config"]) == set(HTTPServerConfig.__struct_fields__)


# --- metrics.md ------------------------------------------------------------------------------------------------------

FAMILIES = rows(METRICS, "Family")


def exported_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


@pytest.fixture(scope="module")
def served() -> dict[str, Metric]:
    """Every family that serving can make, with or without a sample: what is made in a collection is remembered."""
    made: list[Metric] = []
    make = Metric.__init__

    def remember(self: Metric, name: str, documentation: str, typ: str, unit: str = "") -> None:
        make(self, name, documentation, typ, unit)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Metric, "__init__", remember)
        settings = Settings()
        list(build_registry(ExporterRuntime(settings, lambda: settings)).collect())
    return {exported_name(family): family for family in made}


def test_every_family_that_is_served_is_documented_and_no_other(served: dict[str, Metric]) -> None:
    assert set(FAMILIES) == set(served)


def test_a_family_has_the_type_that_is_documented(served: dict[str, Metric]) -> None:
    documented = {name: row["Type"] for name, row in FAMILIES.items()}
    assert documented == {name: family.type for name, family in served.items()}


def test_a_family_has_the_labels_that_are_documented(served: dict[str, Metric]) -> None:
    groups = {"engine": ENGINE, "model": MODEL, "service": SERVICE}

    def documented(row: dict[str, str]) -> set[str]:
        parts = [part.strip() for part in row["Labels"].split(",") if part]
        assert all(part in groups or re.fullmatch(r"`\w+`", part) for part in parts)
        return {label for part in parts for label in groups.get(part, (part.strip("`"),))}

    found = {name: set(getattr(family, "_labelnames", ())) for name, family in served.items()}
    assert {name: documented(row) for name, row in FAMILIES.items()} == found


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_what_is_served_of_real_predictors_is_documented(golden: Path) -> None:
    found = dict(re.findall(r"^# TYPE (\S+) (\S+)$", golden.read_text(), re.MULTILINE))
    assert found
    assert found.items() <= {name: row["Type"] for name, row in FAMILIES.items()}.items()


def test_no_metric_is_mentioned_that_is_not_served(served: dict[str, Metric]) -> None:
    series = {
        name + suffix
        for name, family in served.items()
        for suffix in ("", *(("_bucket", "_sum", "_count") if family.type == "histogram" else ()))
    }
    for page in (METRICS, CONFIGURATION):
        assert set(re.findall(r"\bspecdec_\w+", page)) <= series


def test_states_and_warnings_are_those_of_the_code() -> None:
    assert tuple(rows(METRICS, "State")) == STATES
    documented = {
        code: (row["Releases"], row["Meaning"], row["What to do"]) for code, row in rows(METRICS, "Warning").items()
    }
    assert documented == {
        code: (releases_in_words(warning.since, warning.until), warning.meaning, warning.action)
        for code, warning in WARNINGS.items()
    }


def test_thresholds_are_those_of_the_policy() -> None:
    policy = load_policy()
    windows = FAMILIES["specdec_window_acceptance_ratio"]["Meaning"]
    assert f"at least {policy.short_window_seconds:g} s, at least {policy.min_drafts} drafts" in windows
    recommended = FAMILIES["specdec_recommended_num_speculative_tokens"]["Absent"]
    assert f"fewer than {policy.min_drafts} drafts" in recommended
    assert f"more than {policy.short_draft_tolerance:.0%}".replace("%", " %") in recommended
    states = rows(METRICS, "State")
    assert f"in the last {policy.state_window_seconds:g} s" in states["idle"]["Meaning"]
    assert f"in the last {policy.state_window_seconds:g} s" in states["drafting"]["Meaning"]


def test_promtool_understands_every_example(tmp_path: Path) -> None:
    examples = code(METRICS, "promql")
    assert len(examples) >= 3
    rules = [{"record": f"example:{index}:", "expr": expression} for index, expression in enumerate(examples)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "examples", "rules": rules}]}))
    checked = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
