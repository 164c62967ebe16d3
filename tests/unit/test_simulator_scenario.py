"""Scenario files and incident flags: what they say happens, and what they get wrong is said in one line."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shlex
import textwrap
from typing import Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specdec_exporter.commands.simulate import command as simulate
from specdec_exporter.commands.simulate import settings_from_flags
from specdec_exporter.errors import ConfigError
from specdec_exporter.simulator.engine import Engine
from specdec_exporter.simulator.scenario import Collapse, PositionCliff, parse_incident
from specdec_exporter.simulator.settings import SimulatorSettings, load_simulation
from specdec_exporter.simulator.units import Load, parse_load, parse_seconds

DOCUMENTATION = pathlib.Path(__file__).parent.parent.parent / "docs" / "simulator.md"
EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples" / "scenarios"


def from_flags(*arguments: str) -> SimulatorSettings:
    with simulate.make_context("simulate", list(arguments)) as context:
        return settings_from_flags(context)


def from_text(tmp_path: pathlib.Path, text: str, **overrides: Any) -> SimulatorSettings:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    return load_simulation(str(path), overrides)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_runs(path: pathlib.Path) -> None:
    settings = from_flags("--scenario", str(path))
    run = Engine(settings)
    first = min((incident.at for incident in settings.incidents), default=0.0)
    run.advance(first + 30)
    assert run.ranks[0].totals.drafts > 0


def documented(language: str) -> str:
    """The one indented block of the documentation that begins with ``language``'s first line."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", DOCUMENTATION.read_text(), re.MULTILINE)
    (found,) = [block for block in map(textwrap.dedent, blocks) if block.strip().startswith(language)]
    return found


def test_the_documented_scenario_and_library_use_work_as_written(tmp_path: pathlib.Path) -> None:
    assert from_text(tmp_path, documented("settings:")).k == 4
    names: dict[str, Any] = {}
    exec(documented("from specdec_exporter"), names)
    assert b"vllm:spec_decode_num_drafts_total" in names["exposition"]
    assert names["lines"]


def test_a_scenario_sets_settings_and_incidents(tmp_path: pathlib.Path) -> None:
    settings = from_text(
        tmp_path,
        """
        settings: {acceptance: [0.9, 0.5], method: ngram, latency: {step_seconds: 0.01}}
        incidents:
          - {kind: collapse, at: 1m, for: 90s, acceptance: 0.1}
          - {kind: position_cliff, at: 5, position: 1}
        """,
    )
    assert (settings.k, settings.acceptance, settings.method) == (2, (0.9, 0.5), "ngram")
    assert (settings.latency.step_seconds, settings.latency.prefill_seconds) == (0.01, 0.1)
    assert settings.incidents == (Collapse(at=60, duration=90, acceptance=0.1), PositionCliff(at=5, position=1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("incidents: [{kind: collapse, acceptance: 0.1}]", "line 1: incidents[0]: expected the key at, found none"),
        ("incidents: [{kind: explode, at: 1}]", "incidents[0].kind: expected one of collapse, drift, "),
        ("incidents: [{kind: load, at: 1, load: lots}]", "incidents[0].load: expected requests per second"),
        ("incidents: [{kind: restart, at: soon}]", "incidents[0].at: expected a duration such as 90s, 5m or 1h"),
        ("incidents: [{kind: restart, at: -1}]", "incidents[0].at: expected a duration"),
        ("incidents: [{kind: collapse, at: 1, acceptance: 1.5}]", "incidents[0].acceptance: expected a ratio"),
        ("incidents: [{kind: collapse, at: 1, acceptance: [0.1]}]", "incidents[0].acceptance: expected 3 rates"),
        ("incidents: [{kind: position_cliff, at: 1, position: 3}]", "incidents[0].position: expected a position below"),
        ("settings: {method: null}\nincidents: [{kind: drift, at: 1, for: 1, acceptance: 0.1}]", "speculation is off"),
        ("settings:\n  seed: 1\n  k: 0", "line 3: settings.k: expected at least 1"),
        ("settings: {load: -4/s}", "load: expected requests per second"),
        ("settings: {tail_share: 0.1}", "settings.tail_share: unknown key"),
        ("settings: {latency: {tail_share: 2}}", "line 1: settings.latency.tail_share: expected a share from 0 to 1"),
    ],
)
def test_a_bad_scenario_is_one_line_that_names_file_and_key(tmp_path: pathlib.Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_text(tmp_path, text)
    message = str(raised.value)
    assert "scenario.yaml" in message
    assert says in message
    assert "\n" not in message


def test_flags_beat_the_file_and_the_environment_is_a_flag(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("settings: {k: 5, seed: 7, latency: {step_seconds: 0.5}}\nincidents: [{kind: restart, at: 1}]")
    monkeypatch.setenv("SPECDEC_SIMULATE_SEED", "8")
    monkeypatch.setenv("SPECDEC_SIMULATE_INCIDENT", "restart at=2;collapse at=3 acceptance=0.1")
    settings = from_flags("--scenario", str(path), "--k", "2", "--tail-share", "0.3", "--duration", "1m")
    assert (settings.k, settings.seed, settings.duration_seconds) == (2, 8, 60)
    assert (settings.latency.step_seconds, settings.latency.tail_share) == (0.5, 0.3)
    assert [incident.at for incident in settings.incidents] == [1, 2, 3]


def test_rates_on_the_command_line_set_k() -> None:
    assert from_flags("--acceptance", "0.9,0.7").k == 2
    assert from_flags("--acceptance-rate", "0.6", "--k", "4").rates[0] > 0.6
    with pytest.raises(ConfigError, match="expected 3 rates"):
        from_flags("--acceptance", "0.9,0.7", "--k", "3")
    with pytest.raises(click.BadParameter, match=r"0\.9,0\.7,0\.5"):
        from_flags("--acceptance", "high")


def test_defaults_of_flags_are_those_of_the_settings() -> None:
    assert from_flags() == SimulatorSettings()


def test_every_flag_has_an_environment_twin() -> None:
    for option in simulate.params:
        if isinstance(option, click.Option) and option.name != "help":
            twin = option.opts[0].removeprefix("--").replace("-", "_").upper()
            assert option.envvar == f"SPECDEC_SIMULATE_{twin}"
            assert option.help


@given(st.text() | st.text(min_size=1).map(lambda value: shlex.join(["restart", "at=1", f"for={value}"])))
@example("restart at={")
@example("restart at=[1,")
def test_an_incident_from_any_text_is_an_incident_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_incident(text).at >= 0


@given(st.floats(0, 1e6), st.sampled_from([("", 1), ("s", 1), ("m", 60), ("h", 3600)]))
def test_durations_scale_with_their_unit(number: float, unit: tuple[str, int]) -> None:
    assert parse_seconds(f"{number:f}{unit[0]}") == pytest.approx(float(f"{number:f}") * unit[1])


@pytest.mark.parametrize("text", ["", "s", "-1", "1d", "1m30s", "nan", "inf", float("nan"), float("inf"), -1.0, True])
def test_other_durations_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "load"),
    [("4/s", Load(requests_per_second=4)), ("0.5/s", Load(requests_per_second=0.5)), (16, Load(concurrency=16))],
)
def test_load_is_a_rate_or_a_concurrency(text: str | float, load: Load) -> None:
    assert parse_load(text) == load


@pytest.mark.parametrize("text", ["", "4/m", "1.5", "-1", "many", True])
def test_other_loads_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="expected requests per second"):
        parse_load(text)
