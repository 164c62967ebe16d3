"""Containers run by runc as deploy/kubernetes/predictor says: a network and a memory limit each."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.manifests import KUBERNETES, read
from support.fieldtools import tool
from support.processes import wait_until

MIB = 2**20
_UNITS = {"Mi": MIB, "Gi": 1024 * MIB}
_START_SECONDS = 60
_NUMBERS = itertools.count()


def manifest() -> Any:
    """The sidecar's container."""
    return read(KUBERNETES / "sidecar/container/container.yaml")["template"]["spec"]["containers"][0]


def environment() -> dict[str, str]:
    """The manifest's variables, and KServe's own."""
    return {"INFERENCE_SERVICE_NAME": "chat"} | {each["name"]: each["value"] for each in manifest()["env"]}


def restrict(spec: dict[str, Any], sidecar: Mapping[str, Any]) -> None:
    """Put the manifest's security context and memory limit into a runtime's specification; unknown ones fail."""
    process = spec["process"]
    for key, value in sidecar["securityContext"].items():
        match key, value:
            case "runAsNonRoot", True:
                assert process["user"]["uid"] > 0  # as the kubelet does: it takes the image's user, if that is a number
            case "allowPrivilegeEscalation", False:
                process["noNewPrivileges"] = True
            case "readOnlyRootFilesystem", True:
                spec["root"]["readonly"] = True
            case "capabilities", {"drop": ["ALL"], **others} if not others:
                process["capabilities"] = {}
            case "seccompProfile", {"type": "RuntimeDefault"}:
                pass  # the profile is containerd's, and runc has none
            case _:
                msg = f"a security context that is not known here: {key}: {value}"
                raise AssertionError(msg)
    limit = sidecar["resources"]["limits"]["memory"]
    spec["linux"]["resources"] |= {"memory": {"limit": int(limit[:-2]) * _UNITS[limit[-2:]]}}


@dataclass
class Container:
    """A running container."""

    name: str
    state: Path
    process: subprocess.Popen[bytes]
    log: Path
    pid: int = 0

    @property
    def said(self) -> str:
        return self.log.read_text()

    def runc(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [tool("runc"), "--root", str(self.state), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as `kubectl exec` and exec probes do."""
        return self.runc("exec", self.name, *command)

    def is_running(self) -> bool:
        if self.process.poll() is not None:
            msg = f"{self.name} has ended:\n{self.said}"
            raise AssertionError(msg)
        state = self.runc("state", self.name)
        self.pid = json.loads(state.stdout)["pid"] if state.returncode == 0 else 0
        return self.pid > 0

    @property
    def _cgroup(self) -> Path:
        """The directory of the container's memory, in the first or second version of control groups."""
        lines = Path(f"/proc/{self.pid}/cgroup").read_text().splitlines()
        paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
        root = Path("/sys/fs/cgroup")
        return root / "memory" / paths["memory"][1:] if "memory" in paths else root / paths[""][1:]

    def _number(self, *names: str) -> float:
        return next(int(file.read_text()) for name in names if (file := self._cgroup / name).exists()) / MIB

    @property
    def memory_mib(self) -> float:
        """What the kernel counts against the limit: memory of the processes, and files that they read."""
        return self._number("memory.usage_in_bytes", "memory.current")

    @property
    def peak_mib(self) -> float:
        """The most of it until now."""
        return self._number("memory.max_usage_in_bytes", "memory.peak")

    def forget_peak(self) -> None:
        """Let the peak begin anew, where the kernel can."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with contextlib.suppress(OSError):
                (self._cgroup / name).write_text("0")

    def beside(self, *program: str) -> list[str]:
        """A command that runs a program of this machine's Python in the container's network."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", sys.executable, *program]

    def get(self, url: str) -> str:
        """Ask from the container's network."""
        program = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=30).read().decode())"
        command = self.beside("-c", program, url)
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        self.runc("kill", self.name, "TERM")
        return self.process.wait(timeout=30)


@dataclass
class Pod:
    """Starts containers of one image, each in a network of its own."""

    bundle: Path
    work: Path

    @contextlib.contextmanager
    def container(
        self,
        *arguments: str,
        ready: str,
        mounts: Mapping[Path, Path] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Iterator[Container]:
        """Run the image with arguments; wait until its log says ``ready``.

        ``mounts``: directories of this machine by their place in the container, with the right to write.
        """
        name = f"specdec-{os.getpid()}-{next(_NUMBERS)}"
        directory = self.work / name
        directory.mkdir()
        spec = json.loads((self.bundle / "config.json").read_text())
        spec["root"]["path"] = str(self.bundle / "rootfs")
        spec["process"] |= {"terminal": False, "args": ["specdec-exporter", *arguments]}
        spec["process"]["env"] += [f"{key}={value}" for key, value in (variables or {}).items()]
        hosts = directory / "hosts"  # which Kubernetes mounts too
        hosts.write_text("127.0.0.1 localhost\n::1 localhost\n")
        spec["mounts"] += [
            {"destination": str(place), "type": "bind", "source": str(source), "options": ["rbind", "rw"]}
            for place, source in {Path("/etc/hosts"): hosts, **(mounts or {})}.items()
        ]
        restrict(spec, manifest())
        (directory / "config.json").write_text(json.dumps(spec))
        log, state = directory / "log", self.work / "state"
        with log.open("wb") as file:
            command = [tool("runc"), "--root", str(state), "run", "--bundle", str(directory), name]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        container = Container(name, state, process, log)
        try:
            wait_until(container.is_running, seconds=_START_SECONDS, what=f"start of {arguments}")
            wait_until(lambda: container.is_running() and ready in container.said, seconds=_START_SECONDS, what=ready)
            yield container
        finally:
            if process.poll() is None:
                container.runc("kill", name, signal.SIGKILL.name)
                process.wait(timeout=30)
            container.runc("delete", "--force", name)


def remember(files: Path) -> None:
    """Read files, so that their place in the kernel's memory is charged to this process and to no container."""
    for path in files.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.read_bytes()
