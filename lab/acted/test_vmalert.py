"""The pack in VictoriaMetrics: vmalert loads the compat variant, and its values are Prometheus' values.

Both read the same samples: expositions of the exporter, stretched over three hours so that each counter grows by the
same multiple of its value every minute. Constant rates, because VictoriaMetrics does not extrapolate to the edges of a
window as Prometheus does: where rates change the two differ by design, whatever a rule says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from backfill import record, recording_layers
from support import rulelint
from support.fieldtools import ROOT, run
from support.promtool import promtool
from support.tsdb import Vector, prometheus, query
from victoriametrics import flush, import_samples, victoria_metrics

COMPAT = ROOT / "rules" / "rendered" / "specdec.compat.rules.yaml"
GOLDEN = ROOT / "tests" / "golden"

START = int(datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp())  # on the hour, where every group has an evaluation
MINUTES = 180
END = START + 60 * MINUTES
RULES_FROM = START + 3600  # with half an hour of samples before it, and more

# Exposition by service: healthy on two engines, its live control, and one that accepts a third of what it did.
SERVICES = {"chat": "two-engines", "chat-control": "no-speculation", "code": "0.32.0"}

PER_MINUTE = 10  # repetitions of the exposition: enough requests for latency rules to speak


class Databases(NamedTuple):
    """Base URLs of the two, both with the same samples and with what their own rulers made of them."""

    prometheus: str
    victoria_metrics: str
    blocks: Path  # Prometheus' data


def samples() -> Iterator[tuple[str, list[float]]]:
    """Every series of the services with its values, minute by minute."""
    for service, exposition in SERVICES.items():
        text = (GOLDEN / f"{exposition}.txt").read_text()
        types = rulelint.series_types(text)
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            series, _, value = line.rpartition(" ")
            name = series.partition("{")[0]
            each = float(value) / (3 if service == "code" and "accepted_tokens" in name else 1)
            growing = types[name] == "counter"
            yield (
                re.sub(r'inference_service="\w*"', f'inference_service="{service}"', series),
                [each * PER_MINUTE * minute if growing else each for minute in range(1, MINUTES + 2)],
            )


def fill_victoria_metrics(url: str, layer: Path) -> None:
    answer = run(
        "vmalert",
        *(f"-rule={layer}", f"-datasource.url={url}", f"-remoteWrite.url={url}", "-httpListenAddr=127.0.0.1:0"),
        *(f"-replay.timeFrom={rfc3339(RULES_FROM)}", f"-replay.timeTo={rfc3339(END)}"),
        *("-replay.rulesDelay=0s", "-replay.disableProgressBar", "-remoteWrite.flushInterval=100ms"),
    )
    assert answer.returncode == 0, answer.stdout
    flush(url)


def rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    folder = tmp_path_factory.mktemp("databases")
    data = folder / "prometheus"
    lines = [
        (series, value, START + 60 * minute) for series, values in samples() for minute, value in enumerate(values)
    ]
    openmetrics = folder / "samples.om"
    openmetrics.write_text("".join(f"{series} {value} {at}\n" for series, value, at in lines) + "# EOF\n")
    promtool().create_blocks(openmetrics, data)
    with victoria_metrics(folder / "victoria-metrics") as other:
        import_samples(other, "".join(f"{series} {value} {at}000\n" for series, value, at in lines))
        for groups in recording_layers(COMPAT):
            layer = record(groups, data, (RULES_FROM, END))
            fill_victoria_metrics(other, layer)
        with prometheus(data) as own:
            yield Databases(own, other, data)


@pytest.mark.debian
def test_vmalert_loads_the_compat_variant() -> None:
    answer = run("vmalert", "-dryRun", f"-rule={COMPAT}")

    assert answer.returncode == 0, answer.stdout


@pytest.mark.debian
def test_vmalert_of_debian_refuses_the_full_pack() -> None:
    # Else the compat variant is no longer needed.
    answer = run("vmalert", "-dryRun", f"-rule={COMPAT.with_name('specdec.rules.yaml')}")

    assert "keep_firing_for" in answer.stdout
    assert answer.returncode != 0


def values(url: str, rule: rulelint.Rule) -> Vector:
    """What a rule has recorded last, or for what an alert would fire, at the end."""
    expression = rule.text if rule.is_alert else f"last_over_time({rule.name}[1h])"
    found = query(url, expression, END)
    return {tuple((k, v) for k, v in series if k != "__name__"): value for series, value in found.items()}


@pytest.mark.nightly
@pytest.mark.debian
def test_vmalert_s_values_are_prometheus_values(databases: Databases) -> None:
    for rule in rulelint.load(COMPAT, {}).rules:
        wanted, found = values(databases.prometheus, rule), values(databases.victoria_metrics, rule)

        assert found == {series: pytest.approx(value, rel=1e-9) for series, value in wanted.items()}, str(rule)


@pytest.mark.nightly
@pytest.mark.debian
def test_the_comparison_is_of_something(databases: Databases) -> None:
    """Records without a value and alerts that do not fire compare equal, too: not all may be such."""
    rules = rulelint.load(COMPAT, {}).rules
    present = {rule.name for rule in rules if values(databases.prometheus, rule)}
    records = {rule.name for rule in rules if not rule.is_alert}

    assert {"SpecDecodeAcceptanceLow", "SpecDecodeP99Regression"} <= present
    # The others are of services that have something else: a baseline file, a fall, a regression that lasts, a restart.
    assert len(records - present) <= 22
