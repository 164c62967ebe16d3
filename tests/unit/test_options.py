"""The options of all commands: few, with one meaning for each name, and those of serve also as variables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import click

from specdec_exporter.commands.cli import cli
from specdec_exporter.commands.serve import command as serve

MOST = 90


def options(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Option]]:
    """Each option of a command and of the commands below it, with the command's path."""
    context = click.Context(command)
    yield from ((path, each) for each in command.params if isinstance(each, click.Option))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{path} {name}")


def test_there_are_few_options() -> None:
    assert len(list(options(cli))) <= MOST


def test_a_name_means_the_same_in_every_command() -> None:
    """It takes one kind of value, and repeats everywhere or nowhere."""
    meanings = defaultdict(set)
    for _, option in options(cli):
        kind = "CHOICE" if isinstance(option.type, click.Choice) else option.make_metavar(click.Context(cli))
        meanings[max(option.opts, key=len)].add((kind, option.multiple))
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}


def test_what_serve_calls_by_its_section_other_commands_do_too() -> None:
    last_words = {option.opts[0].rpartition(".")[2]: option.opts[0] for _, option in options(serve)}
    del last_words["name"]  # a recording has a name too
    for path, option in options(cli):
        if (name := option.opts[0]).startswith("--"):
            assert last_words.get(name.removeprefix("--"), name) == name, path


def test_every_flag_of_serve_has_an_environment_twin() -> None:
    for _, option in options(serve):
        name = option.opts[0]
        if name not in ("--config.check", "--version"):
            assert option.envvar == "SPECDEC_" + name[2:].upper().replace(".", "_").replace("-", "_")
