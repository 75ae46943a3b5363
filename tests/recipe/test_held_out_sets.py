"""Validation and test sets in a recipe: one, or several with names."""

from pathlib import Path

import pytest

from nmt_cli.recipe.keys import keys_of_text
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from tests.recipe.conftest import problems_of

ONE = "{source: a.en, target: a.de}"
NEWS = "{name: news, source: news.en, target: news.de}"
TALKS = "{name: talks, source: talks.en, target: talks.de}"


def read(validation=ONE, *overrides):
    return read_recipe("base", [f"data.validation={validation}", *overrides]).recipe


def test_one_set_needs_no_name():
    (files,) = read().data.validation_sets
    assert (str(files.source), files.name) == ("a.en", None)
    assert read(ONE, "data.test=null").data.test_sets == ()


def test_several_sets_keep_their_order(write):
    recipe = read(f"[{TALKS}, {NEWS}]", f"data.test=[{NEWS}]", "validation.best_on=news")
    assert [files.name for files in recipe.data.validation_sets] == ["talks", "news"]
    assert [str(files.target) for files in recipe.data.test_sets] == ["news.de"]
    assert read_recipe(write(dump_recipe(recipe))).recipe == recipe


def test_a_list_replaces_the_set_of_a_parent_and_a_set_its_list(write):
    path = write(f"extends: base\ndata:\n  validation:\n    - {NEWS}\n    - {TALKS}\n")
    assert len(read_recipe(path).recipe.data.validation_sets) == 2
    child = write(f"extends: {path}\ndata: {{validation: {ONE}}}\n", "child.yaml")
    assert read_recipe(child).recipe.data.validation == read().data.validation


def test_an_entry_of_a_list_can_be_set(write):
    path = write(f"extends: base\ndata: {{test: [{NEWS}, {TALKS}]}}\n")
    tests = read_recipe(path, ["data.test.1.source=x"]).recipe.data.test_sets
    assert [str(files.source) for files in tests] == ["news.en", "x"]


def test_the_sets_of_validation_decide_what_is_prepared_and_those_of_tests_do_not():
    def prepared(*overrides):
        return keys_of_text(read(f"[{NEWS}, {TALKS}]", *overrides))

    assert prepared(f"data.test=[{NEWS}]", "validation.best_on=talks") == prepared()
    assert prepared() != keys_of_text(read(f"[{TALKS}, {NEWS}]"))


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            [f"data.test=[{NEWS}, {ONE}]"],
            "data.test.1.name: is missing; each set of a list needs a name",
        ),
        (
            [f"data.validation=[{NEWS}, {TALKS}, {NEWS}]"],
            "data.validation.2.name: must not be that of data.validation.0.name too: news",
        ),
        (["data.test=[]"], "data.test: must have 1 or more entries, but has 0"),
        (
            ["data.validation=[{name: a, source: x}]"],
            "data.validation.0.target: is missing, a required key: Text file of the target side, "
            "also .gz, .xz or .zst.",
        ),
        (
            ["data.validation=[x]"],
            "data.validation.0: must be a section with keys of source, target, tsv, jsonl, "
            "memory, columns, inline_tags, tag, languages, name, but is x",
        ),
        (
            ["data.test=x"],
            "data.test: must be a section with keys of source, target, tsv, jsonl, memory, "
            "columns, inline_tags, tag, languages, name, but is x",
        ),
        (
            ["data.test.name=../x"],
            "data.test.name: must be 1 to 40 of the characters A-Z a-z 0-9 _ -, the first one "
            "other than -, but is '../x'",
        ),
        (
            [f"data.test=[{NEWS}]", "data.test.0.sorce=x"],
            "data.test.0.sorce: is an entry of data.test, which another --set gives; "
            "write it there",
        ),
        (
            [f"data.validation=[{NEWS}, {TALKS}]", "validation.best_on=new"],
            "validation.best_on: must be news or talks, but is new",
        ),
    ],
)
def test_a_wrong_set_is_one_line(overrides, problem):
    assert problems_of("base", overrides) == [f"--set: {problem}"]


def test_a_wrong_key_of_a_set_is_named_at_its_line(write):
    path = write(f"extends: base\ndata:\n  test:\n    - {NEWS}\n    - {{name: b, sorce: x}}\n")
    assert problems_of(path)[-1] == (
        f"{path}:5: data.test.1.sorce: is not a key of a recipe; did you mean source?"
    )


def test_a_set_without_a_name_cannot_decide():
    (problem,) = problems_of("base", ["validation.best_on=news"])
    assert problem.startswith(
        "--set: validation.best_on: must be left out, because no validation set has a name, but is "
        "news (data.validation comes from "
    )


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            "{tsv: a, source: b}",
            "validation.source: must be null beside tsv, which holds both sides",
        ),
        ("{tsv: a, jsonl: b}", "validation.jsonl: must be null beside tsv, which holds both sides"),
        (
            "{source: a, target: b, columns: [1, 2]}",
            "validation.columns: needs tsv, jsonl or memory, whose",
        ),
        ("{tsv: a, columns: [2, 2]}", "validation.columns: must name two columns, but both are 2"),
        (
            "{tsv: a, columns: [2]}",
            "validation.columns.1: is missing; the list has too few entries",
        ),
    ],
)
def test_files_that_do_not_go_together_are_refused(files, problem):
    first, *_ = problems_of("quickstart", ["data.validation=null", f"data.validation={files}"])
    assert first.startswith(f"--set: data.{problem}")


def test_a_file_of_rows_replaces_the_two_text_files_of_the_parent(write):
    path = write(
        "extends: base\ndescription: x\ndata: {validation: {tsv: a.tsv}, test: {jsonl: b}}"
    )
    data = read_recipe(path).recipe.data
    assert [each.paths for each in data.validation_sets] == [{"tsv": Path("a.tsv")}]
    assert [each.paths for each in data.test_sets] == [{"jsonl": Path("b")}]
    back = read_recipe(path, ["data.test.source=c", "data.test.target=d"]).recipe.data.test_sets
    assert [each.paths for each in back] == [{"source": Path("c"), "target": Path("d")}]


def test_trees_are_no_rows():
    overrides = ["data.train=[{tsv: a}]"]
    problem = "--set: data.train.0.tsv: must be null beside treebank; give source and target"
    assert problems_of("parsing", overrides)[0].startswith(problem)
