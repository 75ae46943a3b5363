"""Reading recipes: the traps of YAML, names and paths, and a recipe written and read again."""

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt_cli.recipe.keys import keys_of_text
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe, recipe_hash
from nmt_cli.recipe.reading.shipped import shipped_recipes
from nmt_cli.recipe.schema import Recipe
from tests.recipe.conftest import problems_of

MINIMAL = """\
description: a test
data:
  source_language: en
  target_language: de
  train:
    - {source: a.en, target: a.de}
  validation: {source: b.en, target: b.de}
  test: {source: c.en, target: c.de}
tokenizer:
  vocabulary_size: 500
"""


@pytest.fixture(scope="module")
def minimal(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "r.yaml"
    path.write_text(MINIMAL)
    return str(path)


def value_at(recipe, key):
    for step in key.split("."):
        recipe = getattr(recipe, step)
    return recipe


REFUSED = object()
FLOAT, WHOLE, FLAG = "training.adam_epsilon", "training.max_steps", "data.normalization.nfc"
CODE, OPTIONAL, TEXT = "data.source_language", "training.clip_norm", "description"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        *[(FLOAT, text, 1e-9) for text in ("1e-9", "1E-9", "1.0e-9", ".1e-8", "'1e-9'", "+1e-9")],
        *[(FLOAT, text, 1.0) for text in ("1", "1.", "1e0", "1e+0", "1.0")],
        *[
            (FLOAT, text, REFUSED)
            for text in (
                *("1_0e-9", "12:30", "12:30:45", "017", "0x1", "0o1", "1e400", "1,5", "٣", ".inf"),
                *("-.inf", ".nan", "nan", "true", "no", "2024-01-01", "null", "~", "", "-1", "0"),
            )
        ],
        *[(WHOLE, text, 5) for text in ("5", "+5", "'5'")],
        *[
            (WHOLE, text, REFUSED)
            for text in (
                *("5.0", "5e0", "1e5", "017", "0o17", "0x1F", "1_000", "1,000", "12:30", "yes"),
                *("true", "null", "", "-5", "0", "1e30", "9" * 5000, "٣", ".5"),
            )
        ],
        (FLAG, "true", True),
        (FLAG, "false", False),
        *[(FLAG, text, REFUSED) for text in ("yes", "no", "on", "off", "True", "1", "0", "y", "")],
        *[(CODE, text, text) for text in ("no", "NO", "off", "y", "true", "on", "nb-NO")],
        (CODE, "'null'", "null"),
        *[(CODE, text, REFUSED) for text in ("null", "~", "", "1e-9", "en de", "../x", "[en]")],
        *[(OPTIONAL, text, None) for text in ("null", "~", "")],
        *[(OPTIONAL, text, REFUSED) for text in ("'null'", "Null", "none", "''", "None", "off")],
        *[
            (TEXT, text, text)
            for text in ("017", "12:30:45", "2024-01-01", "3.10", "1e-9", "yes", ".inf", "0x1F")
        ],
        *[(TEXT, text, REFUSED) for text in ("null", "", "''", "[a]", "{a: b}")],
    ],
)
def test_yaml_traps(write, key, text, expected):
    steps = key.split(".")
    nested = ":\n".join("  " * depth + step for depth, step in enumerate(steps))
    child = write(f"extends: ./parent.yaml\n{nested}: {text}\n")
    write(MINIMAL, "parent.yaml")
    if expected is REFUSED:
        assert problems_of(child)[0].startswith(f"{child}:{1 + len(steps)}: {key}: must ")
    else:
        value = value_at(read_recipe(child).recipe, key)
        assert value == expected
        assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ":1: a recipe has the keys description, data, tokenizer,"),
        (b"# only a comment\n", ": a recipe has the keys"),
        (b"hello\n", ":1: a recipe has the keys"),
        (b"- a\n", "but this is a list"),
        (b"a: 1\nb: \xe9\n", ":2: not UTF-8 text (byte 0xe9); save it as UTF-8."),
        ("a: 1".encode("utf-16"), ":1: not UTF-8 text (byte 0xff)"),
        (b"\x00" * 100, ":1: not YAML: the character U+0000"),
        (b"a" * 1_000_001, " is larger than 1,000,000 bytes; it is not a recipe file."),
        (b"a: b: c", ":1: not YAML: "),
    ],
)
def test_files_that_are_no_recipe(write, content, message):
    path = write(content)
    (problem,) = problems_of(path)
    assert problem.startswith(path)
    assert message in problem


