"""``completion``: the script with which a shell completes commands and flags."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from specdec_exporter.commands import PROG
from specdec_exporter.commands.flags import Choice


@click.command("completion")
@click.argument("shell", type=Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script of a shell that completes this command line.

    For example, in ~/.bashrc: eval "$(specdec-exporter completion bash)"
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None  # noqa: S101  click has all three
    variable = f"_{PROG.replace('-', '_').upper()}_COMPLETE"
    click.echo(shell_class(ctx.find_root().command, {}, PROG, variable).source())
    return 0
