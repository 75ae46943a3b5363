"""Ranks that would train something else, or in another way, do not train together."""

import re
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.hardware.ranks import RanksDifferError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.options import TrainOptions
from nmt_cli.training.starting import prepare_training
from tests.forked_ranks import run_ranks
from tests.trainers import CPU

STAGES = "data.stages=[{weights: {a: 1}, until: {steps: 2}}, {weights: {a: 2}}]"
# What the recipes of the others and of one rank have, and what is then named.
RECIPES = [
    ("", "data.train.0.weight=3", "data.train.0.weight (1.0 and 3.0)"),
    ("", "data.mixing.temperature=5", "data.mixing.temperature (null and 5.0)"),
    ("", "data.train.0.augment.merge=1", "data.train.0.augment.merge (0.0 and 1.0)"),
    (STAGES, STAGES.replace("steps: 2", "steps: 3"), "data.stages.0.until.steps (2 and 3)"),
    (
        STAGES,
        STAGES.replace("a: 2", "a: 0.5"),
        'data.stages.1.weights ({"a": 2.0} and {"a": 0.5})',
    ),
    (
        "",
        "training.seed=2 model.dropout=0.2 training.max_steps=13 decoding.beam_size=3",
        "model.dropout (0.1 and 0.2), training.max_steps (12 and 13), training.seed (1 and 2) and "
        "1 more",
    ),
]
OPTIONS: dict[str, dict[str, Any]] = {
    "--precision (fp32 and bf16)": {"precision": "bf16"},
    "--deterministic (false and true)": {"is_deterministic": True},
    "--exchange (fp32 and bf16)": {"exchange": "bf16"},
    "--max-tokens-per-device (not given and 100)": {"limited_by": "option"},
    "--init-from (not given and given)": {"init_from": Path("x")},
}


def start(toy, folder, ranks, recipe, *, limited_by="estimate", init_from=None, **machine):
    """Return what prepare_training raises on a rank, as text; None if it raises nothing."""
    cut = BatchCut(100, ranks.size, limited_by)
    own = CPU._replace(ranks=ranks, **machine)
    try:
        prepare_training(
            recipe, toy.corpus, folder, own, cut, options=TrainOptions(init_from=init_from)
        )
    except RanksDifferError as error:
        return str(error)
    return None


def recipe_of(toy, overrides=""):
    every = ["data.train.0.name=a", "training.tokens_per_step=100"]
    given = [overrides] if "stages" in overrides else overrides.split()
    return read_recipe(str(toy.recipe_path), [*every, *given]).recipe


@pytest.mark.parametrize(("of_main", "of_other", "named"), RECIPES)
def test_ranks_of_other_recipes_end_with_the_same_line(toy, tmp_path, of_main, of_other, named):
    main, other = recipe_of(toy, of_main), recipe_of(toy, of_other)
    found = run_ranks(
        3, tmp_path, lambda ranks: start(toy, tmp_path, ranks, (main, main, other)[ranks.rank])
    )
    expected = f"rank 0 and rank 2 differ in {named}; make them the same on all nodes, and "
    assert found == [f"{expected}start again."] * 3


@pytest.mark.parametrize("named", OPTIONS)
def test_ranks_of_other_options_end_with_the_same_line(toy, tmp_path, named):
    def work(ranks):
        options = OPTIONS[named] if ranks.rank == 1 else {}
        return start(toy, tmp_path, ranks, recipe_of(toy), **options)

    (first, second) = run_ranks(2, tmp_path, work)
    assert first == second
    assert first.startswith(f"rank 0 and rank 1 differ in {named}; ")


def test_ranks_of_other_text_end_and_those_of_other_paths_train(toy, tmp_path):
    recipe = recipe_of(toy)
    train = recipe.data.train[0].model_copy(update={"source": tmp_path / "elsewhere.en"})
    data = recipe.data.model_copy(update={"train": (train,), "prepared": tmp_path / "elsewhere"})
    elsewhere = recipe.model_copy(update={"data": data})
    files = {name: {**facts} for name, facts in toy.corpus.manifest["files"].items()}
    files["recipe.yaml"]["sha256"] = "that of other paths"

    def work(ranks, changed):
        if ranks.rank == 0:
            return start(toy, tmp_path, ranks, recipe)
        corpus = toy.corpus._replace(manifest={**toy.corpus.manifest, "files": files | changed})
        return start(toy._replace(corpus=corpus), tmp_path, ranks, elsewhere)

    assert run_ranks(2, tmp_path, lambda ranks: work(ranks, {})) == [None, None]
    changed = {"train.target.tokens": {"sha256": "f" * 64}}
    found = run_ranks(2, tmp_path, lambda ranks: work(ranks, changed))
    named = r"rank 0 and rank 1 differ in the prepared train\.target\.tokens; make"
    assert all(re.match(named, each) for each in found)
