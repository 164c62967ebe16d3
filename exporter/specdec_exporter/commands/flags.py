"""Parts of all commands' flags: environment twins, types, and flags that several commands share."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from specdec_exporter import config
from specdec_exporter.commands.streams import misuse, stdout_in
from specdec_exporter.config import SYSTEM_TRUST, Duration
from specdec_exporter.errors import ConfigError
from specdec_exporter.formatting import did_you_mean

STDOUT = "-"
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Checked(click.ParamType[Any]):
    """Converts a text with ``function``; its ConfigError or ValueError becomes bad usage."""

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self.name = name
        self._function = function

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the converted value."""
        try:
            return self._function(value)
        except (ConfigError, ValueError) as error:
            self.fail(str(error), param, ctx)


class Choice(click.Choice[str]):
    """One of several words; a word that is nearly spelled like one of them gets a hint."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(error.message.rstrip(".") + did_you_mean(str(value), self.choices), param, ctx)


class Collected(click.Option):
    """An option whose wrong value does not end the command: :func:`mistakes` has it, beside those of other options."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Return the value, or ``None`` for a wrong one."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            mistakes(ctx).append(misuse(error))
            ctx.params[self.name or ""] = None
            return None, args


def mistakes(ctx: click.Context) -> list[str]:
    """Return the mistakes in :class:`Collected` options so far."""
    told: list[str] = ctx.meta.setdefault(f"{__name__}.mistakes", [])
    return told


DURATION = Checked("duration", Duration)
URL = Checked("url", config.url_of)


def option(name: str, text: str, **kwargs: Any) -> Decorator:
    """Return an option whose parameter has its name: ``predictor_log_path`` for ``--predictor.log-path``."""
    return click.option(name, _key(name), help=text, **kwargs)


def flag(name: str, text: str, **kwargs: Any) -> Decorator:
    """Return an option with its environment twin: ``--predictor.url`` and ``SPECDEC_PREDICTOR_URL``.

    Without a default, an option that is not set gives ``None`` (or an empty tuple), so that the value of a file counts.
    """
    return option(name, text, envvar=f"SPECDEC_{_key(name).upper()}", show_envvar=True, **kwargs)


def _key(name: str) -> str:
    return name.lstrip("-").replace(".", "_").replace("-", "_")


# Commands that a person runs have no environment twins: a variable of the sidecar is not meant for them.
timeout_flag = option(
    "--predictor.timeout", "Longest time for each request.", type=DURATION, default="5s", show_default=True
)
log_path_flag = option(
    "--predictor.log-path", "The predictor's log: a path or a glob, repeatable.", multiple=True, metavar="PATH"
)
window_flag = option(
    "--window",
    "Time span of the figures: how long to read a predictor. 1m tells more than 2s.",
    type=DURATION,
    default="2s",
    show_default=True,
)


file_option = click.option(
    "-o", "--file", "into", default=STDOUT, metavar="FILE", help="File to write to.  [default: standard output]"
)


def output_option(text: str, *formats: str) -> Decorator:
    """Return ``--output`` with these formats, of which the first is the default, and ``-o`` for a file."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def written(*, into: str, **given: Any) -> Any:
            if into in formats:
                raise click.UsageError(f"-o names a file, --output a format: --output {into}")
            with contextlib.nullcontext() if into == STDOUT else stdout_in(into):
                return command(**given)

        output = option("--output", text, type=Choice(formats), default=formats[0], show_default=True)
        return output(file_option(written))

    return decorated


output_flag = output_option("Text for people, or JSON for programs.", "text", "json")


def access_flag(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flag that gives TLS and a token to a command with a parameter ``url``.

    The command gets the predictor's ``url`` and ``access``. The file names predictors and their secrets together, so
    no token goes to a URL that somebody types.
    """

    @functools.wraps(command)
    def with_access(*, url: str | None, config_file: str | None, **given: Any) -> Any:
        if config_file is None:
            return command(url=URL(url), access=SYSTEM_TRUST, **given)
        predictor = config.listed_predictor(config_file, url)
        return command(url=predictor.url, access=predictor, **given)

    text = "Take TLS settings and token from this configuration of serve; the predictor may then be given by its name."
    return option("--config.file", text, metavar="PATH")(with_access)
