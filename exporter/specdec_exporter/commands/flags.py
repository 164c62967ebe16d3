"""Parts of all commands' flags: environment twins, types, and flags that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from specdec_exporter import config
from specdec_exporter.commands.serveflags import ACCESS_FLAGS
from specdec_exporter.config import Access
from specdec_exporter.errors import ConfigError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_CONTEXT_HELP = {
    "hardware": "The hardware, e.g. '1x H100 SXM 80GB'.",
    "model": "The model. If several are served: the one to record.  [default: the one that the predictor reports]",
    "runtime": "The runtime.  [default: the predictor's vLLM release]",
    "request_parameters": "The requests, e.g. 'ShareGPT, temperature 0, 16 at once'.",
    "command": "The command that started vLLM.",
}


class Checked(click.ParamType[Any]):
    """Converts a text with ``function``; its ConfigError or ValueError becomes bad usage (exit code 2)."""

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self.name = name
        self._function = function

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the converted value."""
        try:
            return self._function(value)
        except (ConfigError, ValueError) as error:
            self.fail(str(error), param, ctx)


DURATION = Checked("duration", config.parse_duration)
HEADER = Checked("name", config.valid_header)
HEADER_HELP = "A header of the saved requests to group by, e.g. X-Tenant."


def flag(name: str, text: str, *, key: str | None = None, prefix: str = "SPECDEC_", **kwargs: Any) -> Decorator:
    """Return an option with its environment twin: ``--predictor.url`` and ``SPECDEC_PREDICTOR_URL``.

    ``key`` is the name of the command's parameter. Without a default, an option that is not set gives ``None`` (or an
    empty tuple), so that the value of a file counts.
    """
    words = name.lstrip("-").replace(".", "_").replace("-", "_")
    return click.option(name, key or words, envvar=f"{prefix}{words.upper()}", show_envvar=True, help=text, **kwargs)


def log_paths_flag(name: str, text: str) -> Decorator:
    """Return the flag for the files of a predictor's log."""
    return click.option(name, "log_paths", multiple=True, metavar="PATH", help=text)


def with_flags(*flags: Decorator) -> Decorator:
    """Return a decorator that adds ``flags`` to a command, in their order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(flags):
            command = each(command)
        return command

    return add


def access_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags for TLS and the token, which reach ``command`` as ``access``.

    They have no environment twins: a variable of the sidecar must not send its token to a URL that somebody types.
    """

    @functools.wraps(command)
    def with_access(**given: Any) -> Any:
        return command(access=Access(**{key: given.pop(key) for key in Access.__struct_fields__}), **given)

    options = (
        click.option(of.name, of.key.partition("_")[2], metavar=of.metavar, is_flag=of.switch, help=of.help)
        for of in ACCESS_FLAGS
    )
    return with_flags(*options)(with_access)


context_flags = with_flags(
    *(
        click.option(f"--{name.replace('_', '-')}", name, metavar="TEXT", help=text)
        for name, text in _CONTEXT_HELP.items()
    )
)
