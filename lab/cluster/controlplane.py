"""A Kubernetes control plane without nodes: etcd, the API server and the controllers, as processes on loopback.

Nothing runs a pod: it stays Pending until :meth:`ControlPlane.run_pod` says that it runs. A process stands in for it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster.api import Api, Object, RefusedError, where
from support.certificates import Identity, issue
from support.fieldtools import ROOT, run, tool
from support.processes import free_port, ran, started

KUBECTL_SECONDS = 180.0
# What turns our manifests into pods, and what cleans up. The others want nodes, or do what nobody looks at here.
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "job-controller",
    "endpointslice-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "clusterrole-aggregation-controller",
)


class ControlPlane:
    """What tests ask of it. ``api`` asks as the administrator; ``kubeconfig`` is a file for programs that do."""

    def __init__(self, directory: Path, port: int, authority: Identity) -> None:
        self.directory = directory
        self.port = port
        self.url = f"https://127.0.0.1:{port}"
        self.authority = authority
        self.authority_file = directory / "ca.crt"
        self.api = Api(port, self.authority_file, identity=(directory / "admin.crt", directory / "admin.key"))
        self.kubeconfig = self._write_kubeconfig()
        self._addresses = itertools.count(2)

    @property
    def authority_base64(self) -> str:
        """The authority's certificate as a ``caBundle``."""
        return base64.b64encode(self.authority_file.read_bytes()).decode()

    def _write_kubeconfig(self) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self.authority_file)}
        user = {name: f"{self.directory}/admin.{end}" for name, end in CLIENT.items()}
        file = self.directory / "kubeconfig"
        text = yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "admin", "user": user}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                "current-context": "test",
            }
        )
        file.write_text(text, encoding="utf-8")
        return file

    # --- kubectl -----------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """What kubectl printed. Raises :class:`RefusedError` with what it complained of."""
        flags = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.directory}/cache")
        answer = ran(tool("kubectl"), *flags, *arguments, told=stdin, seconds=KUBECTL_SECONDS)
        if answer.returncode:
            raise RefusedError(answer.stderr.strip() or answer.stdout.strip())
        return answer.stdout

    def apply(self, manifests: str | list[Any], *flags: str) -> list[str]:
        """Server-side apply of a YAML text or of objects, with flags like ``--namespace=x``; a line for each object."""
        text = manifests if isinstance(manifests, str) else yaml.safe_dump_all(manifests)
        return self.kubectl("apply", "--server-side", "--force-conflicts", *flags, "-f", "-", stdin=text).splitlines()

    # --- Namespaces, accounts, pods ----------------------------------------------------------------------------------

    def make_namespace(self, name: str, **labels: str) -> str:
        """Make a namespace and wait for what controllers put into it: without an account no pod is admitted."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.api.request("POST", where("v1/namespaces"), body)
        self.api.wait("v1/serviceaccounts", name, "default")
        self.api.wait("v1/configmaps", name, "kube-root-ca.crt")
        return name

    def token(self, namespace: str, account: str) -> str:
        """A token of a service account, as a pod has it."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = where("v1/serviceaccounts", namespace, account, "token")
        token: str = self.api.request("POST", path, body)["status"]["token"]
        return token

    def as_account(self, namespace: str, account: str) -> Api:
        """The API as a service account sees it."""
        return Api(self.port, self.authority_file, token=self.token(namespace, account))

    def address(self) -> str:
        """An address of loopback that no other pod has, so that each pod can listen on its own port."""
        number = next(self._addresses)
        return f"127.{100 + (self.port % 100)}.{number >> 8}.{number & 255}"

    def run_pod(self, namespace: str, name: str, address: str = "127.0.0.1") -> Object:
        """Say that a pod runs, is ready and has an address: what its node would say."""
        containers = self.api.get("v1/pods", namespace, name)["spec"]["containers"]
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "PodScheduled")],
            "containerStatuses": [
                {
                    "name": one["name"],
                    "image": one["image"],
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
                for one in containers
            ],
        }
        return self.api.merge(where("v1/pods", namespace, name, "status"), {"status": status})


CLIENT = {"client-certificate": "crt", "client-key": "key"}


def module(pin: str, name: str) -> Path:
    """Folder of a Go module, in the version that ``tools/<pin>`` names."""
    answer = run("go", "-C", str(ROOT / "tools" / pin), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", name)
    assert answer.returncode == 0, answer.stdout
    assert answer.stdout.strip(), f"{name} is missing: make cluster-tools"
    return Path(answer.stdout.strip())


def write_certificates(directory: Path) -> Identity:
    """ca, server, webhook and admin, with their keys; returns the authority."""
    authority = issue("the authority")
    authority.write(directory, "ca")
    issue("server", authority, host="127.0.0.1").write(directory, "server")
    issue("admin", authority, organization="system:masters").write(directory, "admin")
    issue("accounts", authority).write(directory, "accounts")
    return authority


def answers(api: Api, path: str) -> bool:
    """Whether a server of ours answers ``path`` with a success."""
    try:
        api.request("GET", path)
    except (OSError, RefusedError):
        return False
    return True


def listens(port: int) -> bool:
    """Whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def control_plane(directory: Path, data: Path | None = None) -> Iterator[ControlPlane]:
    """Run it, from the time that it is ready until the end of the block.

    ``directory`` takes its files and logs. It begins with a copy of the etcd data in ``data``.
    """
    if data:
        shutil.copytree(data, directory / "etcd")
    plane = ControlPlane(directory, free_port(), write_certificates(directory))
    etcd, peer, manager = free_port(), free_port(), free_port()
    serving = (
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={directory}/server.crt",
        f"--tls-private-key-file={directory}/server.key",
        f"--cert-dir={directory}",
    )
    with contextlib.ExitStack() as stack:

        def start(name: str, *flags: str, ready: Callable[[], bool]) -> None:
            stack.enter_context(started(name, [tool(name), *flags], directory=directory, ready=ready))

        start(
            "etcd",
            f"--data-dir={directory}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            ready=lambda: listens(etcd),
        )
        start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={plane.port}",
            *serving,
            f"--client-ca-file={plane.authority_file}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={directory}/accounts.crt",
            f"--service-account-signing-key-file={directory}/accounts.key",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--advertise-address=10.0.0.1",  # loopback is refused; nobody uses it
            "--endpoint-reconciler-type=none",
            "--allow-privileged",
            ready=lambda: answers(plane.api, "/readyz"),
        )
        start(
            "kube-controller-manager",
            f"--kubeconfig={plane.kubeconfig}",
            f"--secure-port={manager}",
            *serving,
            f"--root-ca-file={plane.authority_file}",
            f"--service-account-private-key-file={directory}/accounts.key",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            f"--controllers={','.join(CONTROLLERS)}",
            ready=lambda: answers(Api(manager, plane.authority_file), "/healthz"),
        )
        yield plane
