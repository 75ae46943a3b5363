"""The table of other toolkits' names: a page shows it, and what it names exists here."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.messages.other_toolkits import names_of_keys, renames
from nmt_cli.messages.proposals import plain
from nmt_cli.recipe.keys import is_value_of, key_paths, keys_meant
from nmt_cli.recipe.layers import parse_value

PAGE = Path(__file__).parents[2] / "docs/how-to/moving-from-other-toolkits.md"
HEADING = "| here | fairseq | OpenNMT-py | Sockeye | Marian | CTranslate2 | |"


def as_shown(row):
    here = ", ".join(f"`{place}`" for place in row.places()) or "–"
    cells = [
        here,
        *(", ".join(f"`{name}`" for name in cell.split()) for cell in row.of_toolkits()),
        row.note,
    ]
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def test_the_page_shows_the_table():
    expected = [as_shown(row) for row in renames() if any(row.of_toolkits())]
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(HEADING) + 2
    assert lines[start : start + len(expected)] == expected
    assert not any(line.startswith("|") for line in lines[start + len(expected) :])


def test_every_key_option_argument_and_command_of_the_table_exists():
    keys, commands = set(key_paths()), cli.main.commands
    for place in (place for row in renames() for place in row.places()):
        command, _, thing = place.partition(" ")
        if "." in place:
            assert place in keys
        elif thing.startswith("--"):
            assert any(thing in param.opts for param in commands[command].params), place
        elif thing:
            names = [param.human_readable_name.rstrip(".") for param in commands[command].params]
            assert thing in names, place
        else:
            assert command in commands


def test_every_example_is_a_value_of_its_key():
    for row in renames():
        for key in (place for place in row.places() if "." in place and row.example):
            assert is_value_of(key, parse_value(row.example).value), row


def test_the_keys_of_the_table_are_proposed_in_a_recipe():
    own = {key.rpartition(".")[2] for key in key_paths()}
    for name, key in names_of_keys().items():
        if name not in own:
            assert keys_meant(name) == [key]


@pytest.mark.parametrize("row", renames(), ids=lambda row: row.here or row.note)
def test_every_name_of_the_table_is_answered(row):
    """On the command that has it the place is named; what does not exist is explained."""
    for place in row.places() or [""]:
        command, _, thing = place.partition(" ")
        if place and not thing and "." not in place:
            continue  # commands: below
        command = command if thing else "train"
        params = cli.main.commands[command].params
        arguments = ["x" for param in params if isinstance(param, click.Argument)]
        own = {plain(option) for param in params for option in param.opts}
        for name in row.names():
            if name in own or f"_{name}".startswith("_marian") or "onmt_" in name:
                continue
            option = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            result = CliRunner().invoke(cli.main, [command, *arguments, option])
            assert result.exit_code == 2
            assert "Did you mean" in result.stderr or "It is" in result.stderr or (
                "argument without a name" in result.stderr
                or "Here it is" in result.stderr
                or (row.note and row.note in result.stderr)
            ), (command, option, result.stderr)  # fmt: skip


def test_the_commands_of_other_toolkits_are_answered():
    for row in renames():
        if row.here not in cli.main.commands:
            continue
        for name in (n for names in row[1:5] for n in names.split()):
            result = CliRunner().invoke(cli.main, [name])
            assert result.stderr.endswith(f"No such command {name}. Did you mean {row.here}?\n")
