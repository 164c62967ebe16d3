"""``healthcheck``: an exec probe for images without a shell or curl."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl

import click

from specdec_exporter.commands.flags import Checked, flag
from specdec_exporter.config import parse_listen_address
from specdec_exporter.errors import SpecdecError

TIMEOUT_SECONDS = 2.0
_HANDSHAKE = b"\x16"  # the type of a TLS record
_EVERY_INTERFACE = {None: "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def _address(text: str) -> tuple[str, int]:
    """Return where to ask the listener of an address or a URL."""
    host, port = parse_listen_address(text.rpartition("://")[2].rstrip("/"))
    return _EVERY_INTERFACE.get(host, str(host)), port


@click.command("healthcheck")
@flag(
    "--web.listen-address",
    "Where the exporter listens, as for serve; of several the first.  [default: :10409]",
    metavar="[HOST]:PORT",
    type=Checked("[host]:port", _address),
    multiple=True,
)
@flag("--web.config.file", "The same as for serve. With it, the exporter may speak TLS.", metavar="PATH")
def command(web_listen_address: tuple[tuple[str, int], ...], web_config_file: str | None) -> int:
    """Ask the exporter in this container whether it is healthy.

    This is a probe for images without a shell. It exits with 0 if the exporter answers, else with 1 and one line on
    stderr. Any status below 500 passes, because a healthy exporter with basic authentication answers 401. The probe
    asks its own container, so it verifies no certificate. It has no certificate of its own: if the exporter demands
    one, it is enough that the exporter begins a TLS handshake.
    """
    host, port = (*web_listen_address, ("127.0.0.1", 10409))[0]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    secret = False
    try:
        secret = web_config_file is not None and _begins_tls(host, port, tls)
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        if secret:
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=tls)
        with contextlib.closing(connection):
            connection.request("GET", "/-/healthy")
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        if secret and isinstance(error, ssl.SSLError | ConnectionError):
            return 0  # it demands a certificate; neither TLS 1.2 nor 1.3 says so reliably
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise SpecdecError(f"http://{host}:{port}/-/healthy: {reason}") from error
    if status >= 500:
        raise SpecdecError(f"http://{host}:{port}/-/healthy: answered {status}")
    return 0


def _begins_tls(host: str, port: int, context: ssl.SSLContext) -> bool:
    """Whether the server begins a TLS handshake. Raises :class:`OSError`."""
    greeting, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(answer, greeting).do_handshake()
    with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection:
        connection.sendall(greeting.read())
        return connection.recv(1) == _HANDSHAKE
