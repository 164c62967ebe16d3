"""``healthcheck``: an exec probe for images without a shell or curl."""

from __future__ import annotations

import http.client
import ssl
import sys
import urllib.error
import urllib.request

import click

from specdec_exporter.commands import PROG
from specdec_exporter.commands.flags import Checked, flag
from specdec_exporter.config import parse_listen_address, valid_listen_address

TIMEOUT_SECONDS = 2.0


@click.command("healthcheck")
@click.option("--url", help="The URL to ask.  [default: the first --web.listen-address]")
@flag(
    "--web.listen-address",
    "The same as for serve.  [default: :10409]",
    multiple=True,
    type=Checked("listen address", valid_listen_address),
    metavar="[HOST]:PORT",
)
def command(url: str | None, web_listen_address: tuple[str, ...]) -> int:
    """Ask the exporter in this container whether it is healthy: a probe for images without a shell.

    Exits with 0 if the exporter answers, else with 1 and one line on stderr. Any status below 500 passes, because a
    healthy exporter with basic authentication answers 401. The probe does not verify certificates, because it asks its
    own container.
    """
    if url is None:
        host, port = parse_listen_address((web_listen_address or (":10409",))[0])
        candidates = [f"{scheme}://{_reachable(host)}:{port}/-/healthy" for scheme in ("http", "https")]
    else:
        candidates = [url]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
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
    sys.stderr.write(f"{PROG}: {candidates[0]}: {reason}\n")
    return 1


def _reachable(host: str | None) -> str:
    """Return the host to ask: the loopback address for a listener on every interface."""
    if host in (None, "0.0.0.0"):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in str(host) else str(host)
