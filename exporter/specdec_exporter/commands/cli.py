"""The command line, read by click."""

from __future__ import annotations

from importlib import import_module

import click

from specdec_exporter import __version__
from specdec_exporter.commands import PROG

COMMANDS = ("analyze", "baseline", "check", "compare", "doctor", "healthcheck", "serve", "tap", "tune")


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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROG)
def cli() -> None:
    """Tell whether vLLM's speculative decoding pays off: metrics, verdict and status page for a predictor.

    The default command is serve.
    """


def run() -> int:
    """Run the command of ``sys.argv``; return the exit code, 2 for bad usage."""
    try:
        code = cli.main(prog_name=PROG, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    return code if isinstance(code, int) else 0
