"""The best validation and the patience, also after a change of how quality is measured."""

import pytest

from nmt_cli.commands import preprocess
from nmt_cli.corpus import references
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.references import FittingTokenizer
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.checkpoints import best_checkpoint, list_checkpoints
from nmt_cli.training import validation
from nmt_cli.training.validation import Validator
from tests.conftest import RECIPE, ToyExperiment, write_pairs
from tests.trainers import changed, new_trainer

SETS, THREE_STEPS = ("news", "web"), {"max_steps": 3}
EVERY_STEP = {"every_steps": 1, "patience": 2, "best_by": "bleu"}


@pytest.fixture
def train(toy, tmp_path, monkeypatch):
    """Train, or resume, with a validation every step that finds the qualities given."""

    validate = Validator.validate

    def call(recipe, qualities, nlls=(), experiment=toy, **figures):
        trainer = new_trainer(experiment, tmp_path, recipe, resume=bool(list_checkpoints(tmp_path)))
        found, found_nlls = iter(qualities), iter(nlls)

        def pretended(*arguments):
            measured = validate(*arguments)
            assert measured is not None
            return measured._replace(nll=next(found_nlls, 1.0), quality=next(found), **figures)

        with monkeypatch.context() as patch:
            patch.setattr(Validator, "validate", pretended)
            patch.setattr(validation, "_translated", lambda _, lines: [text for _, text in lines])
            trainer.train(StopRequest())
        best = best_checkpoint(list_checkpoints(tmp_path))
        assert best is not None
        return trainer.state.progress.step, best.step

    return call


@pytest.mark.parametrize(
    ("best_by", "section", "key", "value"),
    [
        ("bleu", "decoding", "length_penalty", 1.0),
        ("bleu", "validation", "bleu", "beam"),
        ("bleu", "validation", "tokenize", "char"),
        ("loss", "training", "label_smoothing", 0.0),
        ("loss", "validation", "best_by", "bleu"),
        ("bleu", "validation", "best_by", "loss"),
    ],
)
def test_best_and_patience_begin_anew_when_qualities_stop_comparing(
    train, toy, best_by, section, key, value
):
    validation = {**EVERY_STEP, "best_by": best_by}
    recipe = changed(toy.recipe, validation=validation, training={"max_steps": 3})
    assert train(recipe, [50.0, 60.0, 40.0]) == (3, 2)
    longer = changed(recipe, training={"max_steps": 9})
    assert train(changed(longer, **{section: {key: value}}), [20.0, 30.0, 25.0, 26.0]) == (7, 5)


def test_best_and_patience_go_on_when_qualities_still_compare(train, toy):
    recipe = changed(toy.recipe, validation=EVERY_STEP, training={"max_steps": 3})
    assert train(recipe, [50.0, 60.0, 40.0]) == (3, 2)
    longer = changed(recipe, training={"max_steps": 9, "label_smoothing": 0.0})
    assert train(longer, [20.0]) == (4, 2)


@pytest.mark.parametrize(
    ("text", "by", "after", "begins_anew"),
    [
        ("news", {"best_by": "bleu"}, [20.0, 30.0, 25.0, 26.0], (7, 5)),
        ("news", {"best_by": "loss"}, [20.0, 30.0, 25.0, 26.0], (7, 5)),
        ("web", {"best_by": "loss"}, [20.0], (4, 2)),
        ("web", {"best_by": "bleu", "best_on_mean": True}, [20.0, 30.0, 25.0, 26.0], (7, 5)),
    ],
)
def test_best_and_patience_begin_anew_with_another_text_of_the_set_that_decides(
    train, tmp_path, capsys, text, by, after, begins_anew
):
    folder = tmp_path / "text"
    folder.mkdir()
    for seed, name in enumerate(["train", "news", "web"]):
        write_pairs(folder, name, 40, seed)
    path, output = folder / "toy.yaml", folder / "prepared"
    path.write_text(RECIPE.format(folder=folder))
    sets = (f"{{name: {n}, source: {folder}/{n}.en, target: {folder}/{n}.de}}" for n in SETS)
    overrides = [f"data.validation=[{', '.join(sets)}]"]
    recipe = read_recipe(str(path), overrides).recipe
    recipe = changed(recipe, validation={**EVERY_STEP, **by}, training=THREE_STEPS)

    def prepared():
        preprocess.run(recipe=str(path), overrides=overrides, output=output, workers=1, force=True)
        return ToyExperiment(path, recipe, output, open_prepared(output, recipe, ""))

    assert train(recipe, [50.0, 60.0, 40.0], experiment=prepared()) == (3, 2)
    write_pairs(folder, text, 30, seed=7)
    logs.configure(quiet=False)
    longer = changed(recipe, training={"max_steps": 9})
    assert train(longer, after, experiment=prepared()) == begins_anew
    says_so = "step 3, because the validation text changed: " in capsys.readouterr().err
    assert says_so == (text == "news" or "best_on_mean" in by)


