"""The command line: which commands there are, how each of them ends, and with which exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

from specdec_exporter import __version__
from specdec_exporter.commands import BAD_USAGE, EXIT_CODES, PROG
from specdec_exporter.commands.streams import closable_stdout, complain, misuse
from specdec_exporter.errors import SpecdecError

COMMANDS = ("analyze", "baseline", "check", "compare", "completion", "doctor", "healthcheck", "serve")
_INTERRUPTED = 130


class _Commands(click.Group):
    """Each command is ``command`` in the module of its name, which is imported when it is needed.

    The default command is ``serve``.
    """

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"specdec_exporter.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:  # click only knows commands that were imported
            raise NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        with closable_stdout():
            return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = super().shell_complete(ctx, incomplete)
        serve = self.get_command(ctx, "serve")
        return items + serve.shell_complete(click.Context(serve, parent=ctx), incomplete) if serve else items

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and not args:  # a shell asks what may come: any command
            return super().parse_args(ctx, args)
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROG)
def cli() -> None:
    """Tell whether vLLM's speculative decoding pays off: metrics, verdict and status page for a predictor.

    The default command is serve.

    Exit codes of all commands: 0 no warning, 2 a warning (WARN), 1 a failure (FAIL), 64 bad usage.
    """


def main() -> None:
    """Run the command of ``sys.argv`` and exit; an error is one line on stderr."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it; the next file to be opened must not take its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        with closable_stdout():  # help, too, is written
            code = cli.main(prog_name=PROG, standalone_mode=False)
    except click.UsageError as error:
        complain([misuse(error)])
        code = BAD_USAGE
    except (KeyboardInterrupt, click.Abort):
        code = _INTERRUPTED
    except (SpecdecError, click.ClickException) as error:
        complain(map(str, error.args))
        code = EXIT_CODES["FAIL"]
    except Exception as error:
        if os.environ.get("SPECDEC_TRACEBACK"):
            raise
        complain([f"internal error: {type(error).__name__}: {error} (SPECDEC_TRACEBACK=1 shows where)"])
        code = EXIT_CODES["FAIL"]
    sys.exit(code if isinstance(code, int) else 0)
