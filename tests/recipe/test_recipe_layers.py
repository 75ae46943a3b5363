"""A recipe over its parent and --set over both: what is inherited, replaced and refused."""

import pytest

from nmt_cli.recipe.reading.reader import read_recipe
from tests.recipe.conftest import problems_of


def test_a_child_shows_only_what_it_changes(write):
    write("extends: quickstart\nmodel: {num_layers: 2, dropout: 0.3}\n", "parent.yaml")
    child = write("extends: parent.yaml\ndescription: other\nmodel:\n  num_layers: 3\n")
    recipe = read_recipe(child).recipe
    assert (recipe.description, recipe.model.num_layers, recipe.model.dropout) == ("other", 3, 0.3)
    assert recipe.data == read_recipe(child.replace("r.yaml", "parent.yaml")).recipe.data


def test_lists_are_replaced_whole(write):
    write("extends: quickstart\n", "parent.yaml")
    child = write("extends: ./parent.yaml\ndata:\n  train:\n    - {source: x, target: y}\n")
    assert [str(corpus.source) for corpus in read_recipe(child).recipe.data.train] == ["x"]
    child = write("extends: ./parent.yaml\ndata:\n  train:\n    - {source: x}\n")
    assert problems_of(child)[0].startswith(f"{child}:4: data.train.0.target: is missing")


def test_one_alternative_replaces_the_parents_other(write):
    write("extends: quickstart\nvalidation: {every_steps: 7}\n", "parent.yaml")
    child = write("extends: ./parent.yaml\nvalidation: {every_epochs: 2}\ntokenizer: {model: m}\n")
    recipe = read_recipe(child, ["checkpoints.every_epochs=3"]).recipe
    assert (recipe.validation.every_steps, recipe.validation.every_epochs) == (None, 2)
    assert recipe.checkpoints.every_steps is None
    assert recipe.tokenizer.vocabulary_size is None


def test_problems_of_a_parent_are_named_in_the_parents_file(write):
    parent = write("extends: quickstart\nmodel:\n  d_ff: x\n", "parent.yaml")
    child = write("extends: ./parent.yaml\nmodel:\n  d_model: y\n")
    assert problems_of(child) == [
        f"{parent}:3: model.d_ff: must be a whole number in plain digits, but is x",
        f"{child}:3: model.d_model: must be a whole number in plain digits, but is y",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("extends: bsae", "extends: bsae is not a shipped recipe ("),
        ("extends: [base, big]", "extends: must name one recipe, but is a list"),
        ("extends:", "extends: must name one recipe, but is null"),
        ("extends: ./none.yaml", "none.yaml does not exist"),
        ("extends: ./", "is a directory"),
        ("extends: r.yaml", "r.yaml is its own ancestor"),
        ("extends: ../../../$HOME.yaml", "does not exist"),
        ('extends: "a\\0.yaml"', "extends: must name one recipe"),
    ],
)
def test_bad_parents_are_named_at_the_line(write, line, message):
    path = write(f"# comment\n{line}\n")
    (problem,) = problems_of(path)
    assert problem.startswith(f"{path}:2: extends: ")
    assert message in problem


def test_circles_of_parents_are_refused(write):
    write("extends: ./b.yaml\n", "a.yaml")
    write("extends: ./c.yaml\n", "b.yaml")
    write("extends: ./a.yaml\n", "c.yaml")
    path = write("extends: ./a.yaml\n")
    assert "a.yaml is its own ancestor" in problems_of(path)[0]


def test_long_chains_of_parents_are_refused(write):
    for index in range(40):
        write(f"extends: ./r{index + 1}.yaml\n", f"r{index}.yaml")
    assert "more than 20 recipes" in problems_of(write("extends: ./r0.yaml\n"))[0]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("training.seed", "--set: training.seed: has no value; write --set training.seed=value"),
        ("max_steps: 5", "--set: max_steps: 5: has no =; write --set training.max_steps=5"),
        ("lr 5e-4", "--set: lr 5e-4: has no =; write --set training.peak_learning_rate=5e-4"),
        (
            "adam_betas: [0.8, 0.9]",
            "--set: adam_betas: [0.8, 0.9]: has no =; write --set 'training.adam_betas=[0.8, 0.9]'",
        ),
        ("a: 5", "--set: a: 5: has no =; write --set a=5"),
        ("=3", "--set: '': is not a key; write --set section.key=value"),
        ("a..b=3", "--set: a..b: is not a key; write --set section.key=value"),
        ("extends=big", "--set: extends: only a file can name its parent"),
        ("data.train=[", "--set: data.train: not YAML: "),
        ("data.train=[{source: a, source: b}]", "--set: data.train: is given twice"),
        ("training.seed=[&a 1]", "--set: training.seed: anchors and aliases"),
        ("training.adam_betas=[0.9, 2]", "--set: training.adam_betas.1: must be less than 1"),
        ("training.seed.x=1", "--set: training.seed: must be a whole number"),
        ("training=1", "--set: training: must be a section with keys of tokens_per_step"),
        ("description=\udcff", "--set: description: is not UTF-8 text"),
    ],
)
def test_overrides_go_through_the_same_checks(override, problem):
    assert any(line.startswith(problem) for line in problems_of("quickstart", [override]))


