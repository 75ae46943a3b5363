"""A recipe that makes fewer checkpoints than its average wants is known from its numbers."""

import re

import pytest

from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.shipped import shipped_recipes
from nmt_cli.saved.checkpoints import shortage_of_checkpoints


def shortage(*overrides):
    return shortage_of_checkpoints(read_recipe("quickstart", overrides).recipe)


def settings(max_steps, every, keep):
    values = {
        "training.max_steps": max_steps,
        "checkpoints.every_steps": every,
        "checkpoints.keep_for_average": keep,
    }
    return [f"{key}={value}" for key, value in values.items()]


def saved_by_counting(max_steps, every):
    """Save at the interval and at the end, as training does."""
    return len({*range(every, max_steps + 1, every), max_steps})


def test_a_warning_comes_exactly_where_counting_finds_too_few():
    for max_steps in range(1, 8):
        for every in (1, 2, 3, 5):
            for keep in (1, 3):
                made = saved_by_counting(max_steps, every)
                text = shortage(*settings(max_steps, every, keep))
                assert bool(text) == (made < keep), (max_steps, every, keep)
                assert not text or f"make at most {made} checkpoint" in text


def test_each_remedy_helps():
    text = shortage(*settings(12, 5, 5))
    assert text == (
        "checkpoints.keep_for_average is 5, but training.max_steps 12 and checkpoints.every_steps "
        "5 make at most 3 checkpoints, the final one included; lower checkpoints.every_steps to 2 "
        "or checkpoints.keep_for_average to 3."
    )
    for key, value in re.findall(r"(checkpoints\.\w+) to (\d+)", text):
        others = [s for s in settings(12, 5, 5) if not s.startswith(key)]
        assert shortage(*others, f"{key}={value}") == ""


@pytest.mark.parametrize(
    ("overrides", "most"),
    [
        (["training.max_epochs=4", "checkpoints.every_epochs=2"], 2),
        (["training.max_epochs=5", "checkpoints.every_epochs=2"], 3),
        (["training.max_steps=null", "training.max_epochs=3", "checkpoints.every_epochs=1"], 3),
        (["training.max_steps=3", "checkpoints.every_epochs=1"], 3),  # an epoch has a step
        (["training.max_steps=null", "training.max_epochs=1", "checkpoints.every_steps=9"], None),
        (["training.max_steps=99", "checkpoints.every_epochs=1"], None),
    ],
)
def test_epochs_bound_the_count_only_where_it_is_certain(overrides, most):
    text = shortage("checkpoints.keep_for_average=4", *overrides)
    assert text == "" if most is None else f"make at most {most} checkpoints" in text


def test_shipped_recipes_make_enough():
    assert not any(shortage_of_checkpoints(read_recipe(name).recipe) for name in shipped_recipes())
