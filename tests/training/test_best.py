"""The best validation and the patience, also after a change of how quality is measured."""

import pytest

from nmt_cli.checkpoints import best_checkpoint, list_checkpoints
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.training.validation import Validator
from tests.trainers import changed, new_trainer

EVERY_STEP = {"every_steps": 1, "patience": 2, "best_by": "bleu"}


@pytest.fixture
def train(toy, tmp_path, monkeypatch):
    """Train, or resume, with a validation every step that finds the qualities given."""

    validate = Validator.validate

    def call(recipe, qualities):
        trainer = new_trainer(toy, tmp_path, recipe, resume=bool(list_checkpoints(tmp_path)))
        found = iter(qualities)

        def pretended(*arguments):
            measured = validate(*arguments)
            assert measured is not None
            return measured._replace(nll=1.0, quality=next(found))

        with monkeypatch.context() as patch:
            patch.setattr(Validator, "validate", pretended)
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
        ("loss", "training", "label_smoothing", 0.0),
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


def test_what_was_begun_anew_stays_so_in_later_sessions(train, toy):
    recipe = changed(toy.recipe, validation=EVERY_STEP, training={"max_steps": 2})
    train(recipe, [50.0, 60.0])
    other_search = changed(recipe, decoding={"length_penalty": 1.0})
    train(changed(other_search, training={"max_steps": 4}), [30.0, 20.0])
    assert train(changed(other_search, training={"max_steps": 5}), [25.0]) == (5, 3)
