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

from specdec_exporter.commands import PROG
from specdec_exporter.commands.flags import Checked, flag
from specdec_exporter.config import parse_listen_address, valid_listen_address

TIMEOUT_SECONDS = 2.0
_HANDSHAKE = b"\x16"  # the type of a TLS record


@click.command("healthcheck")
@click.option("--url", help="The URL to ask.  [default: the first --web.listen-address]")
@flag(
    "--web.listen-address",
    "The same as for serve.  [default: :10409]",
    multiple=True,
    type=Checked("listen address", valid_listen_address),
    metavar="[HOST]:PORT",
)
@flag("--web.config.file", "The same as for serve.", metavar="PATH")
def command(url: str | None, web_listen_address: tuple[str, ...], web_config_file: str | None) -> int:
    """Ask the exporter in this container whether it is healthy: a probe for images without a shell.

    Exits with 0 if the exporter answers, else with 1 and one line on stderr. Any status below 500 passes, because a
    healthy exporter with basic authentication answers 401. The probe does not verify certificates, because it asks its
    own container. It has no client certificate: if the file of --web.config.file demands one, it is enough that the
    exporter begins a TLS handshake.
    """
    if url is None:
        host, port = parse_listen_address((web_listen_address or (":10409",))[0])
        candidates = [f"{scheme}://{_reachable(host)}:{port}/-/healthy" for scheme in ("http", "https")]
    else:
        candidates = [url]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if web_config_file is not None and _demands_certificate(web_config_file):
        return _complaint(candidates[-1], _greeting(candidates[-1], context))
    reason = ""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    for candidate in candidates:
        try:
            with opener.open(candidate, timeout=TIMEOUT_SECONDS):
                return 0
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return 0
            reason = f"answered {error.code}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = reason or str(getattr(error, "reason", error)) or type(error).__name__
    return _complaint(candidates[0], reason)


def _complaint(url: str, reason: str) -> int:
    """Say what is wrong, if anything is; return the exit code."""
    if reason:
        sys.stderr.write(f"{PROG}: {url}: {reason}\n")
    return int(bool(reason))


def _demands_certificate(path: str) -> bool:
    from specdec_exporter.web.webconfig import load_web_config

    tls = load_web_config(path).tls_server_config
    return tls is not None and tls.client_auth_type == "RequireAndVerifyClientCert"


def _greeting(url: str, context: ssl.SSLContext) -> str:
    """Return why the server at ``url`` does not begin a TLS handshake, empty if it does.

    It then closes the connection, because the probe has no certificate. Neither TLS 1.2 nor 1.3 says reliably why.
    """
    greeting, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(answer, greeting).do_handshake()
    try:
        parts = urllib.parse.urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port or 443), TIMEOUT_SECONDS) as connection:
            connection.sendall(greeting.read())
            found = connection.recv(1)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return "" if found == _HANDSHAKE else "expected a TLS handshake, found another answer"


def _reachable(host: str | None) -> str:
    """Return the host to ask: the loopback address for a listener on every interface."""
    if host in (None, "0.0.0.0"):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in str(host) else str(host)
