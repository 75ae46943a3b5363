"""Every command of the documentation is one that the program takes."""

import re
import shlex
import shutil
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from nmt_cli.cli import main
from nmt_cli.messages import errors
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.shipped import shipped_recipes
from nmt_cli.translating.rescorer import Rescorer
from nmt_cli.translating.translator import Translator
from tests import reference_pages

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(
    r"    (?:.*(?:\||srun|parallel|docker run .*) +)?(?:\S*bin/)?nmt-cli ([a-z].*)"
)
PAGES = sorted((ROOT / "docs").glob("**/*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "recipes/README.md", ROOT / "data/README.md", *PAGES]


def documented_commands():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            match = COMMAND.match(line)
            if match:
                command = re.split(r" [<>|]|   #| +->", match.group(1))[0]
                command = re.sub(r"\{\}/16|\$n\b", "1/16", command).replace("$SLURM_NNODES", "2")
                yield pytest.param(command, id=f"{document.parent.name}: {command}")


@pytest.mark.parametrize("command", list(documented_commands()))
def test_commands_parse(command):
    arguments = shlex.split(command, comments=True)
    group: click.Command = main
    context = click.Context(main, **main.context_settings)
    while isinstance(group, click.Group):
        name, found, arguments = group.resolve_command(context, arguments)
        assert found is not None
        group = found
    group.make_context(name, arguments, parent=context)  # a usage error fails the test


def test_some_commands_are_documented():
    commands = " ".join(str(parameter.values[0]) for parameter in documented_commands())
    for name in ("preprocess", "train", "average-checkpoints", "translate", "score", "recipes"):
        assert f"{name} " in commands


def test_every_recipe_is_documented():
    text = (ROOT / "recipes/README.md").read_text(encoding="utf-8")
    for name in shipped_recipes():
        assert f"`{name}`" in text


def test_the_files_of_the_walk_exist():
    walk = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    walk = walk.split("Modules import")[0]
    named = re.findall(r"`((?:\w+/)*\w+\.py)(?:: ([\w.]+))?", walk)
    assert len(named) > 20
    for path, name in named:
        text = (ROOT / "nmt_cli" / path).read_text(encoding="utf-8")
        for part in name.split(".") if name else []:
            assert re.search(rf"(def|class) {part}\b", text), f"{path} has no {part}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_modules_that_pages_name_exist(page):
    for path in re.findall(r"`((?:\w+/)+\w+\.py)[`:]", page.read_text(encoding="utf-8")):
        assert (ROOT / "nmt_cli" / path).exists() or (ROOT / path).exists(), path


def test_links_lead_somewhere():
    for document in DOCUMENTS:
        for link in re.findall(r"\]\((?!http)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / link).exists(), f"{document}: {link}"


def test_documentation_points_to_no_python_source_for_the_keys_of_a_recipe():
    for document in DOCUMENTS:
        assert "recipe/schema.py" not in document.read_text(encoding="utf-8")
    page = ROOT / "docs/tutorials/your-own-text.md"
    text = DOCUMENTS[0].read_text(encoding="utf-8") + page.read_text(encoding="utf-8")
    assert "nmt-cli recipes keys" in text
    assert re.search(r"nmt-cli recipes show \S+ --comments", text)
    assert "# yaml-language-server: $schema=" in text


def test_the_examples_in_python_run(monkeypatch, capsys):
    """They use a model of the formats' tests in place of the one that they name."""
    path = ROOT / "tests/formats/format_2/sentencepiece/run/average"
    for kind in (Translator, Rescorer):
        load = partial(kind.load, path, device="cpu")
        monkeypatch.setattr(kind, "load", lambda _, load=load, **options: load(**options))
    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    readme = DOCUMENTS[0].read_text(encoding="utf-8").split("## From Python")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", f"{page}\n{readme}", re.M)
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    for block in blocks:
        exec(textwrap.dedent(block), names)
        assert names["translation"].error is None
    assert names["scored"].error is None
    assert len(capsys.readouterr().out.splitlines()) == 6


def documented_recipes():
    text = "\n".join(each.read_text(encoding="utf-8") for each in [DOCUMENTS[0], *PAGES])
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.M)
    texts = [textwrap.dedent(block).lstrip() for block in blocks]
    return [text for text in texts if re.match("extends:|description:", text)]


@pytest.mark.parametrize("block", documented_recipes())
def test_documented_recipes_are_complete(block, tmp_path, monkeypatch):
    """Only what the recipe itself names is there, and what ``make quickstart`` writes."""
    monkeypatch.chdir(tmp_path)
    recipe = yaml.safe_load(block)
    data, parent = recipe.get("data", {}), recipe.get("extends")
    corpora = [*data.get("train", []), data.get("validation"), data.get("test")]
    corpora = [files for files in corpora if files is not None]
    if parent == "quickstart" or not corpora:
        theirs = read_recipe(parent).recipe.data
        of_parent = [*theirs.train, *theirs.validation_sets, *theirs.test_sets]
        corpora += [files.model_dump() for files in of_parent]
    named = [Path(files[side]) for files in corpora for side in ("source", "target")]
    if tokenizer := recipe.get("tokenizer", {}).get("model"):
        named.append(Path(tokenizer))
    for path in named:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"word{number}\n" for number in range(2000)))
    if model := recipe.get("model", {}).get("from"):
        shutil.copytree(ROOT / "tests/formats/format_2/sentencepiece/run/average", model)
    Path("mine.yaml").write_text(block)
    result = CliRunner().invoke(main, ["recipes", "check", "./mine.yaml"])
    assert (result.stdout, result.exit_code) == ("recipe ok\n", 0), result.stderr


@pytest.mark.parametrize("command", [["recipes", "check"], ["run"]])
def test_an_inherited_test_text_is_named_with_its_recipe(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = next(each for each in documented_recipes() if "test: null" in each)
    Path("mine.yaml").write_text(re.sub(" *test: null.*\n", "", block))
    for name in ("mine.en", "mine.de", "dev.en", "dev.de", "spm.model"):
        Path(name).write_text("one\n")
    result = CliRunner().invoke(main, [*command, "./mine.yaml", "--set=tokenizer.model=spm.model"])
    assert result.exit_code == 1
    assert "data/multi30k/test_2016_flickr.en does not exist" in result.stderr
    assert (
        "; data.test comes from the recipe multi30k-en-de: give your own, or write "
        "data: {test: null}"
    ) in result.stderr


def test_there_are_documented_recipes():
    assert len(documented_recipes()) >= 6


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_reference_pages_show_the_program_as_it_is(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert page == reference_pages.PAGES[name](), "run: python -m tests.reference_pages"


def test_every_exit_status_is_documented():
    page = (ROOT / "docs/reference/exit-statuses.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d, ]+) \|", page, re.M)
    documented = {int(status) for row in rows for status in row.split(",")}
    statuses = {value for name, value in vars(errors).items() if name.startswith("STATUS_")}
    assert {0, 1, 2, *statuses} <= documented


def test_the_site_has_every_page():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = re.findall(r"[\w/-]+\.md", str(site["nav"]))
    assert sorted(ROOT / "docs" / path for path in listed) == PAGES
