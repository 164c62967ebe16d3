"""What is served, whole, for real dumps of four eras: golden files under tests/golden.

After a deliberate change: ``pytest tests/unit/test_collector.py --update-golden`` and read the diff.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from prometheus_client.exposition import generate_latest

import metrictables
from specdec_exporter.config import PredictorSettings, Settings
from specdec_exporter.predictor.log.events import PredictorWarning
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.families.family import help_text
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.speculation import evidence
from specdec_exporter.state import lastword, view
from specdec_exporter.state.observing import observe_event, observe_snapshot
from support.builders import CAPTURES, config, engine, exposed, snapshot, window

# Families whose values are of this machine or this moment.
VOLATILE = re.compile(r"(# (HELP|TYPE) )?(process_|python_|specdec_exporter_|specdec_scrape_collector_duration)")

LINE = window((4, 3, 2), 5, engine="000")


async def render(*dumps: Path, log: bool = False) -> str:
    """The exposition after reading ``dumps`` one after the other."""

    def prepare(predictor: PredictorRuntime) -> None:
        if log:
            for event in (config(), PredictorWarning(warning="stats_logging_disabled"), LINE, LINE):
                observe_event(predictor.state, event)
        for dump in dumps:
            observe_snapshot(predictor.state, parse_exposition(dump.read_bytes()))

    settings = PredictorSettings(name="svc", log_paths=("vllm.log",) if log else ())
    return "".join(line for line in await exposed(settings, prepare) if not VOLATILE.match(line))


@pytest.mark.parametrize(
    ("name", "dumps", "log"),
    [
        ("v0", ["0.9.2-v0-ngram-k5/metrics-1-high.txt", "0.9.2-v0-ngram-k5/metrics-2-mid.txt"], False),
        ("0.8.3", ["0.8.3-driven/metrics-0-before.txt", "0.8.3-driven/metrics-1-after.txt"], False),
        ("0.32.0", ["0.32.0-draft_model-k3/metrics-8-p90.txt", "0.32.0-draft_model-k3/metrics-5-p60.txt"], True),
        ("two-engines", ["0.32.0-draft_model-dp2-api1/metrics-1-after.txt"], False),
        ("no-stats", ["0.32.0-draft_model-disable-log-stats/metrics-1-after.txt"], False),
        ("no-speculation", ["0.32.0-baseline-nospec/metrics-1-after.txt"], False),
    ],
)
async def test_the_exposition_is_the_golden_one(
    name: str, dumps: list[str], log: bool, golden: Callable[[str, str], None]
) -> None:
    golden(name, await render(*(CAPTURES / dump for dump in dumps), log=log))


async def test_the_window_of_all_engines_is_summed_as_often_for_many_models_as_for_one() -> None:
    """Once for each model, hundreds of them would hold up every request for seconds."""

    async def times(models: int) -> int:
        def prepare(predictor: PredictorRuntime) -> None:
            observe_snapshot(predictor.state, snapshot(*(engine(9, model=f"m{number}") for number in range(models))))
            counted.reset_mock()

        with patch.object(view, "window_of", side_effect=view.window_of) as counted:
            await exposed(PredictorSettings(name="svc"), prepare)
            return sum(len(call.args) == 1 for call in counted.call_args_list)  # the others are of one engine

    assert await times(40) == await times(1) > 0


async def test_a_scrape_needs_neither_sentences_nor_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(*_: object) -> None:
        raise AssertionError

    def prepare(predictor: PredictorRuntime) -> None:
        for steps in (1000, 2000):
            predictor.observe(snapshot(engine(steps, (0.8 * steps, 0.7 * steps, 0.6 * steps), requests=steps / 10)))

    monkeypatch.setattr(lastword, "tell", tell)
    monkeypatch.setattr(evidence, "pitfalls_of", tell)
    lines = await exposed(PredictorSettings(name="svc"), prepare)
    assert any(line.startswith("specdec_verdict{") for line in lines)


async def test_what_the_python_client_serves_is_in_the_table_too() -> None:
    settings = Settings()
    text = generate_latest(SpecdecCollector(ExporterRuntime(settings, lambda: settings))).decode()
    served = dict(re.findall(r"^# TYPE ((?:process|python)_\S+) (\S+)$", text, re.MULTILINE))
    assert served == {family.name: family.type for family in metrictables.CLIENT.families}


def test_names_labels_and_help_texts_keep_to_the_conventions() -> None:
    for group in (each for _, groups in metrictables.FAMILIES.values() for each in groups):
        for family in group.families:
            assert re.fullmatch(r"(specdec|process|python)_[a-z_]+", family.name)
            assert family.name.endswith("_total") == (family.type == "counter"), family.name
            assert not {*group.labels, *family.labels} & {"pod", "namespace", "cluster", "instance", "job"}, family.name
            assert re.fullmatch(r"\S.{9,}\.", help_text(group, family, "300 s")), family.name
