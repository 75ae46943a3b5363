"""Shares of corpora: weights by temperature and in stages, and what contradicts them."""

import pytest

from nmt_cli.recipe.keys import Change, ChangeKind, changed_keys
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from tests.recipe.conftest import problems_of

SIZES = (1000, 200, 50, 0)
PARENT = """\
extends: quickstart
data:
  train:
    - {source: a, target: b, name: big, tag: <x>}
    - {source: a, target: b, name: small, tag: <y>}
    - {source: a, target: b, name: other, tag: <y>}
    - {source: a, target: b}
validation: {every_steps: 100}
"""


@pytest.fixture
def read(write):
    path = write(PARENT)
    return lambda *overrides: read_recipe(path, overrides).recipe


@pytest.fixture
def refused(write):
    path = write(PARENT)
    return lambda *overrides: problems_of(path, overrides)


def pairs(recipe, stage=0):
    """Return the pairs of each corpus in an epoch."""
    weights = recipe.data.weights(SIZES, stage)
    return [weight * size for weight, size in zip(weights, SIZES, strict=True)]


@pytest.mark.parametrize("temperature", [1, 1.5, 5, 100])
def test_temperature_gives_each_corpus_a_root_of_its_size_and_keeps_the_whole(read, temperature):
    found = pairs(read(f"data.mixing.temperature={temperature}"))
    assert sum(found) == pytest.approx(1250)
    for size, share in zip(SIZES, found, strict=True):
        assert (share / found[0]) ** temperature == pytest.approx(size / SIZES[0])


def test_temperature_1_is_exactly_no_mixing(read):
    assert read("data.mixing.temperature=1").data.weights(SIZES)[:3] == [1.0] * 3


def test_temperature_over_tags_takes_the_corpora_of_a_tag_as_one(read):
    big, small, other, empty = pairs(read("data.mixing={temperature: 2, over: tags}"))
    assert big / (small + other) == pytest.approx(2.0)  # the root of 1000 to 250
    assert small / other == pytest.approx(200 / 50)
    assert (empty, big + small + other) == (0, pytest.approx(1250))


@pytest.mark.parametrize("over", ["corpora", "tags"])
def test_temperature_counts_pairs_by_their_weights(read, over):
    """A corpus of weight 0.5 is drawn as often as one with half of its pairs."""
    temperature = f"data.mixing={{temperature: 3, over: {over}}}"
    halved = read(temperature, "data.train.0.weight=0.5")
    by_size = read(temperature).data.weights((500, *SIZES[1:]))
    whole = [weight * size for weight, size in zip(by_size, (500, *SIZES[1:]), strict=True)]
    assert pairs(halved) == pytest.approx(whole)
    once = read("data.mixing.temperature=1", "data.train.0.weight=0.5")
    assert once.data.weights(SIZES) == [0.5, 1.0, 1.0, 0.0]
    without = read(temperature, "data.train.0.weight=0")
    assert pairs(without)[0] == 0
    assert sum(pairs(without)) == pytest.approx(250)
    nothing = [f"data.train.{place}.weight=0" for place in range(4)]
    assert pairs(read(temperature, *nothing)) == [0] * 4


def test_weights_beside_shares_add_further_corpora(read):
    recipe = read("data.stages=[{shares: {big: 60, other: 40}, weights: {small: 0.5}}]")
    assert pairs(recipe) == pytest.approx([0.6 * 1050, 100, 0.4 * 1050, 0])


def test_shares_and_weights_of_a_stage_are_those_of_its_names(read):
    stages = [
        "{shares: {big: 60, other: 40}, until: {epochs: 2}}",
        "{weights: {small: 2.5}, until: {steps: 9}}",
        "{}",
    ]
    recipe = read(f"data.stages=[{', '.join(stages)}]", "data.train.1.weight=3")
    assert pairs(recipe, 0) == pytest.approx([0.6 * 1050, 0, 0.4 * 1050, 0])
    assert pairs(recipe, 1) == [0, 500, 0, 0]
    assert recipe.data.weights(SIZES, 2) == [1, 3, 1, 1]  # of the whole recipe
    by_temperature = read("data.mixing.temperature=3", "data.stages=[{}]")
    assert pairs(by_temperature) == pairs(read("data.mixing.temperature=3"))


def test_a_recipe_with_stages_reads_back_equal(read, write):
    recipe = read("data.stages=[{shares: {big: 1, small: 2}, until: {patience: 2}}, {}]")
    again = read_recipe(write(dump_recipe(recipe), "dumped.yaml")).recipe
    assert again == recipe


