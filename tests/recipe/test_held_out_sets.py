"""Validation and test sets in a recipe: one, or several with names."""

import pytest

from nmt_cli.recipe.reader import dump_recipe, read_recipe
from nmt_cli.recipe.schema import sections_that_matter
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
        return sections_that_matter(read(f"[{NEWS}, {TALKS}]", *overrides))

    assert prepared(f"data.test=[{NEWS}]", "validation.best_on=talks") == prepared()
    assert prepared() != sections_that_matter(read(f"[{TALKS}, {NEWS}]"))


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
            "data.validation.0: must be a section with keys of source, target, tag, name, but is x",
        ),
        (
            ["data.test=x"],
            "data.test: must be a section with keys of source, target, tag, name, but is x",
        ),
        (
            ["data.test.name=../x"],
            "data.test.name: must be 1 to 40 of the characters A-Z a-z 0-9 _ -, but is '../x'",
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
