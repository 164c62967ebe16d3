"""The commands of the runbooks, run by a shell as they stand: beside a simulated predictor and a running sidecar.

``kubectl`` is a stand-in that reaches one pod and takes only the calls below. The exporter's program is the real one.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demo.simulator.server import serving
from demo.simulator.settings import SimulatorSettings
from support.fieldtools import ROOT
from support.processes import ran
from support.running import exporter

pytestmark = pytest.mark.nightly

PAGES = sorted((ROOT / "rules" / "runbooks").glob("*.md"))
# Prints what a pod would print; notes a call that it does not understand.
KUBECTL = """#!/bin/bash
said="$*"
refuse() { echo "$said" >> "$NOTES/refused"; exit 1; }
[ "$said" = "get --raw /api/v1/namespaces/prod/pods/chat-predictor-0:8080/proxy/metrics" ] && exec cat "$NOTES/metrics"
[ "$1 $2" = "-n prod" ] || refuse
shift 2
case "$*" in
  "exec -i chat-predictor-0 -c specdec-exporter -- "*) shift 6; exec "$@" ;;
  "exec chat-predictor-0 -c specdec-exporter -- "*) shift 5; exec "$@" < /dev/null ;;
  "logs "*"chat-predictor-0 -c kserve-container"*) exec cat "$NOTES/log" ;;
  "logs chat-predictor-0 --container=specdec-exporter "*) ;;
  "port-forward chat-predictor-0 8080:8080") exec sleep 60 ;;
  "delete pod chat-predictor-0" | "get pod chat-predictor-0 "*) ;;
  "get pods -l serving.kserve.io/inferenceservice=chat,component=predictor"*) ;;
  "describe pod chat-predictor-0") ;;
  "get inferenceservice chat"* | "edit inferenceservice chat" | "patch inferenceservice chat --type "*) ;;
  "rollout "*" deployment/chat-predictor"*) ;;
  *) refuse ;;
esac
"""
# Runs the program once for the same words, and notes them with the exit code.
PROGRAM = """#!/bin/bash
words="$*"
words="${words% -o *.yaml}"
name="$NOTES/${words//[^a-z0-9]/_}"
exec 9> "$name.lock" && flock 9
if [ ! -e "$name.out" ]; then
  "$PYTHON" -m specdec_exporter "$@" > "$name.out" 2> "$name.err"
  echo "$? $words" >> "$NOTES/calls"
fi
cat "$name.out"
"""


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of a shell that reaches a predictor with some minutes of traffic, and its sidecar."""
    notes, tools = tmp_path / "notes", tmp_path / "tools"
    notes.mkdir()
    tools.mkdir()
    for name, script in (("kubectl", KUBECTL), ("specdec-exporter", PROGRAM)):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    settings = SimulatorSettings(load="4/s", speed=20, listen_address="127.0.0.1:0", log_path=str(notes / "log"))
    async with serving(settings) as url:
        flags = ("--predictor.name=chat", f"--predictor.log-path={notes / 'log'}", "--predictor.log-from=start")
        async with exporter(f"--predictor.url={url}", *flags) as sidecar:
            await sidecar.until(lambda samples: any(name.startswith("specdec_acceptance_ratio{") for name in samples))
            async with sidecar.session.get(f"{url}/metrics") as response:
                (notes / "metrics").write_bytes(await response.read())
            yield {
                "NOTES": str(notes),
                "PATH": f"{tools}:{os.environ['PATH']}",
                "PYTHON": sys.executable,
                "PREDICTOR": url,
                "SIDECAR": sidecar.url,
            }


def script(page: str, shell: dict[str, str]) -> str:
    """All commands of a page in their order, with this test's ports and short times."""
    text = "".join(re.findall(r"^ *```sh\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL))
    for written, here in (
        ("http://127.0.0.1:8080", shell["PREDICTOR"]),
        ("http://127.0.0.1:10409", shell["SIDECAR"]),
        ("sleep 3", "true"),
        ("--duration 30m", "--duration 1s"),
        ("--window 1m", "--window 1s"),
    ):
        text = text.replace(written, here)
    return text


async def complaints(page: Path, shell: dict[str, str], folder: Path) -> list[str]:
    """What a shell says against the commands of a page."""
    text = script(page.read_text(), shell)
    done = await asyncio.to_thread(ran, "bash", "-uc", text, directory=folder, environment=shell)
    wrong = re.compile("syntax error|unbound|not found|No such file")
    return [line for line in done.stderr.splitlines() if wrong.search(line)]


async def test_every_command_works_as_it_stands(shell: dict[str, str], tmp_path: Path) -> None:
    """Takes some seconds, because it starts the program six times."""
    found = await asyncio.gather(*(complaints(page, shell, tmp_path) for page in PAGES))
    notes = Path(shell["NOTES"])

    assert [line for lines in found for line in lines] == []
    assert not (notes / "refused").exists(), (notes / "refused").read_text()
    calls = (notes / "calls").read_text().splitlines()
    assert [call for call in calls if not call.startswith(("0 ", "2 "))] == []  # warnings belong to an incident
    said = " ".join(" ".join(path.read_text().split()) for path in notes.glob("*.out"))
    assert f"reads chat at {shell['PREDICTOR']}; figures of its window of 300 s" in said  # check, in the sidecar
    assert re.search(r"\(V1 engine\), .* method eagle3, draft model simulated/draft-head, k = 3", said)  # analyze
    assert {"analyze", "baseline", "check"} == {call.split()[1] for call in calls}