@pytest.mark.parametrize("is_known", [True, False])
def test_best_and_patience_begin_anew_when_another_tokenizer_fits(
    train, toy, monkeypatch, capsys, is_known
):
    """As when ja-mecab was installed meanwhile."""
    recipe = changed(toy.recipe, validation=EVERY_STEP, training=THREE_STEPS)
    unknown = {} if is_known else {"signature": None}
    assert train(recipe, [50.0, 60.0, 40.0], **unknown) == (3, 2)
    monkeypatch.setattr(references, "FittingTokenizer", lambda _: FittingTokenizer("char"))
    logs.configure(quiet=False)
    longer = changed(recipe, training={"max_steps": 9})
    assert train(longer, [20.0, 30.0, 25.0, 26.0]) == ((7, 5) if is_known else (4, 2))
    because = "because the tokenizer of BLEU (was none, is char) changed: "
    assert (because in capsys.readouterr().err) == is_known


def test_what_was_begun_anew_stays_so_in_later_sessions(train, toy):
    recipe = changed(toy.recipe, validation=EVERY_STEP, training={"max_steps": 2})
    train(recipe, [50.0, 60.0])
    other_search = changed(recipe, decoding={"length_penalty": 1.0})
    train(changed(other_search, training={"max_steps": 4}), [30.0, 20.0])
    assert train(changed(other_search, training={"max_steps": 5}), [25.0]) == (5, 3)


@pytest.mark.parametrize("quality", [0.0, 100.0])
def test_of_equal_qualities_the_lowest_perplexity_is_the_best(train, toy, quality):
    """Patience counts it as an improvement, too; a resumed training remembers it."""
    recipe = changed(toy.recipe, validation=EVERY_STEP, training={"max_steps": 3})
    assert train(recipe, [quality] * 3, [1.2, 1.1, 1.0]) == (3, 3)
    longer = changed(recipe, training={"max_steps": 9})
    assert train(longer, [quality] * 4, [1.05, 0.9, 0.95, 0.9]) == (7, 5)


def test_a_higher_quality_is_better_whatever_the_perplexity_is(train, toy):
    recipe = changed(toy.recipe, validation=EVERY_STEP, training={"max_steps": 4})
    assert train(recipe, [1.0, 2.0, 1.0, 1.5], [1.0, 1.2, 0.9, 0.8]) == (4, 2)


def test_only_what_is_shown_of_bleu_counts(toy, tmp_path, monkeypatch):
    recipe = changed(toy.recipe, validation=EVERY_STEP, training={"max_steps": 2})
    scores, nlls = iter([(0.0019, None), (0.0007, None)]), iter([1.2, 1.1])
    monkeypatch.setattr(Validator, "_score", lambda *_: next(scores))
    monkeypatch.setattr(Validator, "_loss_sums", lambda *_: [2.0, next(nlls), 1.0, 0.0, 0.0])
    trainer = new_trainer(toy, tmp_path, recipe)
    trainer.train(StopRequest())
    assert trainer.state.progress.best_quality == 0.0
    best = best_checkpoint(list_checkpoints(tmp_path))
    assert best is not None
    assert best.step == 2
