"""The texts that check translates: test sets of a recipe, tags, lines that fail."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands.model_checks.texts import sets_of_files, translate
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.corpora import HeldOutFiles
from nmt_cli.saved.model_directory import find_model
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.translator import Translator

FORMATS = Path(__file__).parents[1] / "formats"
MODEL = FORMATS / "format_2/whitespace/run/average"
SETS = """
description: two test sets
data:
  source_language: en
  target_language: de
  train: [{source: train.en, target: train.de}]
  validation: {source: train.en, target: train.de}
  test:
    - {name: news, source: news.en, target: news.de}
    - {name: talks, tsv: talks.tsv, tag: <2fr>, languages: [en, fr]}
tokenizer: {type: whitespace, joiner: "@@"}
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model whose recipe has two test sets, in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(MODEL, "model")
    Path("model/recipe.yaml").write_text(SETS)
    Path("news.en").write_text("One.\n\nThree.\n")
    Path("news.de").write_text("Ei@@ ns.\n\nDrei.\n")
    Path("talks.tsv").write_text("Hello.\tBonjour.\n")
    return Path("model")


def test_the_sets_of_a_recipe_have_its_names_tags_and_languages(model):
    news, talks = sets_of_files([], find_model(model), None)
    assert [case.place for case in news.cases] == ["news:1", "news:2", "news:3"]
    assert news.references.lines == ["Eins.", "", "Drei."]  # joined, as translations are
    assert news.references.tokenizer.tokenize == "none"
    (case,) = talks.cases
    assert case.text == ("Hello.", "<2fr>")
    assert (case.languages, case.reference) == (("en", "fr"), "Bonjour.")


def test_given_files_come_before_the_recipe(model):
    files = HeldOutFiles(name="mine", source=Path("news.en"), target=Path("news.de"))
    (found,) = sets_of_files([files], find_model(model), "<2de>")
    assert found.references.lines[0] == "Ei@@ ns."
    assert {case.tag for case in found.cases} == {"<2de>"}


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda: Path("model/recipe.yaml").unlink(), "test text is not known: model/recipe.yaml"),
        (lambda: Path("model/recipe.yaml").write_text("#"), "but this is empty; give a text with"),
        (lambda: Path("news.de").unlink(), "news.de not found"),
        (lambda: Path("news.de").write_text("Eins.\n"), "news.en has 3 lines but news.de has 1"),
        (lambda: [Path(f"news.{each}").write_text("\n") for each in ("en", "de")], "nothing to tr"),
    ],
)
def test_wrong_texts_are_one_line(model, prepare, message):
    prepare()
    with pytest.raises(UserError) as error:
        sets_of_files([], find_model(model), None)
    assert message in str(error.value)


def test_a_parser_is_refused():
    parser = next((FORMATS / "format_3").rglob("config.json")).parent
    result = CliRunner().invoke(cli.main, ["check", str(MODEL), "--against", str(parser)])
    assert result.exit_code == 1
    assert f"{parser} parses; check is for models that translate." in result.stderr


class Failing:
    """A translator that cannot translate one text, and notes what it was asked for."""

    def __init__(self):
        self.asked = []

    def translate_window(self, requests):
        self.asked += requests
        return [
            Translation(error="no reason") if each.text == "b" else Translation(each.text.upper())
            for each in requests
        ]


def test_each_text_is_translated_once_and_what_fails_is_empty(monkeypatch, caplog):
    translator = Failing()
    monkeypatch.setattr(Translator, "load", lambda *_, **__: translator)
    wanted = [*((each, None) for each in ("a", "b", "", "a", "c")), ("a", "<x>")]
    found = translate(MODEL, wanted, None, {})
    assert found == {
        ("a", None): "A",
        ("b", None): "",
        ("", None): "",
        ("c", None): "C",
        ("a", "<x>"): "A",
    }
    assert [(each.text, each.tag) for each in translator.asked] == [
        ("a", None),
        ("b", None),
        ("c", None),
        ("a", "<x>"),
    ]
    assert "could not translate 1 line, the first because no reason; they count" in caplog.text
