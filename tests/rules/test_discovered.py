"""Predictors that one exporter found: a real Prometheus scrapes it, and the rules see each of them as a replica."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.counting import ONE_ENGINE, count_up
from promtool import REPOSITORY
from rules.scenario import Case, Pack, Phase, Series, service
from running import exporter, predictor
from tsdb import Vector, prometheus, query

EXPORTER = {"job": "specdec-exporter"}  # one target for all
WELL = Phase(minutes=60)
REPLICA_UP = "inference_service:specdec_replica:up"


def pod(number: int, *phases: Phase, name: str = "chat") -> list[Any]:
    place = {"inference_service": name, "pod": f"{name}-{number}", "instance": f"10.0.0.{number + 1}:8080"}
    return service(*phases, labels=EXPORTER | place)


def test_the_rules_tell_the_predictors_of_one_exporter_apart(pack: Pack) -> None:
    bad = Phase(minutes=60, curve=(0.4, 0.2, 0.1))
    away = [Phase(minutes=20), Phase(minutes=40, up=False)]
    silent = [Phase(minutes=30), Phase(minutes=30, present=False)]
    whole = {55: {"inference_service:specdec_drafts:increase30m": 3 * 18000}}
    pack.run(
        Case(name="alike", series=[*pod(0, WELL), *pod(1, WELL), *pod(2, WELL)], firing={55: set()}, values=whole),
        Case(
            name="one drafts worse",
            series=[*pod(0, WELL), *pod(1, WELL), *pod(2, bad)],
            values={55: {'ALERTS{alertname="SpecDecodeReplicaOutlier", alertstate="firing", pod="chat-2"}': 1}},
        ),
        Case(
            name="one is away",
            series=[*pod(0, WELL), *pod(1, *away)],
            firing={55: {"SpecDecodeTargetDown warning"}},
        ),
        Case(
            name="all are away",
            series=[*pod(0, *away), *pod(1, *away)],
            firing={35: {"SpecDecodeTargetDown critical"}},
        ),
        # Nothing tells the rules that it is not the predictors: docs/discovery.md says how to.
        Case(
            name="the exporter is away",
            series=[*pod(0, *silent), *pod(0, *silent, name="code"), Series("up", EXPORTER, [1.0] * 30 + [0.0] * 30)],
            firing={55: {"SpecDecodeTargetDown critical"}},
        ),
    )


@pytest.mark.debian
async def test_a_scrape_that_honours_labels_makes_each_predictor_a_target_of_its_own(tmp_path: Path) -> None:
    """The groups of the rules that a scrape and its first evaluation can fill, once a second."""
    groups = yaml.safe_load((REPOSITORY / "rules" / "rendered" / "specdec.rules.yaml").read_text())["groups"]
    kept = [
        {"name": "up", "interval": "1s", "rules": [rule]}
        for group in groups
        for rule in group["rules"]
        if rule.get("record") == REPLICA_UP
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": kept}))
    capture = ONE_ENGINE.read_bytes()
    async with predictor(capture) as one, predictor(count_up(capture, 2)) as two:
        hosts = [each.url.removeprefix("http://") for each in (one, two)]
        targets = [
            {"targets": [host], "labels": {"inference_service": "chat", "namespace": "prod", "pod": f"chat-{number}"}}
            for number, host in enumerate(hosts)
        ]
        (tmp_path / "targets.json").write_text(json.dumps(targets))
        (tmp_path / "specdec.yaml").write_text(f"discovery: {{files: ['{tmp_path}/targets.json']}}")
        async with exporter(f"--config.file={tmp_path}/specdec.yaml") as running:
            scrape = {
                "job_name": "specdec-exporter",
                "honor_labels": True,
                "scrape_interval": "1s",
                "static_configs": [
                    {
                        "targets": [running.url.removeprefix("http://")],
                        "labels": {"namespace": "monitoring", "pod": "specdec-exporter-0"},
                    }
                ],
            }
            configuration = yaml.safe_dump({"scrape_configs": [scrape], "rule_files": [f"{tmp_path}/rules.yaml"]})
            found = await asyncio.to_thread(asked, tmp_path / "data", configuration)
    places = {("chat", "prod", host) for host in hosts}
    ups, recorded, about = found
    assert {place(labels, "inference_service", "namespace", "instance") for labels in ups} == places
    assert {place(labels, "pod") for labels in ups} == {("chat-0",), ("chat-1",)}
    assert {place(labels, "inference_service", "namespace", "instance") for labels in recorded} == places
    assert set(recorded.values()) == {1.0}
    assert {place(labels, "namespace", "pod") for labels in about} == {("monitoring", "specdec-exporter-0")}


def asked(data: Path, configuration: str) -> tuple[Vector, Vector, Vector]:
    """``specdec_up``, its record and a family about the exporter, as soon as all are there."""
    with prometheus(data, configuration=configuration) as url:
        deadline = time.monotonic() + 60
        while True:
            now = time.time()
            found = (
                query(url, "specdec_up", now),
                query(url, REPLICA_UP, now),
                query(url, "specdec_exporter_build_info", now),
            )
            if all(found) and len(found[1]) == len(found[0]):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


def place(labels: tuple[tuple[str, str], ...], *names: str) -> tuple[str, ...]:
    return tuple(dict(labels).get(name, "") for name in names)
