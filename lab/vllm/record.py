"""Records captures of real servers, of the kind that tests/fixtures/captures holds.

    PYTHONPATH=lab:tests SPECDEC_VLLM_PYTHON=... python -m vllm.record DIRECTORY [SCENARIO]...

Each scenario becomes ``DIRECTORY/<release>-<scenario>/`` with the command, ``/version``, ``/metrics`` before, between
and after the phases, the log, and ``truth.json``: what was sent and the counts predicted for it. Paths of this machine
are replaced. A capture is written only if vLLM's answers were the predicted ones.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from vllm import scenarios
from vllm.checkpoints import write_checkpoints
from vllm.language import Language, build_language
from vllm.play import await_log, send
from vllm.predict import Counts
from vllm.scenarios import Scenario
from vllm.server import Installation, Server, named_installation, running


def main() -> int:
    """Record the scenarios named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description="Record /metrics and logs of real vLLM servers.")
    parser.add_argument("directory", type=Path, help="where the captures go, one directory each")
    parser.add_argument("scenario", nargs="*", help=f"default: all of {', '.join(scenarios.BY_NAME)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenario) - scenarios.BY_NAME.keys():
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    installation = named_installation(parser)
    release = installation.release()
    for name in arguments.scenario or scenarios.BY_NAME:
        target = arguments.directory / f"{release}-{name}"
        files = record(scenarios.BY_NAME[name], installation, build_language())
        target.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (target / file).write_bytes(content.encode())
        print(f"{target}: {', '.join(files)}")
    return 0


def record(scenario: Scenario, installation: Installation, language: Language) -> dict[str, str]:
    """Play a scenario; the capture's files by name."""
    scratch = Path(tempfile.mkdtemp(prefix="specdec-record-"))
    try:
        models = scratch / "models"
        models.mkdir()
        write_checkpoints(models, language)
        server = Server(installation, models=models, directory=scratch, arguments=scenario.arguments(models))
        with running(server):
            files = {"version.txt": json.dumps({"version": server.version()}) + "\n"}
            files["metrics-0-before-any-request.txt"] = server.metrics()
            total = Counts(accepted_per_position=(0,) * scenario.k)
            for number, phase in enumerate(scenario.phases, start=1):
                send(server, phase, language)
                total += scenario.expected(language, phase)
                files[f"metrics-{number}-{phase.name}.txt"] = server.metrics()
            await_log(scenario, server, total)
            files["server.log"] = server.log()
        files["command.txt"] = shell_line(server.added_environment, server.command) + "\n"
        files["truth.json"] = json.dumps(_truth(scenario, language), indent=1) + "\n"
    finally:
        shutil.rmtree(scratch)
    places = places_of(scratch, installation)
    return {name: scrub(content, places) for name, content in files.items()}


def _truth(scenario: Scenario, language: Language) -> dict[str, object]:
    phases = []
    for phase in scenario.phases:
        counts = scenario.expected(language, phase)
        phases.append(
            {
                "label": phase.name,
                "n": counts.requests,
                "max_tokens": phase.max_tokens,
                "temperature": 0,
                "completion_tokens": counts.generation_tokens,
                "expected": {
                    "num_drafts": counts.drafts,
                    "num_draft_tokens": counts.draft_tokens,
                    "num_accepted": counts.accepted_tokens,
                    "per_pos": counts.accepted_per_position,
                },
            }
        )
    return {"phases": phases}


def shell_line(environment: Mapping[str, str], command: tuple[str, ...]) -> str:
    """What a person types to start the same server."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join((*settings, shlex.join(command)))


def places_of(scratch: Path, installation: Installation) -> dict[str, str]:
    """Paths of this machine -> what takes their place."""
    venv = installation.python.parent.parent
    return {
        str(scratch / "models"): "/models",
        str(scratch): "/scratch",
        tempfile.gettempdir(): "/scratch",
        str(installation.python): "python",
        str(venv): "/venv",
        str(venv.resolve()): "/venv",
        str(installation.python.resolve().parents[1]): "/usr",
    }


def scrub(content: str, places: Mapping[str, str]) -> str:
    """Replace paths, the longest first, so that a directory does not hide what lies in it."""
    for path in sorted(places, key=len, reverse=True):
        content = content.replace(path, places[path])
    return content


if __name__ == "__main__":
    sys.exit(main())
