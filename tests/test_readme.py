"""Every command of the documentation is one that the program takes."""

import re
import shlex
import textwrap
from pathlib import Path

import click
import pytest

from nmt_cli.cli import main
from nmt_cli.decoding.translator import Translator
from nmt_cli.recipe.shipped import shipped_recipes

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "recipes/README.md", ROOT / "data/README.md"]


def documented_commands():
    for document in DOCUMENTS:
        for line in document.read_text(encoding="utf-8").splitlines():
            match = re.match(r"    (?:.*\| )?(?:\S*bin/)?nmt-cli ([a-z].*)", line)
            if match:
                command = re.split(r" [<>|]|   #| +->", match.group(1))[0]
                yield pytest.param(command, id=f"{document.parent.name}: {command}")


@pytest.mark.parametrize("command", list(documented_commands()))
def test_commands_parse(command):
    arguments = shlex.split(command, comments=True)
    group: click.Command = main
    context = click.Context(main)
    while isinstance(group, click.Group):
        name, found, arguments = group.resolve_command(context, arguments)
        assert found is not None
        group = found
    group.make_context(name, arguments)  # a usage error fails the test


def test_some_commands_are_documented():
    commands = " ".join(str(parameter.values[0]) for parameter in documented_commands())
    for name in ("preprocess", "train", "average-checkpoints", "translate", "score", "recipes"):
        assert f"{name} " in commands


def test_every_recipe_is_documented():
    text = (ROOT / "recipes/README.md").read_text(encoding="utf-8")
    for name in shipped_recipes():
        assert f"`{name}`" in text


def test_the_files_of_the_walk_exist():
    walk = (ROOT / "README.md").read_text(encoding="utf-8").split("step by step:")[1]
    walk = walk.split("Modules import")[0]
    named = re.findall(r"`((?:\w+/)*\w+\.py)(?:: ([\w.]+))?", walk)
    assert len(named) > 12
    for path, name in named:
        text = (ROOT / "nmt_cli" / path).read_text(encoding="utf-8")
        for part in name.split(".") if name else []:
            assert re.search(rf"(def|class) {part}\b", text), f"{path} has no {part}"


def test_links_lead_somewhere():
    for document in DOCUMENTS:
        for link in re.findall(r"\]\((?!http)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / link).exists(), f"{document}: {link}"


def test_documentation_points_to_no_python_source_for_the_keys_of_a_recipe():
    for document in DOCUMENTS:
        assert "recipe/schema.py" not in document.read_text(encoding="utf-8")
    text = DOCUMENTS[0].read_text(encoding="utf-8")
    assert "nmt-cli recipes keys" in text
    assert re.search(r"nmt-cli recipes show \S+ --comments > mine.yaml", text)
    assert "# yaml-language-server: $schema=" in text


def test_the_examples_in_python_run(monkeypatch, capsys):
    """They use a model of the formats' tests in place of the one that they name."""
    load, path = Translator.load, ROOT / "tests/formats/format_2/sentencepiece/run/average"
    monkeypatch.setattr(
        Translator, "load", lambda _, **options: load(path, device="cpu", **options)
    )
    section = DOCUMENTS[0].read_text(encoding="utf-8").split("## From Python")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.M)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(textwrap.dedent(block), names)
    assert len(capsys.readouterr().out.splitlines()) == 3