def test_a_byte_order_mark_is_no_problem(write):
    assert read_recipe(write(b"\xef\xbb\xbf" + MINIMAL.encode())).recipe.description == "a test"


def test_names_and_paths(tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    write(MINIMAL, "mine.yaml")
    assert read_recipe("mine.yaml").name == "mine"
    assert read_recipe("./mine.yaml").recipe.description == "a test"
    assert "for the file of this name write mine.yaml" in problems_of("mine")[0]
    assert "did you mean quickstart?" in problems_of("quikstart")[0]
    plain = [name for name in shipped_recipes() if "/" not in name]
    assert problems_of("zzz") == [
        f"zzz is not a shipped recipe ({', '.join([*plain, 'table3/...', 'table3-small/...'])}); "
        "a file's name ends in .yaml or has a slash in it."
    ]
    assert problems_of("none.yaml") == [
        f"none.yaml does not exist; the path is relative to {Path.cwd()}."
    ]
    assert problems_of("./") == [". is a directory; name a recipe file in it."]
    assert "cannot be read" in problems_of("x" * 5000 + ".yaml")[0]
    assert problems_of("\x1b[31m")[0].startswith("'\\x1b[31m' is not a shipped recipe")


@pytest.mark.parametrize(
    "change",
    [
        "data.test={source: x, target: y}",
        "data.test=",
        "data.train.0.weight=2",
        "data.train.0.name=x",
        "data.mixing.temperature=5",
        "data.stages=[{until: {steps: 9}}, {}]",
        "data.max_length=1024",  # the default, written out
        "tokenizer.sampling=0.1",
        "model.d_ff=8",
    ],
)
def test_what_preprocess_does_not_depend_on_prepares_nothing_anew(write, change, monkeypatch):
    write(Path("recipes/base.yaml").read_text(), "a.yaml")
    child = write("extends: ./a.yaml\n", "b.yaml")
    monkeypatch.chdir(Path(child).parent)
    assert str(read_recipe("./b.yaml", [change]).prepared) == "prepared/a"
    prepared = keys_of_text(read_recipe("./a.yaml").recipe)
    assert keys_of_text(read_recipe("./b.yaml", [change]).recipe) == prepared


@pytest.mark.parametrize(
    "change",
    [
        "data.max_length=9",
        "tokenizer.vocabulary_size=9000",
        "data.train.0.source=x",
        "data.train.0.tag=<x>",
        "data.validation.tag=<x>",
    ],
)
def test_what_preprocess_depends_on_is_prepared_anew(write, change, monkeypatch):
    write(Path("recipes/base.yaml").read_text(), "a.yaml")
    child = write("extends: ./a.yaml\n", "b.yaml")
    monkeypatch.chdir(Path(child).parent)
    assert str(read_recipe("./b.yaml", [change]).prepared) == "prepared/b"


def test_prepared_folder_is_the_furthest_ancestors_with_the_same_text(write):
    write(MINIMAL, "a.yaml")
    write("extends: ./a.yaml\nmodel: {num_layers: 2}\n", "b.yaml")
    other = write("extends: ./b.yaml\ntraining: {seed: 2}\n", "c.yaml")
    assert str(read_recipe(other).prepared) == "prepared/a"
    assert str(read_recipe(other, ["data.max_length=9"]).prepared) == "prepared/c"
    assert str(read_recipe(other, ["data.prepared=x/y"]).prepared) == "x/y"
    other = write("extends: ./b.yaml\ntokenizer: {vocabulary_size: 600}\n", "d.yaml")
    assert str(read_recipe(other).prepared) == "prepared/d"
    assert str(read_recipe(write("extends: ./d.yaml\n", "e.yaml")).prepared) == "prepared/d"
    other = write("extends: ./d.yaml\ntokenizer: {sampling: 0.1}\n", "f.yaml")
    assert str(read_recipe(other).prepared) == "prepared/d"
    assert str(read_recipe("big").prepared) == "prepared/base"


def test_a_recipes_hash_depends_on_all_that_training_reads(minimal):
    before = recipe_hash(read_recipe(minimal).recipe)
    same = ["data.prepared=x", "data.test={source: x, target: y}"]
    assert recipe_hash(read_recipe(minimal, same).recipe) == before
    for other in ("data.max_length=9", "model.d_ff=8", "decoding.beam_size=5"):
        assert recipe_hash(read_recipe(minimal, [other]).recipe) != before


# Any recipe comes back from its own YAML as it was.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
words = names.filter(lambda text: not any(character.isspace() for character in text))
rates = st.floats(0, 1, exclude_max=True)
pairs = st.fixed_dictionaries({"source": names, "target": names})
set_names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{,39}", fullmatch=True)
sets = pairs | st.lists(
    st.fixed_dictionaries({"name": set_names, "source": names, "target": names}),
    min_size=1,
    max_size=3,
    unique_by=lambda files: files["name"],
)


@st.composite
def recipes(draw):
    corpora = st.lists(
        st.fixed_dictionaries({"source": names, "target": names, "weight": st.floats(1e-9, 1e6)}),
        min_size=1,
        max_size=3,
    )
    return Recipe.model_validate(
        {
            "description": draw(texts.filter(bool)),
            "data": {
                "source_language": draw(st.sampled_from(["no", "en", "y", "null", "true", "E1"])),
                "target_language": "off",
                "train": draw(corpora),
                "validation": draw(sets),
                "test": draw(st.none() | sets),
                "normalization": {"nfc": draw(st.booleans())},
                "filters": {"max_length_ratio": draw(st.none() | st.floats(1, 1e6))},
                "prepared": draw(st.none() | names),
            },
            "tokenizer": {
                "vocabulary_size": draw(st.integers(1000, 10**6)),
                "user_defined_symbols": draw(
                    st.lists(words.filter(lambda w: w not in ("<s>", "</s>", "<unk>")), unique=True)
                ),
            },
            "model": {
                "d_model": 2 * draw(st.integers(1, 9)),
                "num_heads": 1,
                "dropout": draw(rates),
            },
            "training": {
                "peak_learning_rate": draw(st.none() | st.floats(1e-30, 100)),
                "adam_betas": [draw(rates), draw(rates)],
                "seed": draw(st.integers(0, 2**63 - 1)),
            },
            "checkpoints": {"every_epochs": draw(st.none() | st.integers(1, 10**9))},
        }
    )


@given(recipe=recipes())
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_dumped_recipe_reads_back_equal(recipe, tmp_path):
    path = tmp_path / "dumped.yaml"
    path.write_bytes(dump_recipe(recipe).encode())
    again = read_recipe(str(path)).recipe
    assert again == recipe
    assert dump_recipe(again) == dump_recipe(recipe)
    assert math.isfinite(again.model.dropout)


def test_a_runs_own_recipe_means_the_run_also_when_it_is_copied(tmp_path, minimal):
    recipe = read_recipe(minimal).recipe
    copied = tmp_path / "recipe.yaml"
    copied.write_text(dump_recipe(recipe, run="first run"))
    again = read_recipe(str(copied))
    assert (again.name, str(again.prepared)) == ("first run", "prepared/first run")
    assert again.recipe == recipe
    mine = copied.rename(tmp_path / "mine.yaml")
    assert read_recipe(str(mine)).name == "mine"


@pytest.mark.parametrize("run", ["../other", "a/../b", "a//b", "/a", ".", "..", "", "line\nbreak"])
def test_a_copied_recipe_names_no_other_folder(tmp_path, minimal, run):
    copied = tmp_path / "recipe.yaml"
    copied.write_text(dump_recipe(read_recipe(minimal).recipe, run=run))
    assert read_recipe(str(copied)).name == "recipe"


def test_the_recipe_of_a_model_means_the_run_that_it_lies_in(tmp_path, minimal):
    folders = ("a", "a/average", "a/checkpoints/step-00000012")
    for folder, beside in zip(folders, ("sessions.jsonl", *2 * ["manifest.json"]), strict=True):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "recipe.yaml").write_text(MINIMAL)
        assert read_recipe(str(tmp_path / folder / "recipe.yaml")).name == "recipe"
        (tmp_path / folder / beside).touch()
        assert read_recipe(str(tmp_path / folder / "recipe.yaml")).name == "a"


def test_a_runs_own_recipe_keeps_the_folders_of_its_name(tmp_path, minimal):
    copied = tmp_path / "recipe.yaml"
    copied.write_text(dump_recipe(read_recipe(minimal).recipe, run="table3/c-2-layers"))
    again = read_recipe(str(copied))
    assert (again.name, str(again.prepared)) == ("table3/c-2-layers", "prepared/table3/c-2-layers")
