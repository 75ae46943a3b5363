"""The keys of a recipe as they are listed, and as comments explain them."""

import json
import re

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from nmt_cli.recipe.documentation import described_keys, limits_of, with_comments
from nmt_cli.recipe.keys import recipe_keys
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.sections.corpora import Scores
from nmt_cli.recipe.sections.data import TreebankConfig
from nmt_cli.recipe.sections.mixing import Stage, Until
from nmt_cli.recipe.sections.training import GuidedAlignmentConfig, TeacherConfig
from tests.recipe.conftest import problems_of
from tests.recipe.test_reader import recipes, value_at

KEYS = {key.name: key for key in described_keys()}
# Of a number that both sides of a limit decide, the one beyond it.
BEYOND = {
    "at least": lambda limit: limit - 1,
    "greater than": lambda limit: limit,
    "at most": lambda limit: limit + 1,
    "less than": lambda limit: limit,
}


def test_every_key_of_a_recipe_is_listed():
    listed = [name.replace(".0.", ".") for name in KEYS if name != "extends"]
    assert listed == list(recipe_keys())
    assert all(key.description for key in KEYS.values())


def test_a_listed_default_is_what_a_recipe_without_the_key_has(write):
    recipe = read_recipe(
        write(
            "description: x\ndata: {source_language: a, target_language: b, train: [{source: a, "
            "target: b}], validation: {source: a, target: b}, test: {source: a, target: b}, "
            "treebank: {}}\n"
            "tokenizer: {vocabulary_size: 500}\nvalidation: {bleu: off}\n"
        )
    ).recipe.model_dump(mode="json")
    recipe["training"]["guided_alignment"] = GuidedAlignmentConfig().model_dump(mode="json")
    given_here = {"tokenizer.vocabulary_size", "data.test", "data.treebank", "validation.bleu"}
    recipe["distillation"]["teacher"] = TeacherConfig(model="a").model_dump(mode="json")
    given_here |= {"training.guided_alignment", "distillation.teacher"}
    given_here |= {
        f"data.{of}.{side}" for of in ("validation", "test") for side in ("source", "target")
    }
    defaults = {
        name: key.default
        for name, key in KEYS.items()
        if key.default is not None and ".0." not in name and name not in given_here
    }
    assert len(defaults) > 30
    for name, default in defaults.items():
        value = recipe
        for step in name.split("."):
            value = value[step]
        shown = value if isinstance(value, str) else json.dumps(value)
        assert default == shown, name


NOT_IN_QUICKSTART = ("data.stages.", "distillation.monolingual.", "distillation.teacher.")


def test_a_value_beyond_a_listed_limit_is_refused():
    tried = 0
    for name, key in KEYS.items():
        if key.allowed.startswith("list") or name.startswith(NOT_IN_QUICKSTART):
            continue
        for words, limit in re.findall(r"(at \w+|greater than|less than) ([\d,.]+\d)", key.allowed):
            number = float(limit.replace(",", ""))
            value = BEYOND[words](int(number) if number.is_integer() else number)
            (problem,) = [
                line
                for line in problems_of("quickstart", [f"{name}={value}"])
                if line.startswith(f"--set: {name}: must be")
            ]
            assert f"but is {value}" in problem or "whole number" in problem
            tried += 1
    assert tried > 30


def test_choices_are_listed_as_the_reader_takes_them():
    assert KEYS["model.norm"].allowed == "post or pre"
    assert KEYS["validation.bleu"].allowed == "beam, greedy or off"
    for name in ("model.norm", "validation.bleu", "model.tied_embeddings", "tokenizer.algorithm"):
        for choice in re.split(", | or ", KEYS[name].allowed):
            assert value_at(read_recipe("quickstart", [f"{name}={choice}"]).recipe, name) == choice


@given(recipe=recipes())
@settings(
    max_examples=10,
    phases=[Phase.generate],
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_recipe_with_comments_reads_back_equal(recipe, tmp_path):
    path = tmp_path / "commented.yaml"
    path.write_bytes(with_comments(recipe).encode())
    assert read_recipe(str(path)).recipe == recipe


@pytest.mark.parametrize("name", ["big", "multi30k-bpe-en-de"])
def test_comments_explain_every_key_above_it(name):
    lines = with_comments(read_recipe(name).recipe).splitlines()
    assert max(map(len, lines)) <= 100
    comment, explained = "", set()
    for line in lines:
        text = line.strip().removeprefix("- ")
        if text.startswith("#"):
            comment += text.removeprefix("#")
        elif text:
            key = text.partition(":")[0]
            described = [k for k in KEYS.values() if k.name.rpartition(".")[2] == key]
            said = " ".join(comment.split())
            assert any(
                said.startswith(k.description)
                and ("section" in k.allowed or said.endswith(f"[{limits_of(k)}]"))
                for k in described
            ), line
            explained.add(key)
            comment = ""
    # The recipe has no treebank, stages, guided_alignment or language model, and its corpora have
    # no scores.
    in_null = {"extends", *TreebankConfig.model_fields, *Scores.model_fields}
    in_null |= {*Stage.model_fields, *Until.model_fields, "decay_steps", "layer", "head"}
    in_null |= TeacherConfig.model_fields.keys()
    # Also keys of validation, training and other sections.
    elsewhere = {"patience", "decay_steps", "model", "temperature"}
    names = {name.rpartition(".")[2] for name in KEYS}
    assert explained == names - in_null | elsewhere


def test_comments_explain_the_keys_of_the_first_set_of_a_list():
    sets = "[{name: a, source: b, target: c}, {name: d, source: e, target: f}]"
    lines = with_comments(read_recipe("base", [f"data.test={sets}"]).recipe).splitlines()
    first, second = (lines.index(f"    - source: {source}") for source in "be")
    key = KEYS["data.test.source"]
    assert lines[first - 1] == f"    # {key.description} [{limits_of(key)}]"
    assert lines[second - 1] == "      name: a"
