"""Where this container's exporter listens, by the kernel's own tables.

A health check has the environment of the exporter, but neither its flags nor its configuration file. ``serve`` cannot
leave its addresses in a file, because a read-only root has no place for one. But the kernel knows the listening sockets
of every process, however their addresses were set.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
_NAMES = (b"specdec-exporter", b"specdec_exporter")
_LISTENING = "0A"  # the state of a socket in /proc/net/tcp: TCP_LISTEN of Linux' net/tcp_states.h
_TABLES = {"tcp": socket.AF_INET, "tcp6": socket.AF_INET6}


def listening_addresses(proc: Path = PROC) -> list[tuple[str, int]]:
    """Return host and port of each listening socket of this container's exporter; none if that cannot be told.

    The exporter is the first process of the container. If that is an init which was told to start the exporter, it is a
    child. Outside of a container there is none.
    """
    found: list[tuple[str, int]] = []
    for process in _main_processes(proc):
        try:
            found += _sockets(process)
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def _main_processes(proc: Path) -> Iterator[Path]:
    """Yield the first processes of this container that name the exporter, and their children.

    The first process of a container has no parent that the container can see. Containers that share their processes,
    as some pods do, still have their own mounts.
    """
    parents = dict(_parents(proc))
    first = {pid for pid, parent in parents.items() if parent == 0 and _is_ours(proc, pid)}
    for pid in sorted(parents):
        if pid in first or parents[pid] in first:
            yield proc / str(pid)


def _parents(proc: Path) -> Iterator[tuple[int, int]]:
    for directory in proc.glob("[0-9]*"):
        try:
            # A name may hold anything, also brackets: state and parent stand behind the last one.
            yield int(directory.name), int((directory / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            continue


def _is_ours(proc: Path, pid: int) -> bool:
    process = proc / str(pid)
    try:
        return (process / "ns/mnt").readlink() == (proc / "self/ns/mnt").readlink() and any(
            name in (process / "cmdline").read_bytes() for name in _NAMES
        )
    except OSError:
        return False


def _sockets(process: Path) -> Iterator[tuple[str, int]]:
    """Yield host and port of the listening sockets of a process. Raises :class:`OSError`."""
    inodes = set()
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(str(descriptor.readlink()))
    for table, family in _TABLES.items():
        for row in (process / "net" / table).read_text().splitlines()[1:]:
            _, address, _, state, *_, inode = row.split()[:10]
            if state == _LISTENING and f"socket:[{inode}]" in inodes:
                host, port = address.split(":")
                yield _host(family, host), int(port, 16)


def _host(family: socket.AddressFamily, text: str) -> str:
    """Return the address of a table, which is printed as numbers of 32 bits in the machine's byte order."""
    numbers = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    return socket.inet_ntop(family, b"".join(number.to_bytes(4, sys.byteorder) for number in numbers))
