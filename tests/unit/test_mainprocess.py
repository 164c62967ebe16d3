"""How a health check finds the exporter of its container: by the tables of /proc."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdec_exporter.commands.mainprocess import listening_addresses

SERVE = b"/opt/specdec-exporter/bin/python\0/opt/specdec-exporter/bin/specdec-exporter\0serve\0"
INIT = b"/sbin/docker-init\0--\0specdec-exporter\0"


@pytest.fixture(params=["127.0.0.1", "0.0.0.0", "::1", "::"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as listening:
        yield listening


class Proc:
    """A /proc with the processes that it is given; sockets and their tables are those of this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process("self")

    def process(self, name: str, parent: int = 0, cmdline: bytes = SERVE, mounts: str = "mnt:[1]") -> None:
        process = self.directory / name
        (process / "ns").mkdir(parents=True)
        (process / "ns/mnt").symlink_to(mounts)
        (process / "stat").write_bytes(b"7 (a ) S 3 name) S %d 1 1" % parent)
        (process / "cmdline").write_bytes(cmdline)
        for part in ("fd", "net"):
            (process / part).symlink_to(f"/proc/{os.getpid()}/{part}")

    @property
    def finds(self) -> list[tuple[str, int]]:
        return listening_addresses(self.directory)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_the_listening_sockets_of_the_first_process_are_found_whatever_their_family(
    listener: socket.socket, proc: Proc
) -> None:
    proc.process("1")
    with socket.create_connection(listener.getsockname()[:2]):  # an open connection is no listener
        assert proc.finds.count(listener.getsockname()[:2]) == 1


@pytest.mark.parametrize(
    ("processes", "found"),
    [
        pytest.param({"1": {}}, True, id="the exporter is the first process"),
        pytest.param({"1": {"cmdline": INIT}, "7": {"parent": 1}}, True, id="init"),
        pytest.param({"1": {"mounts": "mnt:[2]"}, "7": {}}, True, id="a pod shares its processes"),
        pytest.param({"1": {"cmdline": b"/sbin/init\0"}, "7": {"parent": 1}}, False, id="a host's service"),
        pytest.param({"1": {"mounts": "mnt:[2]"}}, False, id="the exporter of another container"),
        pytest.param({"1": {"cmdline": b"/usr/bin/vllm\0serve\0"}}, False, id="another program"),
    ],
)
def test_only_the_exporter_of_this_container_is_asked(
    proc: Proc, processes: dict[str, dict[str, object]], found: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for name, traits in processes.items():
            proc.process(name, **traits)  # type: ignore[arg-type]
        assert (listening.getsockname() in proc.finds) == found


def test_processes_that_end_or_belong_to_others_are_passed_over(proc: Proc) -> None:
    proc.process("1")
    (proc.directory / "1/fd").unlink()
    (proc.directory / "2").mkdir()
    assert proc.finds == []