def test_numbers_by_name_change_as_one_value(read):
    before, after = (
        read(f"data.stages=[{{shares: {{big: 1, small: {share}}}, until: {{epochs: 2}}}}, {{}}]")
        for share in (2, 3)
    )
    (change,) = changed_keys(before, after)
    old, new = {"big": 1.0, "small": 2.0}, {"big": 1.0, "small": 3.0}
    assert change == Change("data.stages.0.shares", old, new, ChangeKind.DECLARED)


TWICE = "data.stages=[{until: {%s}}, {until: {%s}}, {}]"
WRONG = [
    (
        ["data.train.2.name=big"],
        "data.train.2.name: must not be that of data.train.0.name too: big",
    ),
    (["data.mixing.temperature=0.5"], "data.mixing.temperature: must be at least 1"),
    (
        ["data.mixing.temperature=5", "data.stages=[{weights: {big: 1}}]"],
        "data.mixing.temperature: has no effect, because each of data.stages has shares",
    ),
    (
        ["data.train.1.weight=2", "data.stages=[{weights: {big: 1}}]"],
        "data.train.1.weight: has no effect, because each of data.stages has shares or weights",
    ),
    (
        ["data.mixing.over=tags", "data.train=[{source: a, target: b}]"],
        "data.mixing.over: must be corpora, because no corpus has a tag, but is tags",
    ),
    (
        ["data.stages=[{shares: {bug: 1}}]"],
        "data.stages.0.shares: no corpus of data.train has the name bug; the names are big, small, "
        "other",
    ),
    (["data.stages=[{weights: {big: 0}}]"], "data.stages.0.weights: must leave a corpus with"),
    (["data.stages=[{shares: 3}]"], "data.stages.0.shares: must be a section of names with"),
    (["data.stages=[{weights: {big: x}}]"], "data.stages.0.weights.big: must be a number"),
    (
        ["data.stages=[{shares: {big: 1}, weights: {big: 1}}]"],
        "data.stages.0.weights: must not have big, which has a share",
    ),
    (["data.stages=[{}, {}]"], "data.stages.0.until: is missing, so the stages after it would"),
    (["data.stages=[{until: {steps: 1}}]"], "data.stages.0.until: must be null, because the last"),
    (["data.stages=[{until: {}}, {}]"], "data.stages.0.until.steps: is null, and so are epochs"),
    (
        ["data.stages=[{until: {steps: 1, epochs: 1}}, {}]"],
        "data.stages.0.until.epochs: must be null beside steps; give one of them",
    ),
    (["data.stages=[{untill: {steps: 1}}, {}]"], "data.stages.0.untill: is not a key of a recipe"),
    (
        [TWICE % ("steps: 5", "steps: 5"), "training.max_steps=10"],
        "data.stages.1.until: is never reached, because training.max_steps 10 ends training",
    ),
    (
        [
            TWICE % ("steps: 5", "steps: 5"),
            "training={max_steps: null, max_epochs: 9, schedule: cosine, peak_learning_rate: 1e-3, "
            "warmup_steps: 4, decay_steps: 6}",
        ],
        "data.stages.1.until: is never reached, because a learning rate of 0 at step 10 ends",
    ),
    (
        [TWICE % ("epochs: 1", "epochs: 2"), "training.max_epochs=3"],
        "data.stages.1.until: is never reached, because training.max_epochs 3 ends training",
    ),
    (
        [TWICE % ("steps: 1", "patience: 3"), "validation.patience=3"],
        "data.stages.1.until: is never reached, because validation.patience 3 ends training",
    ),
    (
        [
            TWICE % ("steps: 5", "patience: 2"),
            "training.max_steps=25",
            "validation.every_steps=10",
        ],
        "data.stages.1.until: is never reached, because training.max_steps 25 ends training",
    ),
]


@pytest.mark.parametrize(("overrides", "problem"), WRONG)
def test_what_is_wrong_takes_one_line(refused, overrides, problem):
    (line,) = refused(*overrides)
    assert line.partition(": ")[2].startswith(problem)


def test_ends_that_can_be_reached_are_taken(read):
    read(TWICE % ("steps: 5", "steps: 5"), "training.max_steps=11")
    read(TWICE % ("epochs: 1", "epochs: 2"), "training.max_epochs=4")
    read(TWICE % ("steps: 1", "patience: 3"), "validation.patience=4")
    # An epoch may have one step.
    read(TWICE % ("epochs: 1", "epochs: 8"), "training.max_steps=3", "validation.every_steps=9")
