"""--help: summaries that are whole, commands and options under headings, examples that parse."""

import os
import pty
import re
import shlex
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nmt_cli.cli import main
from nmt_cli.command_line.help_pages import EXAMPLES, HEADINGS, OF_COMMANDS, SUMMARIES
from tests.imported_modules import ended

MOST = 50  # characters of a summary


def paths(group=main, path=()):
    yield path
    for name, command in group.commands.items() if isinstance(group, click.Group) else ():
        yield from paths(command, (*path, name))


PATHS = list(paths())


def command_at(path):
    command: Any = main
    for name in path:
        command = command.commands[name]
    return command


def help_of(path, width=80):
    columns = {"COLUMNS": str(width)}
    shown = CliRunner().invoke(main, [*path, "--help"], prog_name="nmt-cli", env=columns)
    assert shown.exit_code == 0
    return shown.stdout


def sections(text):
    """Return the lines below each heading; a heading begins its line and ends in a colon."""
    parts = re.split(r"^(\S.*):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("path", [(), ("data",), ("recipes",)], ids=" ".join)
def test_every_command_is_in_one_group_with_its_whole_summary(path, width):
    listed = re.findall(r"^  (\S+) +(.*)", help_of(path, width), re.MULTILINE)
    for name in command_at(path).commands:
        (summary,) = [text for each, text in listed if each == name]
        full_name = " ".join((*path, name))
        assert summary in [table.get(full_name) for table in SUMMARIES.values()]
        assert len(summary) <= MOST
        assert summary == command_at((*path, name)).get_short_help_str()


def test_there_is_no_summary_without_a_command():
    summaries = [name for names in SUMMARIES.values() for name in names]
    assert sorted(summaries) == sorted(" ".join(path) for path in PATHS if path)


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_option_is_below_one_heading(path):
    below = sections(help_of(path))
    for param in command_at(path).params:
        if isinstance(param, click.Option) and not param.hidden:
            option = param.opts[0]
            pattern = rf"^  (-\w, )?{option}\b(?!-)"
            (heading,) = [h for h, text in below.items() if re.search(pattern, text, re.MULTILINE)]
            wanted = OF_COMMANDS.get((path[-1] if path else "", option))
            if wanted is None:
                (wanted,) = [h for h, names in HEADINGS.items() if option in names.split()]
            assert heading == wanted


def test_the_headings_name_only_options_that_exist():
    known = {(path[-1] if path else "", o) for path in PATHS
             for param in command_at(path).params for o in param.opts}  # fmt: skip
    assert set(OF_COMMANDS) <= known
    named = {name for names in HEADINGS.values() for name in names.split()}
    assert named <= {option for _, option in known} | {"--help"}


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_help_ends_with_one_to_three_examples(path):
    *_, (heading, text) = sections(help_of(path)).items()
    assert heading == "Examples"
    lines = text.splitlines()
    assert 1 <= len(lines) <= 3
    assert all(line[2:] in EXAMPLES for line in lines)
    if path:
        assert all(line.startswith(f"  nmt-cli {' '.join(path)}") for line in lines)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_parses(example):
    program, *words = shlex.split(re.split(" [<>] ", example)[0])
    assert program == "nmt-cli"
    command: Any = main
    context = click.Context(main, **main.context_settings)
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
    command.make_context(name, words, parent=context)  # a usage error fails the test


def shown_on_a_terminal(**environment):
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "nmt_cli", "--help"]
    inherited = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}}
    with subprocess.Popen(words, stdout=theirs, env=inherited | environment):
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 1 << 16):
                shown += part
        except OSError:  # the end, on Linux
            pass
    os.close(ours)
    return shown


def test_headings_are_bold_on_a_terminal_only(tmp_path):
    bold = b"\x1b[1mStart"
    assert bold in shown_on_a_terminal(TERM="xterm")
    for without in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\x1b" not in shown_on_a_terminal(**without)
    assert "\x1b" not in ended(["--help"], tmp_path, {"FORCE_COLOR": "0"}).stdout
    assert bold.decode() in ended(["--help"], tmp_path, {"FORCE_COLOR": "1"}).stdout
