"""The examples on the reference pages work, and the settings on them are those that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from specdec_exporter.config import (
    OwnLogSettings,
    PredictorSettings,
    Settings,
    WebSettings,
    load_settings,
)
from specdec_exporter.errors import ConfigError
from specdec_exporter.web.tls import TLSServerConfig
from specdec_exporter.web.webconfig import HTTPServerConfig, WebConfig
from specdec_exporter.yamlfile import convert, parse_yaml
from support import yamltext
from support.fieldtools import ROOT

CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


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


def code(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


# --- configuration.md ------------------------------------------------------------------------------------------------


def test_the_example_file_loads_and_shows_every_setting(tmp_path: Path) -> None:
    (example,) = code(section(CONFIGURATION, "The file"), "yaml")
    path = tmp_path / "specdec.yaml"
    path.write_text(example)
    settings = load_settings(str(path), {})
    assert len(settings.predictors) > 1
    data = yamltext.load(example)
    assert set(data) == set(Settings.__struct_fields__)
    assert set(data["web"]) == set(WebSettings.__struct_fields__)
    assert set(data["log"]) == set(OwnLogSettings.__struct_fields__)
    assert set(data["predictors"][0]) == set(PredictorSettings.__struct_fields__)


def test_the_example_of_a_web_configuration_is_one_and_shows_every_setting() -> None:
    (example,) = code(section(CONFIGURATION, "TLS and basic authentication"), "yaml")
    data = yamltext.load(example)
    convert(parse_yaml(example.encode(), "the example", ConfigError), WebConfig, "the example", ConfigError)
    assert set(data) == set(WebConfig.__struct_fields__)
    assert set(data["tls_server_config"]) == set(TLSServerConfig.__struct_fields__)
    assert set(data["http_server_config"]) == set(HTTPServerConfig.__struct_fields__)
