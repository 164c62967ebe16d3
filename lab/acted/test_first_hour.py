"""docs/first-hour.md without a cluster: its program, its fire drill, and its patches of what kustomize makes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from acted.firsthour import blocks
from alertmanager.catalogue import document
from alertmanager.conftest import FLOOR
from alertmanager.server import alertmanager, lead_to, receiver
from demo.simulator.server import serving
from demo.simulator.settings import SimulatorSettings
from deploy.kustomize import built
from deploy.manifests import KUBERNETES
from support.fieldtools import tool
from support.processes import said
from support.running import exporter

pytestmark = pytest.mark.field

# `port-forward` waits to be killed, `exec` runs the program here.
KUBECTL = """#!/bin/bash
case "$*" in
  *" port-forward "*) exec sleep 60 ;;
  "-n prod exec deployment/chat-predictor -c specdec-exporter -- "*) shift 7; exec "$@" ;;
esac
echo "kubectl $*" >&2; exit 1
"""


async def shell(folder: Path, script: str, **places: str) -> str:
    """What bash prints of a block of the page, with this test's places and short times. It stops at an error."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in (
        ("kubectl", KUBECTL),
        ("specdec-exporter", f'#!/bin/bash\nexec "{sys.executable}" -m specdec_exporter "$@"\n'),
        ("amtool", f'#!/bin/bash\nexec "{tool(FLOOR.amtool_name)}" "$@"\n'),
    ):
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(0o755)
    for written, here in {**places, "sleep 3": "true", "--duration=15m": "--duration=5s"}.items():
        script = script.replace(written, here)
    variables = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    return await asyncio.to_thread(said, "bash", "-euc", script, directory=folder, environment=variables)


async def test_the_sidecar_is_asked_recordings_are_made_and_compared(tmp_path: Path) -> None:
    check = blocks("3.")[0]
    now, _, plain = blocks("6.")
    drafting = SimulatorSettings(load="4/s", speed=20, listen_address="127.0.0.1:0")
    async with serving(drafting) as url, exporter(f"--predictor.url={url}", "--predictor.name=chat") as sidecar:
        await sidecar.until(lambda samples: any(name.startswith("specdec_acceptance_ratio{") for name in samples))
        said = await shell(tmp_path, check, **{"http://127.0.0.1:10409": sidecar.url})
        await shell(tmp_path, now, **{"http://127.0.0.1:8080": url})
    async with serving(SimulatorSettings(load="4/s", speed=20, method=None, listen_address="127.0.0.1:0")) as url:
        # Five seconds that say nothing of hardware and requests are compared with warnings.
        warned = {"compare plain.yaml k4.yaml": "compare plain.yaml k4.yaml || test $? -eq 2"}
        compared = await shell(tmp_path, plain, **{"http://127.0.0.1:8080": url}, **warned)

    shown = blocks("3.", "text")[0].splitlines()
    assert re.search(r"^PASS  Drafting: ", said, re.MULTILINE)
    assert shown[-1].partition(":")[0] in said  # the word; the figures are those of the traffic
    # What five seconds tell depends on how busy this machine is.
    assert re.search(r"^  name +plain +k4$", compared, re.MULTILINE)


async def test_the_fire_drill_reaches_chat_and_pager(tmp_path: Path) -> None:
    (drill,) = blocks("5.")
    configuration: Any = document("alertmanager.yaml")
    configuration["route"]["routes"][0]["group_wait"] = "1s"
    async with receiver() as taking:
        lead_to(taking, configuration)
        async with alertmanager(FLOOR.server, configuration, tmp_path) as server:
            await shell(tmp_path, drill, **{"http://127.0.0.1:9093": server.url})
            received = [await taking.got(f"/{name}") for name in ("specdec-chat", "specdec-pager")]

    for (message,) in received:
        (alert,) = message["alerts"]
        assert alert["labels"]["alertname"] == "SpecDecodeTargetDown"


# --- Patches ----------------------------------------------------------------------------------------------------------


def patched(there: Any, block: str) -> None:
    """Do what a JSON patch in a block says."""
    ((text),) = re.findall(r"--type=json -p '(\[.*?\])'", block, re.DOTALL)
    for step in json.loads(text):
        *parents, last = step["path"].strip("/").split("/")
        place = there
        for key in parents:
            place = place[int(key) if isinstance(place, list) else key]
        if step["op"] == "test":
            assert place[int(last)] == step["value"]
        elif step["op"] == "remove":
            del place[int(last)]
        else:
            assert (step["op"], last) == ("add", "-")
            place.append(step["value"])


@pytest.fixture
def service() -> Any:
    (found,) = (one for one in built(KUBERNETES / "predictor") if one["kind"] == "InferenceService")
    return found


def test_speculation_is_switched_off(service: Any) -> None:
    patched(service, blocks("6.")[1])

    assert "speculative" not in str(service["spec"]["predictor"]["containers"][0]["args"])


def test_the_sidecar_gets_the_recording(service: Any) -> None:
    patched(service, blocks("7.")[0])

    predictor = service["spec"]["predictor"]
    sidecar = predictor["containers"][1]
    mounts = {one["name"]: one["mountPath"] for one in sidecar["volumeMounts"]}
    (file,) = (one["value"] for one in sidecar["env"] if one["name"] == "SPECDEC_BASELINE_FILE")
    assert sidecar["name"] == "specdec-exporter"
    assert mounts.keys() == {one["name"] for one in predictor["volumes"]}
    assert file == f"{mounts['baseline']}/plain.yaml"
