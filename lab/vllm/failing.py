"""Starts of a real server that fail: a table, and a program that records their logs for tests/fixtures/starts.

    PYTHONPATH=lab:tests SPECDEC_VLLM_PYTHON=... python -m vllm.failing DIRECTORY [NAME]...

Each becomes ``DIRECTORY/<release>-<name>.log``, with the command in its first line. Paths of this machine are replaced.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from vllm.checkpoints import write_checkpoints
from vllm.language import build_language
from vllm.record import places_of, scrub, shell_line
from vllm.server import Installation, Server, ServerError, named_installation


@dataclasses.dataclass(frozen=True, slots=True)
class FailingStart:
    """One start. ``speculative``: ``--speculative-config``, text or JSON. ``change`` edits the models' directory."""

    speculative: str | Mapping[str, Any] | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    change: Callable[[Path], object] = lambda _: None
    port_taken: bool = False


DRAFT: Final[Mapping[str, Any]] = {"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}


def _edit_config(checkpoint: str, **changes: Any) -> Callable[[Path], object]:
    def edit(models: Path) -> None:
        path = models / checkpoint / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


FAILING: Final[Mapping[str, FailingStart]] = {
    "unknown-method": FailingStart({**DRAFT, "method": "egale3"}),
    "unknown-key": FailingStart({**DRAFT, "num_spec_tokens": 3}),
    "invalid-json": FailingStart('{"method": "ngram", "num_speculative_tokens": 3'),
    "unknown-argument": FailingStart(arguments=("--num-speculative-tokens", "3")),
    "no-draft-model": FailingStart({"num_speculative_tokens": 3}),
    "no-k": FailingStart({"method": "draft_model", "model": "draft"}),
    "missing-draft": FailingStart({**DRAFT, "model": "absent"}),
    "draft-not-in-cache": FailingStart({**DRAFT, "model": "example/draft"}),
    "missing-model": FailingStart(change=lambda models: shutil.rmtree(models / "target")),
    "missing-weights": FailingStart(DRAFT, change=lambda models: (models / "draft" / "model.safetensors").unlink()),
    "other-vocabulary": FailingStart(DRAFT, change=_edit_config("draft", vocab_size=512)),
    "draft-tensor-parallel": FailingStart({**DRAFT, "draft_tensor_parallel_size": 2}),
    "tensor-parallel-key": FailingStart({**DRAFT, "tensor_parallel_size": 1}),
    "no-multiple": FailingStart(
        {"method": "mtp", "num_speculative_tokens": 3},
        ("--load-format", "dummy"),
        change=_edit_config(
            "target", architectures=["MiMoForCausalLM"], model_type="qwen2", num_nextn_predict_layers=2
        ),
    ),
    "missing-package": FailingStart({"method": "suffix", "num_speculative_tokens": 8}),
    "lookup-window": FailingStart(
        {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5, "prompt_lookup_max": 2}
    ),
    "attention-backend": FailingStart(DRAFT, ("--attention-backend", "FLASH")),
    "too-long": FailingStart(DRAFT, ("--max-model-len", "8192")),
    "heads": FailingStart(arguments=("--tensor-parallel-size", "3")),
    "cache-too-large": FailingStart(DRAFT, environment={"VLLM_CPU_KVCACHE_SPACE": "900"}),
    "empty-variable": FailingStart(
        DRAFT, ("--kv-cache-memory-bytes", "1000000"), environment={"VLLM_CPU_KVCACHE_SPACE": ""}
    ),
    "port-in-use": FailingStart(port_taken=True),
}


def record(start: FailingStart, installation: Installation) -> str:
    """Let it fail; return the command and the log, without paths of this machine."""
    scratch = Path(tempfile.mkdtemp(prefix="specdec-failing-"))
    try:
        server, taken = prepare(start, installation, scratch)
        with taken:
            try:
                server.start()
            except ServerError:
                pass
            else:
                server.stop()
                sys.exit(f"this start did not fail: {start}")
        log = f"$ {shell_line(server.added_environment, server.command)}\n{server.log()}"
    finally:
        shutil.rmtree(scratch)
    return scrub(log, places_of(scratch, installation))


def prepare(start: FailingStart, installation: Installation, scratch: Path) -> tuple[Server, socket.socket]:
    """Return the server, not yet started, and a socket, which takes its port if the start is to fail by that."""
    models = scratch / "models"
    models.mkdir()
    write_checkpoints(models, build_language())
    start.change(models)
    config = start.speculative
    if isinstance(config, Mapping):
        model = config.get("model")
        here = {} if model is None or "/" in model else {"model": str(models / model)}
        config = json.dumps({**config, **here})
    arguments = (*start.arguments, *(() if config is None else ("--speculative-config", config)))
    server = Server(installation, models=models, directory=scratch, arguments=arguments, environment=start.environment)
    taken = socket.socket()
    if start.port_taken:
        taken.bind(("127.0.0.1", server.port))
        taken.listen()
    return server, taken


def main() -> int:
    """Record the starts named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description="Record logs of real vLLM servers that fail to start.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("name", nargs="*", help=f"default: all of {', '.join(FAILING)}")
    arguments = parser.parse_args()
    installation = named_installation(parser)
    for name in arguments.name or FAILING:
        target = arguments.directory / f"{installation.release()}-{name}.log"
        target.write_text(record(FAILING[name], installation))
        print(target, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
