"""One exporter finds its predictors through a real API server, with the rights that docs/discovery.md asks for."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
import yaml

from bench.counting import ONE_ENGINE
from bench.processes import descriptors, memory, threads
from cluster.api import RefusedError, where
from cluster.controlplane import ControlPlane
from cluster.transcript import Transcript
from fieldtools import ROOT
from running import Exporter, exporter, predictor

PAGE = ROOT / "docs" / "discovery.md"
SERVICE_LABEL = "serving.kserve.io/inferenceservice"
BATCHES, OF = 20, 50
# As in docs/reliability.md: flat within 2 MiB. Whole runs had 0.6 and 0.8.
LEAK_MIB = 2.0


def configuration(plane: ControlPlane, namespace: str, folder: Path, port: str) -> Path:
    """A file for an exporter whose account has the rights of the page, and no other."""
    examples = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (rights,) = [example for example in examples if "kind: ServiceAccount\n" in example]
    plane.apply(rights.replace("prod", namespace))
    (folder / "token").write_text(plane.token(namespace, "specdec-exporter"))
    kubernetes = {
        "namespaces": [namespace],
        "port": port,
        "api_server": plane.url,
        "api_ca_file": str(plane.authority_file),
        "api_token_file": str(folder / "token"),
    }
    path = folder / "specdec.yaml"
    path.write_text(yaml.safe_dump({"discovery": {"kubernetes": kubernetes}}))
    return path


def make(plane: ControlPlane, namespace: str, name: str, address: str) -> None:
    """A pod of the service that runs, as its node would say."""
    container = {"name": "kserve-container", "image": "vllm"}
    meta = {"name": name, "labels": {SERVICE_LABEL: "chat"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    plane.api.request("POST", where("v1/pods", namespace), pod)
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    plane.api.merge(where("v1/pods", namespace, name, "status"), {"status": status})


async def serves(running: Exporter, number: int) -> None:
    """Wait until so many pods are found."""
    await running.until(lambda samples: samples['specdec_discovery_targets{provider="kubernetes"}'] == number)


async def test_a_thousand_pods_come_and_go(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, transcript: Transcript
) -> None:
    async with predictor(ONE_ENGINE.read_bytes()) as stand_in:
        port = stand_in.url.rpartition(":")[2]
        path = configuration(control_plane, namespace, tmp_path, port)
        measured: list[tuple[float, int, int]] = []
        async with exporter(f"--config.file={path}") as running:
            for batch in range(BATCHES):
                # The first of a batch answers; nobody listens at the other addresses.
                addresses = ["127.0.0.1", *(f"127.0.2.{number}" for number in range(1, OF))]
                await asyncio.gather(
                    *(
                        asyncio.to_thread(make, control_plane, namespace, f"chat-{batch}-{number}", address)
                        for number, address in enumerate(addresses)
                    )
                )
                await serves(running, OF)
                samples = await running.samples()
                assert sum(value for series, value in samples.items() if series.startswith("specdec_up{")) == 1
                control_plane.api.request("DELETE", where("v1/pods", namespace))
                await serves(running, 0)
                assert not [series for series in await running.samples() if "chat" in series]
                pid = running.process.pid
                measured.append((memory(pid).now, descriptors(pid), threads(pid)))
    (first, files, tasks), (last, files_left, tasks_left) = measured[BATCHES // 2], measured[-1]
    transcript.row(
        "Pods that come and go",
        Pods=f"{BATCHES * OF:,}",
        RSS_after_half_and_after_all=f"{first:.1f} and {last:.1f} MiB",
        Descriptors=f"{files} and {files_left}",
        Threads=f"{tasks} and {tasks_left}",
    )
    assert last - first < LEAK_MIB
    assert files_left <= files
    assert tasks_left <= tasks


async def test_the_account_may_do_nothing_else(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    configuration(control_plane, namespace, tmp_path, "8080")
    account = control_plane.as_account(namespace, "specdec-exporter")
    assert account.items("v1/pods", namespace) == []
    for resource in ("v1/secrets", "v1/configmaps", "v1/services", "apps/v1/deployments"):
        with pytest.raises(RefusedError, match="403"):
            account.items(resource, namespace)
    with pytest.raises(RefusedError, match="403"):
        account.items("v1/pods")


async def test_without_the_right_it_says_what_is_missing(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    path = configuration(control_plane, namespace, tmp_path, "8080")
    (tmp_path / "token").write_text(control_plane.token(namespace, "default"))
    async with exporter(f"--config.file={path}") as running:
        said = await running.said("discovery fails")
        assert 'let the service account \\"list\\" and \\"watch\\" \\"pods\\"' in said
        (tmp_path / "token").write_text(control_plane.token(namespace, "specdec-exporter"))
        await running.said("discovery works")
