"""The command line: find the command, run it, and word what went wrong."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

import click

from specdec_exporter import __version__
from specdec_exporter.commands import PROG
from specdec_exporter.errors import SpecdecError
from specdec_exporter.serving.lean import load_when_used

COMMANDS = ("analyze", "baseline", "check", "compare", "healthcheck", "serve", "simulate")


class _Commands(click.Group):
    """Each command is ``command`` in the module of its name, which is imported when somebody asks for it.

    Without a command (only flags, or nothing at all) the command is ``serve``.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"specdec_exporter.commands.{cmd_name}").command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROG)
def cli() -> None:
    """Tell whether vLLM's speculative decoding pays off: metrics, verdict and status page for a predictor.

    Without a command: serve.
    """


def main() -> None:
    """Run a command; errors of ours are one line on stderr, usage errors exit with 2."""
    load_when_used()
    try:
        code = cli.main(prog_name=PROG, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    except SpecdecError as error:
        click.echo(f"{PROG}: {error}", err=True)
        code = 1
    except Exception as error:
        if os.environ.get("SPECDEC_TRACEBACK"):
            raise
        click.echo(
            f"{PROG}: internal error: {type(error).__name__}: {error} (SPECDEC_TRACEBACK=1 shows where)", err=True
        )
        code = 1
    gc.freeze()  # or the interpreter looks for garbage before it ends, a tenth of what a short command costs
    sys.exit(code if isinstance(code, int) else 0)
