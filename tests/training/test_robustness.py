"""Changed copies of the validation text are measured as if they were sets with files."""

import json

import numpy as np
import pytest

from nmt_cli.commands import preprocess
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.search import engine
from nmt_cli.training.changed_sets import changed_sets
from nmt_cli.training.validation import Validator
from tests.conftest import RECIPE, ToyExperiment, write_pairs
from tests.fake_models import CopyModel
from tests.trainers import new_trainer

KINDS = ["upper_case", "typos"]
ROBUSTNESS = f"validation.robustness={KINDS}".replace("'", "")
PIECES = "type: whitespace", "vocabulary_size: 300"


def prepared(folder, name, *overrides):
    path, output = folder / "toy.yaml", folder / name
    preprocess.run(recipe=str(path), overrides=overrides, output=output, workers=1)
    recipe = read_recipe(str(path), overrides).recipe
    return ToyExperiment(path, recipe, output, open_prepared(output, recipe, ""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    logs.configure(quiet=True)
    folder = tmp_path_factory.mktemp("robustness")
    write_pairs(folder, "train", 150, seed=1)
    write_pairs(folder, "validation", 20, seed=2)
    (folder / "toy.yaml").write_text(RECIPE.format(folder=folder).replace(*PIECES))
    return folder


@pytest.fixture(scope="module")
def robust(folder):
    return prepared(folder, "robust", ROBUSTNESS)


def lines_of(folder, name):
    return [(folder / f"{name}.{side}").read_text().splitlines() for side in ("en", "de")]


def test_the_copies_are_changed_as_training_text_is(folder, robust):
    plain = lines_of(folder, "validation")
    upper, typos = changed_sets(robust.recipe, robust.corpus)
    assert [upper.name, typos.name] == KINDS
    assert [upper.lines("source"), upper.lines("target")] == [
        [line.upper() for line in side] for side in plain
    ]
    assert typos.lines("target") == plain[1]
    for line, before in zip(typos.lines("source"), plain[0], strict=True):
        words = zip(line.split(), before.split(), strict=True)
        assert any(word != own for word, own in words)


def test_copies_keep_the_tag_of_the_text(folder):
    tags = "data.train.0.tag=<bt>", "data.validation.tag=<bt>"
    tagged = prepared(folder, "tagged", ROBUSTNESS, *tags)
    upper, _ = changed_sets(tagged.recipe, tagged.corpus)
    (sources, _), tag = lines_of(folder, "validation"), tagged.corpus.tokenizer.encode("<bt>")
    assert upper.lines("source") == [f"<bt> {line.upper()}" for line in sources]
    first = upper.source.starts_of(np.arange(len(upper.source)))
    assert upper.source.read(first, np.ones_like(first)).tolist() == tag * len(first)


def measured(experiment, run_dir):
    engine = new_trainer(experiment, run_dir).training.engine
    found = Validator(experiment.recipe, experiment.corpus, engine).validate(60, StopRequest())
    assert found is not None
    return found


def test_each_copy_is_measured_as_a_set_with_files(folder, robust, tmp_path, monkeypatch):
    size = robust.corpus.tokenizer.size
    monkeypatch.setattr(engine, "step_model", lambda *_: CopyModel(size))
    sets = []
    for copy in changed_sets(robust.recipe, robust.corpus):
        for side, language in zip(SIDES, ("en", "de"), strict=True):
            (folder / f"{copy.name}.{language}").write_text("\n".join(copy.lines(side)) + "\n")
    for name in ["validation", *KINDS]:
        sets.append(f"{{name: of-{name}, source: {folder}/{name}.en, target: {folder}/{name}.de}}")
    files = prepared(folder, "files", f"data.validation=[{', '.join(sets)}]")
    found, expected = measured(robust, tmp_path / "a"), measured(files, tmp_path / "b")
    assert [each.name for each in found.sets] == [None, *KINDS]
    for each, other in zip(found.sets, expected.sets, strict=True):
        assert each == other._replace(name=each.name)
    assert found.quality == expected.quality
    assert len({each.loss for each in found.sets}) == 3
    record = found.as_record()
    assert record["sets"].keys() == set(KINDS)
    assert record["sets"]["typos"]["loss"] == expected.sets[2].loss
    assert json.loads(json.dumps(record)) == record


def test_a_copy_whose_pairs_are_all_too_long_has_no_loss(folder, tmp_path, monkeypatch):
    for side, language in zip(lines_of(folder, "train"), ("en", "de"), strict=True):
        (folder / f"long.{language}").write_text(f"{max(side, key=len)}\n")
    pieces = "tokenizer={vocabulary_size: 330, byte_fallback: true}"
    one_set = f"data.validation={{source: {folder}/long.en, target: {folder}/long.de}}"
    long = prepared(folder, "long", one_set, pieces, ROBUSTNESS)
    size = long.corpus.tokenizer.size
    monkeypatch.setattr(engine, "step_model", lambda *_: CopyModel(size))
    warnings: list[str] = []
    monkeypatch.setattr(logs, "warning", warnings.append)
    plain, upper, typos = measured(long, tmp_path / "run").sets
    assert plain.loss > 0
    for each in (upper, typos):
        assert each.bleu is not None
        assert each.as_record()["loss"] is each.as_record()["perplexity"] is None
    start = "validation.robustness: no loss for upper_case, typos, because every pair becomes"
    assert warnings[0].startswith(start)


def test_recipes_without_text_that_can_be_changed(folder, robust):
    path = str(robust.recipe_path)
    key = "validation.robustness"
    with pytest.raises(RecipeError, match=f"{key}: needs raw text, because only its words can be"):
        read_recipe(path, [ROBUSTNESS, "tokenizer={type: whitespace, vocabulary_size: null}"])
    with pytest.raises(RecipeError, match=f"{key}: typos is the name of two sets; leave one out"):
        read_recipe(path, [f"{key}=[typos, typos]"])
    one = f"name: typos, source: {folder}/validation.en, target: {folder}/validation.de"
    with pytest.raises(RecipeError, match=f"{key}: typos is the name of two sets; leave one out"):
        read_recipe(path, [ROBUSTNESS, f"data.validation=[{{{one}}}]"])
