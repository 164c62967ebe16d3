"""``tap``: read saved responses as they come and serve the acceptance of each kind of request."""

from __future__ import annotations

from typing import Any

import click

from specdec_exporter import config
from specdec_exporter.commands.flags import HEADER_HELP, with_flags
from specdec_exporter.commands.serve import option
from specdec_exporter.commands.serveflags import FLAGS, Flag, overrides
from specdec_exporter.config import TapSettings, load_settings
from specdec_exporter.serving.lean import lean_imports

LISTEN_ADDRESS = ":10410"  # beside serve
_SHARED = (
    *("--web.listen-address", "--web.telemetry-path", "--web.config.file", "--web.disable-exporter-metrics"),
    *("--log.level", "--log.format", "--predictor.name", "--predictor.log-path", "--predictor.log-format"),
    *("--predictor.log-trust", "--predictor.log-from", "--predictor.log-state"),
)
_OF_TAP = (
    Flag("--tap.header", HEADER_HELP, "NAME", config.valid_header),
    Flag(
        "--tap.from",
        "Where to begin in files that exist at the start.  [default: end]",
        choices=("end", "start"),
    ),
    Flag("--tap.state", "File that keeps the read positions across restarts.", "PATH"),
)
_HELP = {
    "--web.listen-address": f"Address to listen on, repeatable.  [default: {LISTEN_ADDRESS}]",
    "--predictor.log-path": "Its log, for temperatures: a path or a glob, repeatable; - is stdin.",
}
FLAGS_OF_TAP = (
    *(each._replace(help=_HELP.get(each.name, each.help)) for each in FLAGS if each.name in _SHARED),
    *_OF_TAP,
)


@click.command("tap")
@click.argument("paths", nargs=-1, metavar="[FILE|-]...")
@with_flags(*map(option, FLAGS_OF_TAP))
def command(paths: tuple[str, ...], **flags: Any) -> int:
    """Serve the acceptance of each kind of request, from saved responses of vLLM 0.29.0 or later.

    Run vLLM with --per-request-spec-decode-metrics summary. FILE is a path or a glob and has one JSON object per line.
    """
    sections = overrides(flags)
    own = sections.pop("tap", {})
    tap = TapSettings(
        paths=paths or ("-",), header=own.get("header"), start=own.get("from", "end"), state=own.get("state")
    )
    sections.setdefault("web", {}).setdefault("listen_addresses", (LISTEN_ADDRESS,))
    settings = load_settings(None, sections)
    with lean_imports():
        from specdec_exporter.serving import serve
        from specdec_exporter.serving import tap as serving_tap

    return serve.live(settings, lambda: serving_tap.TapRuntime(settings, tap), serving_tap.build_registry)
