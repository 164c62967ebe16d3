"""``specdec-exporter serve``: its flags, and which setting each of them sets."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from specdec_exporter import __version__
from specdec_exporter.commands import PROG
from specdec_exporter.commands.flags import DURATION, NAME, PATH, URL, flag, listen_address_flag, with_flags
from specdec_exporter.config import load_settings

_FLAGS = (
    flag("--config.file", "YAML file with any of these settings, and with several predictors.", metavar="PATH"),
    click.option("--config.check", "config_check", is_flag=True, help="Check the configuration and exit."),
    listen_address_flag("Address to listen on, repeatable; [::1]:10409 for IPv6.  [default: :10409]"),
    flag(
        "--web.telemetry-path",
        "Path of the metrics.  [default: /metrics]",
        type=PATH,
        metavar="PATH",
    ),
    flag("--web.config.file", "TLS and basic auth, in the format of Prometheus exporters.", metavar="PATH"),
    flag("--web.enable-lifecycle", "Allow POST /-/reload.", is_flag=True, default=None),
    flag("--web.disable-exporter-metrics", "Leave out process_* and python_info.", is_flag=True, default=None),
    flag(
        "--log.level",
        "Least severe message of the exporter's own log, which goes to stderr.  [default: info]",
        type=click.Choice(["debug", "info", "warn", "error"]),
    ),
    flag("--log.format", "Format of the exporter's own log.  [default: logfmt]", type=click.Choice(["logfmt", "json"])),
    flag(
        "--predictor.url",
        "The predictor.  [default: http://127.0.0.1:8080]",
        type=URL,
        metavar="URL",
    ),
    flag(
        "--predictor.name",
        "Its name: the label inference_service.  [default: default]",
        type=NAME,
        metavar="NAME",
    ),
    flag("--predictor.timeout", "Longest a fetch of its metrics may take.  [default: 5s]", type=DURATION),
    flag(
        "--predictor.log-path",
        "Its log: a path or a glob, repeatable; - is stdin. Without one no log is read.",
        multiple=True,
        metavar="PATH",
    ),
    flag(
        "--predictor.log-format",
        "Framing of the log's lines.  [default: auto]",
        type=click.Choice(["auto", "plain", "cri", "docker"]),
    ),
    flag(
        "--predictor.log-from",
        "Where to begin in logs that are there at the start.  [default: end]",
        type=click.Choice(["end", "start"]),
    ),
    flag(
        "--predictor.log-source",
        "Read the log from files, or from the Kubernetes API.  [default: file]",
        type=click.Choice(["file", "kubernetes"]),
    ),
    flag("--predictor.log-state", "File that keeps the read positions over a restart.", metavar="PATH"),
    flag("--baseline.file", "Baseline of the predictor, from `baseline record`, to serve beside it.", metavar="PATH"),
    flag("--window", "Span of the figures for people.  [default: 5m]", type=DURATION),
)
# Flags whose setting is not where their names say.
_SECTIONS = {"window": ("top", "", "window"), "baseline_file": ("predictor", "", "baseline")}


def overrides(flags: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort what was set by flag or environment into the sections of :func:`config.load_settings`."""
    names = {"listen_address": "listen_addresses", "log_path": "log_paths"}
    sections: dict[str, dict[str, Any]] = {}
    for key, value in flags.items():
        if value is None or value == ():
            continue
        section, _, rest = _SECTIONS.get(key) or key.partition("_")
        sections.setdefault(section, {})[names.get(rest, rest)] = value
    return sections


@click.command("serve")
@click.version_option(__version__, prog_name=PROG)
@with_flags(*_FLAGS)
def command(config_file: str | None, config_check: bool, **flags: Any) -> int:
    """Serve the metrics and the status page of a predictor (or of several, from a file)."""
    load = partial(load_settings, config_file, overrides(flags))
    settings = load()
    if config_check:
        if settings.web.config_file:
            from specdec_exporter.web import webconfig  # noqa: PLC0415

            webconfig.WebConfigFile(settings.web.config_file)
        from specdec_exporter.serving.runtime import read_pinned  # noqa: PLC0415

        read_pinned(settings)
        click.echo(f"{config_file or 'flags and environment'}: {len(settings.predictors)} predictor(s), valid")
        return 0
    from specdec_exporter.serving.lean import lean_imports  # noqa: PLC0415

    with lean_imports():
        from specdec_exporter.serving import serve as serving  # noqa: PLC0415

    return serving.run(settings, load)