def test_overrides_are_taken():
    recipe = read_recipe(
        "quickstart",
        [
            "training.adam_epsilon=1e-7",
            "training.adam_betas=[0.8, 0.9]",
            "data.source_language=no",
            "model={num_layers: 2, d_ff: 8}",
            "description=a: b # c",
            "tokenizer.user_defined_symbols=['@@', \"(S\"]",
            "data.test=",
            "data.prepared=@x/=y",
        ],
    ).recipe
    assert recipe.training.adam_epsilon == 1e-7
    assert recipe.training.adam_betas == (0.8, 0.9)
    assert recipe.data.source_language == "no"
    assert (recipe.model.num_layers, recipe.model.d_ff) == (2, 8)
    assert recipe.description == "a: b # c"
    assert recipe.tokenizer.user_defined_symbols == ("@@", "(S")
    assert recipe.data.test is None
    assert str(recipe.data.prepared) == "@x/=y"


def test_of_several_overrides_of_a_key_the_last_one_counts():
    def test_of(*overrides):
        tests = read_recipe("quickstart", overrides).recipe.data.test_sets
        return next(((str(test.source), str(test.target)) for test in tests), None)

    seeds = [f"training.seed={seed}" for seed in (3, 1, 2)]
    assert read_recipe("quickstart", seeds).recipe.training.seed == 2
    assert test_of("data.test=", "data.test.source=x", "data.test.target=y") == ("x", "y")
    assert test_of("data.test.source=x", "data.test=") is None
    assert test_of("data.test.source=x", "data.test={source: a, target: b}") == ("a", "b")
    assert test_of("data.test={source: a, target: b}", "data.test.source=x") == ("x", "b")
    wrong = ["training.seed=no", "model={d_ff: 8, d_modle: 2}", "model={d_ff: 8}"]
    assert len(problems_of("quickstart", wrong)) == 1
    assert read_recipe("quickstart", [*wrong, "training.seed=7"]).recipe.model.d_ff == 8


def test_an_entry_of_a_list_that_another_override_gives_is_refused():
    overrides = ["data.train=[{source: a, target: b}]", "data.train.0.weight=2"]
    assert problems_of("quickstart", overrides) == [
        "--set: data.train.0.weight: is an entry of data.train, which another --set gives; write "
        "it there"
    ]
    (corpus,) = read_recipe("quickstart", overrides[::-1]).recipe.data.train
    assert (str(corpus.source), corpus.weight) == ("a", 1)


def test_an_override_names_an_entry_of_a_list_by_its_number(write):
    path = write(
        "extends: quickstart\ndata:\n  train:\n    - {source: a, target: b}\n"
        "    - source: c\n      target: d\n      weight: 9\n"
    )
    overrides = ["data.train.1.weight=2", "data.train.0.source=x"]
    first, second = read_recipe(path, overrides).recipe.data.train
    assert (str(first.source), str(first.target), first.weight) == ("x", "b", 1)
    assert (str(second.source), str(second.target), second.weight) == ("c", "d", 2)
    assert problems_of(path, ["data.train.1.weight=-1"]) == [
        "--set: data.train.1.weight: must be at least 0, but is -1"
    ]
    assert problems_of(path, ["data.train.2.weight=1"]) == [
        "--set: data.train.2.weight: data.train has 2 entries, numbered from 0, so there is no "
        "entry 2; give another number, or the whole list as --set 'data.train=[...]'"
    ]


def test_only_an_override_numbers_the_entries_of_a_list(write):
    path = write("extends: quickstart\ndata:\n  train: {0: {weight: 2}}\n")
    assert problems_of(path) == [f"{path}:3: data.train: must be a list, but is a section"]
    assert problems_of("quickstart", ["data.train={}"]) == [
        "--set: data.train: must be a list, but is a section"
    ]


def test_a_conflict_of_two_files_names_the_line_of_each(write):
    parent = write("extends: quickstart\nvalidation:\n  best_by: bleu\n", "parent.yaml")
    child = write("extends: ./parent.yaml\ndescription: x\nvalidation:\n  bleu: off\n")
    assert problems_of(child) == [
        f"{parent}:3: validation.best_by: must be loss if bleu is off, but is bleu; "
        f"give best_by: loss, or bleu: beam (validation.bleu comes from {child}:4)"
    ]
    assert problems_of(parent, ["validation.bleu=off"]) == [
        f"{parent}:3: validation.best_by: must be loss if bleu is off, but is bleu; "
        "give best_by: loss, or bleu: beam (validation.bleu comes from --set)"
    ]
