"""``healthcheck``: an exec probe for images without a shell or curl."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

import click
from click.core import ParameterSource

from specdec_exporter.commands import PROG
from specdec_exporter.commands.flags import Checked, flag
from specdec_exporter.commands.mainprocess import listening_addresses
from specdec_exporter.config import parse_listen_address, valid_listen_address

TIMEOUT_SECONDS = 2.0
_HANDSHAKE = b"\x16"  # the type of a TLS record
_HUNG_UP = (ssl.SSLError, ConnectionError)  # what a server that demands a certificate looks like to one without


@click.command("healthcheck")
@click.option("--url", help="The URL to ask.  [default: where the exporter of this container listens]")
@flag(
    "--web.listen-address",
    "The same as for serve, if the exporter does not run in this container.  [default: :10409]",
    multiple=True,
    type=Checked("listen address", valid_listen_address),
    metavar="[HOST]:PORT",
)
# Earlier releases had to be told of client certificates, and manifests still do it.
@flag("--web.config.file", "No longer needed.", hidden=True, expose_value=False)
@click.pass_context
def command(context: click.Context, url: str | None, web_listen_address: tuple[str, ...]) -> int:
    """Ask the exporter in this container whether it is healthy: a probe for images without a shell.

    Exits with 0 if the exporter answers, else with 1 and one line on stderr. It finds the exporter by its listening
    sockets, however its address was set. Any status below 500 passes, because a healthy exporter with basic
    authentication answers 401. The probe does not verify certificates, because it asks its own container, and it has
    none: if the exporter demands one, it is enough that it begins a TLS handshake.
    """
    if url is None:
        told = context.get_parameter_source("web_listen_address") is ParameterSource.COMMANDLINE
        addresses = [] if told else listening_addresses()
        host, port = addresses[0] if addresses else parse_listen_address((web_listen_address or (":10409",))[0])
        candidates = [f"{scheme}://{_reachable(host)}:{port}/-/healthy" for scheme in ("http", "https")]
    else:
        candidates = [url]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    reason = ""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    for candidate in candidates:
        try:
            with opener.open(candidate, timeout=TIMEOUT_SECONDS):
                return 0
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return 0
            reason = f"answered {error.code}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            if candidate.startswith("https") and isinstance(cause, _HUNG_UP) and _begins_tls(candidate, tls):
                return 0
            reason = reason or str(cause) or type(error).__name__
    sys.stderr.write(f"{PROG}: {candidates[0]}: {reason}\n")
    return 1


def _begins_tls(url: str, context: ssl.SSLContext) -> bool:
    """Whether the server at ``url`` begins a TLS handshake.

    It then closes the connection, because the probe has no certificate. Neither TLS 1.2 nor 1.3 says reliably why.
    """
    greeting, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(answer, greeting).do_handshake()
    try:
        parts = urllib.parse.urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port or 443), TIMEOUT_SECONDS) as connection:
            connection.sendall(greeting.read())
            return connection.recv(1) == _HANDSHAKE
    except (OSError, ValueError):
        return False


def _reachable(host: str | None) -> str:
    """Return the host to ask: the loopback address for a listener on every interface."""
    if host in (None, "0.0.0.0"):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in str(host) else str(host)
