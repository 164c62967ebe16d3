"""The compose file is one, what it mounts exists, and what it configures is what the programs take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from alertmanager.conftest import RELEASES, Release
from deploy import containers
from deploy.manifests import COMPOSE, SERVE_VARIABLES, read
from specdec_exporter import __version__
from support.fieldtools import ROOT
from support.processes import exporter_ran

SERVICES = sorted(containers.services())
SECRETS = "/etc/alertmanager/secrets"


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_mounted_from_the_repository_exists_and_cannot_be_written(service: str) -> None:
    own = [mount for mount in containers.mounts(service) if mount.host is not None and not mount.chosen]

    assert [mount.source for mount in own if mount.host is None or not mount.host.exists()] == []
    assert [mount.source for mount in own if not mount.read_only] == []


def test_what_a_user_may_put_in_place_is_read_only_and_not_committed() -> None:
    chosen = {mount.target: mount for service in SERVICES for mount in containers.mounts(service) if mount.chosen}

    assert chosen.keys() == {SECRETS, "/var/log/vllm"}
    assert all(mount.read_only for mount in chosen.values())
    assert f"{Path(chosen[SECRETS].source).name}/" in (COMPOSE / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_images_are_pinned_to_what_was_tested() -> None:
    images = dict(containers.services()[service]["image"].split(":") for service in SERVICES)
    pins = (ROOT / "tools/prometheus/go.mod").read_text("utf-8") + (ROOT / "tools/alertmanager/go.mod").read_text(
        "utf-8"
    )

    assert all(re.fullmatch(r"v?\d+\.\d+\.\d+", tag) for tag in images.values()), images
    assert images["specdec-exporter"] == __version__
    assert f"prometheus/alertmanager {images['prom/alertmanager']} //" in pins
    major, minor, patch = images["prom/prometheus"].lstrip("v").split(".")
    assert f"prometheus/prometheus v0.{major}{int(minor):02}.{patch} //" in pins


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_listens_beyond_this_machine(service: str) -> None:
    ports = containers.services()[service].get("ports", [])

    assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for port in ports)
    assert bool(ports) == (service != "simulator")


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_says_whether_it_is_well(service: str) -> None:
    image = "HEALTHCHECK " in (ROOT / "Dockerfile").read_text(encoding="utf-8")

    assert "healthcheck" in containers.services()[service] or (image and service == "exporter")


def test_the_exporter_takes_its_settings() -> None:
    given = containers.environment("exporter")

    assert given.keys() <= SERVE_VARIABLES
    answer = exporter_ran("serve", "--config.check", **given)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_alertmanager_loads_its_configuration_and_the_templates(release: Release, tmp_path: Path) -> None:
    root = containers.filesystem("alertmanager", tmp_path)
    (config,) = (value for value in containers.command("alertmanager", root, {}) if value.startswith("--config.file="))

    answer = release.amtool("check-config", config.removeprefix("--config.file="))

    assert answer.returncode == 0, answer.stdout
    assert " - 1 templates\n" in answer.stdout


def test_prometheus_knows_the_other_services_by_name_and_port() -> None:
    config = read(COMPOSE / "prometheus.yaml")
    groups = [group for job in config["scrape_configs"] for group in job["static_configs"]]
    groups += [group for one in config["alerting"]["alertmanagers"] for group in one["static_configs"]]
    targets = {target.replace("localhost", "prometheus") for group in groups for target in group["targets"]}

    offered = {
        f"{service}:{port.rpartition(':')[2]}"
        for service in SERVICES
        for port in containers.services()[service].get("ports", [])
    }
    assert targets == {"exporter:10409", "prometheus:9090", "alertmanager:9093"} <= offered


def test_grafana_finds_its_data_source_and_the_dashboards(tmp_path: Path) -> None:
    root = containers.filesystem("grafana", tmp_path / "root")
    provisioning = root / "etc/grafana/provisioning"
    (source,) = read(next((provisioning / "datasources").glob("*.yaml")))["datasources"]
    (provider,) = read(next((provisioning / "dashboards").glob("*.yaml")))["providers"]

    assert source["url"] == "http://prometheus:9090"
    assert len(list(root.joinpath(provider["options"]["path"].lstrip("/")).glob("*.json"))) == 4
