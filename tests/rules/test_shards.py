"""A service, its replicas and its live control belong into one shard.

The same incidents are seen by one Prometheus, by shards as the rendered relabelling makes them, and by shards by pod.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import yamltext
from bench.fleet import Page, serving
from deploy.manifests import KUBERNETES, read
from deploy.test_podmonitor import as_prometheus_has_it
from fieldtools import tool
from relabelling import Rule, of_shard, relabelled
from rules.conftest import RENDERED
from rules.scenario import CONTROL, FLAG, STEADY, Case, Pack, Phase, Series, groups_with, replica, service, slower
from running import wait_until
from tsdb import free_port
from tsdb import serving as running

pytestmark = pytest.mark.slow

SCRAPING = RENDERED / "scraping"
SHARDS = 2
MINUTE = 59
PAGE, TICKET, OUTLIER = "AcceptanceLow critical", "AcceptanceLow warning", "ReplicaOutlier warning"
DOWN, PARTLY = "TargetDown critical", "TargetDown warning"
NOTHING = (0.05, 0.0, 0.0)


def steady(**differs: Any) -> Phase:
    return Phase(minutes=MINUTE + 1, **differs)


SLIS = ("tpot", "e2e")
LATE = {sli: slower(STEADY[sli], 1.5) for sli in SLIS}
FEW = steady(drafts_per_minute=20, requests_per_minute=10, curve=NOTHING)  # 600 drafts in half an hour
# The series of each pod; what fires in one Prometheus; what fires in shards by pod.
INCIDENTS: dict[str, tuple[Sequence[list[Series]], set[str], set[str]]] = {
    "one of two replicas is down": (
        [
            service(steady(), labels=replica(0)),
            service(Phase(minutes=20), Phase(minutes=MINUTE - 19, up=False), labels=replica(1)),
        ],
        {PARTLY},
        {PARTLY, DOWN},
    ),
    "one of four replicas accepts nothing": (
        [service(steady(curve=NOTHING) if n == 3 else steady(), labels=replica(n)) for n in range(4)],
        {OUTLIER},
        {PAGE, TICKET},
    ),
    "two replicas with few drafts accept nothing": (
        [service(FEW, families=("tpot",), labels=replica(n)) for n in range(2)],
        {PAGE, TICKET},
        set(),
    ),
    "slower than the live control": (
        [
            service(steady(latency=LATE), families=SLIS),
            service(steady(), families=SLIS, speculative=False, labels=CONTROL),
        ],
        {"Harmful critical", "P99Regression critical", "P99Regression warning"},
        set(),
    ),
}


def relabel_configs() -> list[Rule]:
    (job,) = yamltext.load((SCRAPING / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    found: list[Rule] = job["relabel_configs"]
    return found


def fired(pack: Pack, parts: Sequence[list[Series]]) -> set[str]:
    """What fires in any of several Prometheus, each of which has a part of the series."""
    cases = [Case(name=f"part {number}", series=series) for number, series in enumerate(parts) if series]
    found = pack.firing(*cases, minutes=[MINUTE], every=1)
    alerts = [
        f"{alert['alertname']} {alert['severity']}" for by_minute in found.values() for alert in by_minute[MINUTE]
    ]
    return {alert.removeprefix("SpecDecode") for alert in alerts if alert != FLAG}


@pytest.mark.parametrize("incident", INCIDENTS)
def test_shards_by_service_tell_what_one_prometheus_tells_and_shards_by_pod_do_not(incident: str, pack: Pack) -> None:
    shard = dataclasses.replace(pack, groups=groups_with("{ layer: 'shard' }"))
    pods, whole, by_pod = INCIDENTS[incident]
    everything = [one for series in pods for one in series]
    by_service = [
        [one for one in everything if relabelled(one.labels, of_shard(relabel_configs(), number, SHARDS))]
        for number in range(SHARDS)
    ]

    assert sum(map(len, by_service)) == len(everything)
    assert fired(pack, [everything]) == whole
    assert fired(shard, by_service) == whole
    assert fired(shard, pods) == by_pod


# --- The relabelling itself, by the programs that scrape --------------------------------------------------------------


def targets(address: str) -> list[dict[str, Any]]:
    """Twenty services of two replicas, each with a live control, in two clusters: as discovery finds them."""
    return [
        {
            "targets": [address],
            "labels": {
                "cluster": f"eu-{number % 2}",
                "namespace": "prod",
                "inference_service": f"chat-{number}{suffix}",
                "pod": f"chat-{number}{suffix}-{replica}",
                "instance": f"chat-{number}{suffix}-{replica}",
                "__meta_kubernetes_pod_label_serving_kserve_io_inferenceservice": f"chat-{number}{suffix}",
                "__param_service": f"chat-{number}{suffix}-{replica}",
            },
        }
        for number in range(20)
        for suffix in ("", "-control")
        for replica in range(2)
    ]


def as_the_operator_appends(number: int) -> list[Rule]:
    """What it writes below a PodMonitor's relabelings for a Prometheus with shards (0.92, pkg/prometheus)."""
    return [
        {
            "source_labels": ["__address__", "__tmp_hash"],
            "target_label": "__tmp_hash",
            "regex": "(.+);",
            "replacement": "$1",
            "action": "replace",
        },
        {"source_labels": ["__tmp_hash"], "target_label": "__tmp_hash", "modulus": SHARDS, "action": "hashmod"},
        {"source_labels": ["__tmp_hash", "__tmp_disable_sharding"], "regex": f"{number};|.+;.+", "action": "keep"},
    ]


