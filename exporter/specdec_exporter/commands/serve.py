"""``serve`` for click: help, errors, and command lines that ``serveflags`` does not read."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from specdec_exporter import __version__
from specdec_exporter.commands import PROG
from specdec_exporter.commands.flags import Checked, Decorator, flag, with_flags
from specdec_exporter.commands.serveflags import FLAGS, Flag, settings_loader, start


def option(of: Flag) -> Decorator:
    """Return click's option for a flag."""
    if of.switch:
        return flag(of.name, of.help, is_flag=True, default=None)
    kind: Any = None
    if of.choices:
        kind = click.Choice(of.choices)
    elif of.check:
        kind = Checked((of.metavar or "text").lower(), of.check)
    return flag(of.name, of.help, metavar=of.metavar, multiple=of.repeatable, type=kind)


_CONFIG_CHECK = click.option("--config.check", "config_check", is_flag=True, help="Check the configuration and exit.")
_CONFIG_FILE, *_OTHERS = map(option, FLAGS)


@click.command("serve")
@click.version_option(__version__, prog_name=PROG)
@with_flags(_CONFIG_FILE, _CONFIG_CHECK, *_OTHERS)
def command(config_file: str | None, config_check: bool, **flags: Any) -> int:
    """Serve the metrics and the status page of a predictor (or of several, from a file)."""
    load = settings_loader(config_file, flags)
    if not config_check:
        return start(load)
    settings = load()
    from specdec_exporter.serving.serve import check

    asyncio.run(check(settings))
    click.echo(f"{config_file or 'flags and environment'}: {len(settings.predictors)} predictor(s), valid")
    return 0
