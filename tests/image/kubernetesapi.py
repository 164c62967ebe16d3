"""Plays the part of the Kubernetes API that a sidecar asks: the predictor's log. Runs in the network of the pod."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from certificates import issue
from fieldtools import ROOT

LINE = (
    b"2026-01-01T00:00:00.5Z INFO 01-01 00:00:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.50, "
    b"Accepted throughput: 1.50 tokens/s, Drafted throughput: 3.00 tokens/s, Accepted: 15 tokens, Drafted: 30 tokens, "
    b"Per-position acceptance rate: 0.800, 0.500, 0.200, Avg Draft acceptance rate: 50.0%\n"
)


@dataclass
class ApiServer:
    """A running one. ``account``: what Kubernetes mounts for its clients."""

    account: Path
    port: int

    @property
    def variables(self) -> dict[str, str]:
        return {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(self.port)}

    @classmethod
    @contextlib.contextmanager
    def running(cls, network: str, folder: Path) -> Iterator[ApiServer]:
        folder.chmod(0o755)
        issue("localhost").write(folder, "ca")
        for name, text in (("token", "token-of-the-pod"), ("namespace", "prod")):
            (folder / name).write_text(text)
        command = ["nsenter", f"--net={network}", sys.executable, "-m", "image.kubernetesapi", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT / "tests") as process:
            try:
                assert process.stdout is not None
                yield cls(folder, int(process.stdout.readline()))
            finally:
                process.terminate()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path.startswith("/api/v1/namespaces/prod/pods/chat-0/log?")
        allowed = self.headers["Authorization"] == "Bearer token-of-the-pod"
        self.send_response(200 if known and allowed else 403)
        self.end_headers()
        self.wfile.write(LINE)

    def log_message(self, *_arguments: object) -> None:
        pass


def main(folder: Path) -> None:
    """Serve until the end of the process; print the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "ca.key")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
