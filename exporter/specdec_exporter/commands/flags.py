"""The flags of all commands: their environment twins, their types, and those that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from specdec_exporter import config
from specdec_exporter.errors import ConfigError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_CONTEXT_HELP = {
    "hardware": "What it runs on, e.g. '1x H100 SXM 80GB'.",
    "model": "The model. If several are served: which one to record.  [default: what the predictor says]",
    "runtime": "What runs it.  [default: the predictor's vLLM release]",
    "request_parameters": "What was sent, e.g. 'ShareGPT, temperature 0, 16 at once'.",
    "command": "How vLLM was started.",
}


class Checked(click.ParamType[Any]):
    """What ``function`` makes of the text; its ConfigError or ValueError becomes bad usage (exit code 2)."""

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self.name = name
        self._function = function

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that a command gets."""
        try:
            return self._function(value)
        except (ConfigError, ValueError) as error:
            self.fail(str(error), param, ctx)


DURATION = Checked("duration", config.parse_duration)
LISTEN_ADDRESS = Checked("listen address", config.valid_listen_address)


def flag(name: str, text: str, *, key: str | None = None, prefix: str = "SPECDEC_", **kwargs: Any) -> Decorator:
    """Return an option with its environment twin: ``--predictor.url`` and ``SPECDEC_PREDICTOR_URL``.

    ``key`` is the name of the command's parameter. Unset means ``None`` (or an empty tuple) unless there is a default,
    so that a file and its defaults can speak.
    """
    words = name.lstrip("-").replace(".", "_").replace("-", "_")
    return click.option(name, key or words, envvar=f"{prefix}{words.upper()}", show_envvar=True, help=text, **kwargs)


def listen_address_flag(text: str) -> Decorator:
    """Return ``--web.listen-address``, which ``serve`` and its health check share."""
    return flag("--web.listen-address", text, multiple=True, type=LISTEN_ADDRESS, metavar="[HOST]:PORT")


def log_paths_flag(name: str, text: str) -> Decorator:
    """Return the flag for the files of a predictor's log."""
    return click.option(name, "log_paths", multiple=True, metavar="PATH", help=text)


def with_flags(*flags: Decorator) -> Decorator:
    """Return what adds ``flags`` to a command, in their order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(flags):
            command = each(command)
        return command

    return add


context_flags = with_flags(
    *(
        click.option(f"--{name.replace('_', '-')}", name, metavar="TEXT", help=text)
        for name, text in _CONTEXT_HELP.items()
    )
)