def as_rendered(number: int) -> Sequence[Rule]:
    return of_shard(relabel_configs(), number, SHARDS)


def as_operated(number: int) -> list[Rule]:
    (endpoint,) = read(KUBERNETES / "monitoring" / "podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    return [*as_prometheus_has_it(endpoint["relabelings"]), *as_the_operator_appends(number)]


@contextlib.contextmanager
def scraping(program: str, config: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Run Prometheus or vmagent; yield its URL."""
    folder.mkdir()
    file, address = folder / "scrape.yaml", f"127.0.0.1:{free_port()}"
    file.write_text(json.dumps(config), encoding="utf-8")
    options = (
        [
            f"-promscrape.config={file}",
            f"-httpListenAddr={address}",
            f"-remoteWrite.tmpDataPath={folder / 'data'}",
            "-remoteWrite.url=http://127.0.0.1:9/nobody",
        ]
        if program == "vmagent"
        else [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    )
    with running([tool(program), *options], f"http://{address}", "/metrics", folder / "scraping.log") as url:
        yield url


def scraped(url: str) -> list[dict[str, str]]:
    """The labels of all targets that were scraped well."""
    with urllib.request.urlopen(f"{url}/api/v1/targets?state=active", timeout=60) as response:
        active = json.load(response)["data"]["activeTargets"]
    return [target["labels"] for target in active if target["health"] == "up"]


@pytest.mark.debian
@pytest.mark.parametrize(("program", "rules"), [("prometheus", as_operated), ("vmagent", as_rendered)])
def test_every_service_is_wholly_in_one_shard(program: str, rules: Any, tmp_path: Path) -> None:
    with serving(Page("# TYPE specdec_up gauge\nspecdec_up 1\n")) as address, contextlib.ExitStack() as stack:
        found = targets(address)
        shards = []
        for number in range(SHARDS):
            job = {"job_name": "specdec", "static_configs": found, "relabel_configs": rules(number)}
            config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
            shards.append(stack.enter_context(scraping(program, config, tmp_path / str(number))))
        wait_until(lambda: sum(len(scraped(url)) for url in shards) == len(found), seconds=60, what="scrape of all")
        taken = [scraped(url) for url in shards]

    homes: dict[tuple[str, str], set[int]] = {}
    for number, labels in ((number, labels) for number, shard in enumerate(taken) for labels in shard):
        one = labels["cluster"], labels["inference_service"].removesuffix("-control")
        homes.setdefault(one, set()).add(number)
        if program != "vmagent":  # which hashes in another way
            as_computed = relabelled(labels, of_shard(relabel_configs(), number, SHARDS)) is not None
            assert as_computed, "tests/relabelling.py is not Prometheus"
    assert len(homes) == 20
    assert all(len(home) == 1 for home in homes.values()), homes
    assert {number for home in homes.values() for number in home} == set(range(SHARDS))
