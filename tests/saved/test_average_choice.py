"""Which checkpoints an average is made of."""

from pathlib import Path

import pytest

from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.shipped import shipped_recipes
from nmt_cli.saved.checkpoints import Checkpoint, to_average

# Steps of an epoch of the text of recipes without an interval in steps. It has 29,000 pairs, and
# so many target tokens that 4,500 steps of 4,096 are 37 epochs.
STEPS_OF_EPOCH = {1280: 390, 4096: 121, 8192: 54}


def checkpoints_of(recipe, **facts):
    """All that a training makes, also those that it does not keep."""
    end, every = recipe.training.max_steps, recipe.checkpoints.every_steps
    if every is None:
        every = STEPS_OF_EPOCH[recipe.training.tokens_per_step] * recipe.checkpoints.every_epochs
    steps = sorted({*range(every, end + 1, every), end})
    return [Checkpoint(Path(f"{step}"), step, {"kind": "regular", **facts}) for step in steps]


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_average_as_many_as_they_keep(name):
    recipe = read_recipe(name).recipe
    made = checkpoints_of(recipe)
    found = to_average(made, recipe)
    assert found.chosen == made[-recipe.checkpoints.keep_for_average :]
    assert not found.too_early
    assert found.remark(Path("run")) == ""


def chosen_steps(warmup, end, every, keep=10, **facts):
    overrides = {
        "training.warmup_steps": warmup,
        "training.max_steps": end,
        "checkpoints.every_epochs": "null",
        "checkpoints.every_steps": every,
        "checkpoints.keep_for_average": keep,
    }
    recipe = read_recipe("small", [f"{key}={value}" for key, value in overrides.items()]).recipe
    made = checkpoints_of(recipe, **facts)
    found = to_average(made, recipe)
    assert found.available == made[-keep:]
    return [checkpoint.step for checkpoint in found.chosen]


@pytest.mark.parametrize(
    ("warmup", "end", "every", "expected"),
    [
        (400, 1200, 120, [960, 1080, 1200]),  # the last quarter
        (100, 1200, 120, [960, 1080, 1200]),
        (100, 1200, 100, [900, 1000, 1100, 1200]),
        (400, 9996, 1666, [8330, 9996]),
        (400, 10_000, 1000, [5000, 6000, 7000, 8000, 9000, 10_000]),  # long: the last half
        (8000, 10_000, 1000, [8000, 9000, 10_000]),  # nothing of the warm-up
        (1100, 1200, 120, [1200]),
        (4000, 1200, 120, [1200]),  # but at least the last
        (1, 1, 1, [1]),
    ],
)
def test_early_checkpoints_are_left_out(warmup, end, every, expected):
    assert chosen_steps(warmup, end, every) == expected


def test_few_are_kept_all():
    assert chosen_steps(400, 1200, 120, keep=2) == [1080, 1200]


def test_a_training_that_began_from_a_model_has_no_early_ones():
    assert len(chosen_steps(400, 1200, 120, initialized_from={"path": "runs/old"})) == 10


def test_checkpoints_for_safety_neither_count_nor_enter():
    recipe = read_recipe("quickstart").recipe
    made = checkpoints_of(recipe)
    safety = made[-1]._replace(step=made[-1].step - 1, manifest={"kind": "safety"})
    assert safety not in to_average([*made[:-1], safety, made[-1]], recipe).available


def test_the_remark_names_what_is_left_out_and_the_command_that_averages_it():
    recipe = read_recipe("small", ["training.warmup_steps=400", "training.max_steps=1200"]).recipe
    found = to_average(checkpoints_of(recipe)[-4:], recipe)
    assert found.remark(Path("runs/my own")) == (
        "Left out of the average, as too early in a training of 1,200 steps "
        "(checkpoints.keep_for_average): step 847. "
        "To average all 4: nmt-cli average-checkpoints 'runs/my own' --last 4 --force"
    )
