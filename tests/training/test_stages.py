"""Stages of a training: other shares of the corpora from a step, an epoch or a validation on."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from nmt_cli.commands import preprocess
from nmt_cli.commands import train as command
from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.hardware.ranks import ALONE
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.run_directory import check_run_directory, describe_session
from nmt_cli.training.expected_length import least_steps, stage_that_begins_too_late
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.starting import plan_batches
from nmt_cli.training.training import sizes_and_weights
from nmt_cli.training.validation import Validator
from tests.conftest import RECIPE, ToyExperiment, write_pairs
from tests.forked_ranks import run_ranks
from tests.trainers import StopAfter, changed, new_trainer, spoil_gradient, weights_of

SIZES = {"a": 90, "b": 50, "c": 60}
STAGES = (
    "data.stages=[{shares: {a: 70, b: 30}, until: {epochs: 2}}, "
    "{weights: {c: 1}, until: {steps: 3}}, {weights: {a: 0.5, b: 1}}]"
)
NONE = "data.stages=[]"


class Mixed(NamedTuple):
    """An experiment of three corpora; the source of each pair begins with the tag of its own."""

    path: Path
    prepared: Path

    def recipe(self, *overrides, stages=STAGES):
        every = ["validation.bleu=off", "training.max_steps=30", stages]
        return read_recipe(str(self.path), [*every, *overrides]).recipe

    def toy(self, recipe):
        corpus = open_prepared(self.prepared, recipe, "nmt-cli preprocess")
        return ToyExperiment(self.path, recipe, self.prepared, corpus)

    def trainer(self, run_dir, recipe=None, *, ranks=ALONE, resume=False):
        toy = self.toy(recipe or self.recipe())
        return new_trainer(toy, run_dir, toy.recipe, ranks=ranks, resume=resume)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    corpora = []
    for seed, (name, size) in enumerate(SIZES.items()):
        write_pairs(folder, name, size, seed)
        corpora.append(f"{{source: {folder}/{name}.en, target: {folder}/{name}.de, ")
        corpora[-1] += f"name: {name}, tag: <{name}>}}"
    write_pairs(folder, "validation", 5, seed=9)
    path = folder / "mixed.yaml"
    one = f"[{{source: {folder}/train.en, target: {folder}/train.de}}]"
    path.write_text(RECIPE.format(folder=folder).replace(one, f"[{', '.join(corpora)}]"))
    logs.configure(quiet=True)
    preprocess.run(recipe=str(path), output=folder / "prepared", workers=1)
    return Mixed(path, folder / "prepared")


@pytest.fixture
def used(monkeypatch):
    """Return a list that receives the number of each batch and the corpora of its pairs."""
    found: list[tuple[int, Counter[int]]] = []
    launch = GradientEngine.launch

    def noted(engine, batch):
        firsts: Counter[int] = Counter()
        for source, *_ in batch.micro_batches:
            tokens, lengths = source
            firsts.update(tokens[np.cumsum(lengths) - lengths].tolist())
        found.append((batch.number, firsts))
        launch(engine, batch)

    monkeypatch.setattr(GradientEngine, "launch", noted)
    return found


def corpora_of(batches, recipe, mixed):
    """Return the pairs of each corpus in the batches that were used."""
    encode = mixed.toy(recipe).corpus.tokenizer.encode
    names = {encode(f"<{name}>")[0]: name for name in SIZES}
    counts: Counter[int] = sum((firsts for _, firsts in batches), Counter())
    return {names[tag]: count for tag, count in counts.items()}


def records(run_dir):
    """Return what metrics.jsonl holds, without times."""
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]


def first_epochs(mixed):
    """Return the batches of two epochs of the first stage."""
    recipe = mixed.recipe()
    plan = plan_batches(recipe, mixed.toy(recipe).corpus)
    return plan.batches_of(1).stop


def test_each_stage_trains_on_its_shares_and_the_learning_rate_goes_on(mixed, used, tmp_path):
    recipe, second = mixed.recipe(), first_epochs(mixed)
    trainer = mixed.trainer(tmp_path / "run")
    trainer.train(StopRequest())
    assert [number for number, _ in used] == list(range(30))
    assert 8 < second < 22
    third = second + 3
    # 140 pairs an epoch, of which 98 are of a, though it has 90.
    assert corpora_of(used[:second], recipe, mixed) == {"a": 2 * 98, "b": 2 * 42}
    assert [*corpora_of(used[second:third], recipe, mixed)] == ["c"]
    plan = trainer.training.plan
    assert plan.locate(third) == (3, 0)  # the epoch of the second stage was the third
    epoch = plan.batches_of(3)
    assert corpora_of(used[third : epoch.stop], recipe, mixed) == {"a": 45, "b": 50}
    progress = trainer.state.progress
    assert (progress.stage, progress.stage_step, progress.stage_batch) == (2, third, third)
    steps = [r for r in records(tmp_path / "run") if "loss" in r]
    assert [r["stage"] for r in steps] == [1] * second + [2] * 3 + [3] * (27 - second)
    rates = [r["learning_rate"] for r in steps]
    warm_up = [5e-3 * min(step / 4, math.sqrt(4 / step)) for step in range(1, 31)]
    assert rates == pytest.approx(warm_up)


def test_no_epoch_of_a_mixture_is_planned_after_its_stage(mixed, tmp_path, monkeypatch):
    recipe, planned, plan_epoch = mixed.recipe(), [], BatchPlan._plan_epoch
    corpus = mixed.toy(recipe).corpus
    plan = plan_batches(recipe, corpus)
    plan.begin_stage(1, sizes_and_weights(recipe, corpus, 1), 2, 0)
    of_epoch = len(plan.batches_of(2))

    def noted(plan, number, *new_order):
        planned.append((plan._stage, number))
        return plan_epoch(plan, number, *new_order)

    monkeypatch.setattr(BatchPlan, "_plan_epoch", noted)
    stages = STAGES.replace("{steps: 3}", f"{{steps: {of_epoch}}}")
    mixed.trainer(tmp_path / "run", mixed.recipe(stages=stages)).train(StopRequest())
    assert planned[:3] == [(0, 0), (0, 1), (1, 2)]
    assert set(planned[3:]) == {(2, 3), (2, 4)}


def test_the_first_stage_is_logged_and_one_that_never_began_warned_of(mixed, tmp_path, capsys):
    logs.configure(quiet=False)
    stages = "data.stages=[{shares: {a: 70, b: 30}, until: {epochs: 9}}, {weights: {c: 1}}]"
    recipe = mixed.recipe("training.max_steps=3", stages=stages)
    mixed.trainer(tmp_path / "run", recipe).train(StopRequest())
    log = capsys.readouterr().err
    assert "step 0: stage 1 of 2 begins with 70.0% a, 30.0% b." in log
    assert "Warning: training ended in stage 1 of 2, before data.stages.1; " in log
    mixed.trainer(tmp_path / "whole").train(StopRequest())
    assert "training ended in stage" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stages", "overrides", "found"),
    [
        ("{shares: {a: 70, b: 30}, until: {epochs: 2}}", "max_steps={first}", "steps"),
        ("{shares: {a: 70, b: 30}, until: {epochs: 2}}", "max_steps={later}", None),
        ("{shares: {a: 70, b: 30}, until: {steps: {later}}}", "max_epochs=3", "epochs"),
        ("{shares: {a: 70, b: 30}, until: {steps: {first}}}", "max_epochs=3", None),
        ("{shares: {a: 70, b: 30}, until: {patience: 2}}", "max_steps={first}", "steps"),
    ],
)
def test_a_stage_that_begins_too_late_is_found_before_the_first_step(
    mixed, tmp_path, stages, overrides, found
):
    first = first_epochs(mixed)  # after so many steps the second stage begins
    values = {"{first}": str(first), "{later}": str(first + 1)}
    for name, value in values.items():
        stages, overrides = stages.replace(name, value), overrides.replace(name, value)
    every = [
        "validation.every_steps=null",
        "validation.every_epochs=1",
        "training.max_steps=null",
        f"training.{overrides}",
    ]
    recipe = mixed.recipe(*every, stages=f"data.stages=[{stages}, {{weights: {{c: 1}}}}]")
    message = stage_that_begins_too_late(mixed.trainer(tmp_path / "run", recipe).training)
    if found is None:
        assert message is None
    else:
        number = first if found == "steps" else 3
        assert message is not None
        assert message.startswith(f"data.stages.1 would begin after about {number} {found}, but ")


def test_a_stage_that_would_begin_at_a_rate_of_0_is_found(mixed, tmp_path):
    first = first_epochs(mixed)
    keys = ["schedule=cosine", f"decay_steps={first - 4}", "max_steps=null", "max_epochs=9"]
    stages = "data.stages=[{shares: {a: 70, b: 30}, until: {epochs: 2}}, {weights: {c: 1}}]"
    recipe = mixed.recipe(*(f"training.{key}" for key in keys), stages=stages)
    with pytest.raises(UserError, match="the learning rate becomes 0 at step"):
        mixed.trainer(tmp_path / "run", recipe)
    late = changed(recipe, training={"max_epochs": 2})
    message = stage_that_begins_too_late(mixed.trainer(tmp_path / "run", late).training)
    assert message == (
        f"data.stages.1 would begin after about {first} steps, but the learning rate, which "
        f"becomes 0 at step {first}, ends training before; shorten the stages before it, or train "
        "longer."
    )


def test_the_epochs_of_later_stages_are_estimated_and_those_that_began_are_not(mixed, tmp_path):
    stages = STAGES.replace("{steps: 3}", "{epochs: 2}")
    recipe = mixed.recipe(stages=stages)
    corpus = mixed.toy(recipe).corpus
    plan = plan_batches(recipe, corpus)
    plan.begin_stage(1, sizes_and_weights(recipe, corpus, 1), 2, 0)
    second = plan.batches_of(3).stop  # batches of its two epochs
    assert second < first_epochs(mixed) - 4  # its corpus is smaller
    begin = first_epochs(mixed) + second
    for max_steps, is_late in ((begin - 2, True), (begin + 3, False)):
        late = mixed.recipe(f"training.max_steps={max_steps}", stages=stages)
        training = mixed.trainer(tmp_path / "run", late).training
        message = stage_that_begins_too_late(training)
        assert (message is not None and message.startswith("data.stages.2 ")) == is_late
    progress = training.state.progress
    progress.stage, progress.stage_step, progress.step = 1, 9**9, 9**9
    late = stage_that_begins_too_late(training)
    assert str(late).startswith("data.stages.2 would begin after about ")
    progress.stage = 2
    assert stage_that_begins_too_late(training) is None


@pytest.mark.parametrize("until", ["{epochs: 2}", "{patience: 2}"])
def test_the_step_is_right_after_a_change_of_the_plan(mixed, tmp_path, until):
    """Epochs before the change had more batches than those after it."""

    def trainer_of(*overrides, resume):
        keys = ["validation.every_steps=null", "validation.every_epochs=1", *overrides]
        recipe = mixed.recipe(*keys, stages=STAGES.replace("{epochs: 2}", until))
        trainer = mixed.trainer(tmp_path / "run", recipe, resume=resume)
        trainer.state.progress.best_quality = math.inf  # no validation is better
        return trainer

    trainer = trainer_of("training.tokens_per_step=40", "training.max_steps=99", resume=False)
    now = len(trainer.training.plan.batches_of(0)) + 5
    with pytest.raises(InterruptedTrainingError):
        trainer.train(StopAfter(trainer, now))
    late = trainer_of(f"training.max_steps={now + 1}", resume=True)
    message = stage_that_begins_too_late(late.training)
    trainer_of("training.max_steps=70", resume=True).train(StopRequest())
    steps = [r["step"] for r in records(tmp_path / "run") if r.get("stage") == 2]
    assert steps[0] > now + 1
    assert str(message).startswith(f"data.stages.1 would begin after about {steps[0] - 1} steps, ")


@pytest.mark.parametrize(
    ("stages", "counted"),
    [
        (NONE, [0] * 5),
        (STAGES, [0] * 2),
        (STAGES.replace("{steps: 3}", "{epochs: 1}"), [0, 0, 1, 2, 2]),
        (STAGES.replace("{epochs: 2}", "{patience: 1}"), []),
    ],
)
def test_the_steps_of_epochs_are_at_least_what_their_tokens_show(mixed, tmp_path, stages, counted):
    keys = ["training.max_epochs=5", "training.max_steps=999", "data.train.1.weight=2"]
    recipe = mixed.recipe(*keys[: 3 if stages == NONE else 2], stages=stages)
    training = mixed.trainer(tmp_path / "run", recipe).training
    corpus, plan, end = mixed.toy(recipe).corpus, plan_batches(recipe, mixed.toy(recipe).corpus), 0
    for epoch, stage in enumerate(counted):
        plan.begin_stage(stage, sizes_and_weights(recipe, corpus, stage), epoch, end)
        end = plan.batches_of(epoch).stop
    assert 0.85 * end <= least_steps(training) <= end


def test_train_warns_of_such_a_stage_first(mixed, tmp_path, capsys):
    logs.configure(quiet=False)
    stages = "data.stages=[{until: {epochs: 9}}, {weights: {c: 1}}]"
    command.run(
        str(mixed.path),
        overrides=["validation.bleu=off", "training.max_steps=2", stages],
        prepared=mixed.prepared,
        run_dir=tmp_path / "run",
        device="cpu",
        threads=1,
    )
    log = capsys.readouterr().err
    warning = log.index("Warning: data.stages.1 would begin after about ")
    assert "steps, but training.max_steps 2 ends training before; " in log[warning:]
    assert warning < log.index("step 0: stage 1 of 2 begins")


class KilledError(Exception):
    """Ends a training without saving."""


def train(mixed, run_dir, *ends, ranks=ALONE, recipe=None):
    """Train to the end, interrupted at ``ends``: a step at which it stops, or -step: killed."""
    for end in [*ends, None]:
        resume = bool(list_checkpoints(run_dir)) if run_dir.exists() else False
        trainer = mixed.trainer(run_dir, recipe, ranks=ranks, resume=resume)
        with pytest.MonkeyPatch.context() as patch:
            if end is None:
                trainer.train(StopRequest())
            elif end > 0:
                with pytest.raises(InterruptedTrainingError, match=f"training at step {end};"):
                    trainer.train(StopAfter(trainer, end))
            else:
                update = trainer._update

                def killed(*arguments, trainer=trainer, update=update, end=end):
                    if trainer.state.progress.step == -end:
                        raise KilledError
                    return update(*arguments)

                patch.setattr(trainer, "_update", killed)
                with pytest.raises(KilledError):
                    trainer.train(StopRequest())
        torch.manual_seed(7)  # other programs draw other numbers
    return trainer


@pytest.fixture(scope="module")
def whole(mixed, tmp_path_factory):
    """The trainer of a run that was never interrupted."""
    return train(mixed, tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.parametrize("sign", [1, -1], ids=["stopped", "killed"])
def test_a_run_resumed_before_at_and_after_the_starts_of_stages_is_bit_equal(
    mixed, whole, tmp_path, sign
):
    second = first_epochs(mixed)
    ends = [sign * step for step in range(second - 1, second + 5)]  # the third begins at + 3
    parts = train(mixed, tmp_path / "parts", *ends)
    assert torch.equal(weights_of(parts), weights_of(whole))
    assert records(tmp_path / "parts") == records(whole.training.run_dir)
    assert parts.state.progress == whole.state.progress


def test_a_batch_without_a_finite_gradient_is_no_step_of_a_stage(mixed, tmp_path, monkeypatch):
    last = first_epochs(mixed) + 2  # batch of the second stage, if none of it is skipped
    accumulate = GradientEngine._accumulate

    def spoiled(engine, batch):
        accumulate(engine, batch)
        if batch.number == last:
            spoil_gradient(engine)

    monkeypatch.setattr(GradientEngine, "_accumulate", spoiled)
    rarely = mixed.recipe("validation.every_steps=99", "checkpoints.every_steps=99")
    trainer = train(mixed, tmp_path / "run", recipe=rarely)
    progress = trainer.state.progress
    assert (progress.stage, progress.stage_step, progress.stage_batch) == (2, last + 1, last + 2)


@pytest.mark.parametrize("num_ranks", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_ranks_change_stages_together_and_train_as_one(mixed, tmp_path, num_ranks):
    recipe = mixed.recipe("model.dropout=0")

    def on_ranks(name, *ends):
        def work(ranks):
            return weights_of(train(mixed, tmp_path / name, *ends, ranks=ranks, recipe=recipe))

        return run_ranks(num_ranks, tmp_path, work)

    alone = weights_of(train(mixed, tmp_path / "alone", recipe=recipe))
    second = first_epochs(mixed)
    whole, parts = on_ranks("whole"), on_ranks("parts", second - 1, second + 3)
    for weights in [*whole[1:], *parts]:
        assert torch.equal(weights, whole[0])
    torch.testing.assert_close(whole[0], alone, atol=1e-4, rtol=0)
    one, shared = records(tmp_path / "alone"), records(tmp_path / "whole")
    names = ("step", "batch_index", "target_tokens", "source_tokens")
    assert [[r.get(n) for n in names] for r in one] == [[r.get(n) for n in names] for r in shared]


def pretended(losses, monkeypatch):
    """Let each step have the validation loss that ``losses`` gives it."""
    validate = Validator.validate

    def measured(validator, *arguments, trainer):
        found = validate(validator, *arguments)
        if found is None:  # it was stopped
            return None
        loss = losses[trainer.state.progress.step]
        return found._replace(loss=loss, nll=1.0, quality=-loss)

    return lambda trainer: monkeypatch.setattr(
        trainer._validator,
        "validate",
        lambda *arguments: measured(trainer._validator, *arguments, trainer=trainer),
    )


@pytest.mark.parametrize("end", [None, 7, 8, 9])
def test_a_stage_ends_after_validations_without_improvement(mixed, tmp_path, monkeypatch, end):
    stages = "data.stages=[{weights: {a: 1}, until: {patience: 2}}, {weights: {c: 1}}]"
    recipe = mixed.recipe("validation.every_steps=2", "validation.patience=3", stages=stages)
    # The best is at step 4; the second stage begins at step 8, and training ends 3 validations on.
    losses = dict(zip(range(2, 31, 2), [5.0, 4.0, 4.5, math.nan, *[4.2] * 11], strict=True))
    give = pretended(losses, monkeypatch)
    for stop_at in [end, None] if end else [None]:
        resume = stop_at is None and end is not None
        trainer = mixed.trainer(tmp_path / "run", recipe, resume=resume)
        give(trainer)
        if stop_at:
            with pytest.raises(InterruptedTrainingError):
                trainer.train(StopAfter(trainer, stop_at))
        else:
            trainer.train(StopRequest())
    progress = trainer.state.progress
    assert (progress.stage, progress.stage_step, progress.step) == (1, 8, 14)
    assert progress.best_quality == -4.0


def test_a_checkpoint_names_its_stage_only_after_the_first(mixed, whole, tmp_path):
    newest = list_checkpoints(whole.training.run_dir)[-1]
    assert newest.manifest["stage"] == 2
    assert newest.manifest["stage_from_step"] == first_epochs(mixed) + 3
    train(mixed, tmp_path / "plain", recipe=mixed.recipe("training.max_steps=2", stages=NONE))
    newest = list_checkpoints(tmp_path / "plain")[-1]
    assert not [name for name in newest.manifest if "stage" in name]


def test_a_resumed_run_stays_in_its_epoch_when_its_stage_changes(mixed, used, tmp_path):
    second = first_epochs(mixed)
    stop_at = second + 3 + 2  # the first epoch of the last stage has begun
    trainer = mixed.trainer(tmp_path / "run")
    with pytest.raises(InterruptedTrainingError):
        trainer.train(StopAfter(trainer, stop_at))
    used.clear()
    fewer = "data.stages=[{weights: {a: 1}, until: {steps: 1}}, {weights: {b: 0.5, c: 1}}]"
    resumed = mixed.trainer(tmp_path / "run", mixed.recipe(stages=fewer), resume=True)
    resumed.train(StopRequest())
    assert resumed.state.progress.stage == 1
    plan = resumed.training.plan
    of_epochs = Counter(plan.locate(number)[0] for number, _ in used)
    assert 0 < of_epochs[3] < len(plan.batches_of(3))
    assert set(corpora_of(used, mixed.recipe(), mixed)) == {"b", "c"}


def test_changed_shares_need_permission_as_one_key(mixed, whole):
    run_dir = whole.training.run_dir
    describe_session(run_dir, mixed.recipe(), {})
    recipe = mixed.recipe(stages=STAGES.replace("a: 70", "a: 60"))
    change = (
        r'data\.stages\.0\.shares \(was {"a": 70\.0, "b": 30\.0}, is {"a": 60\.0, "b": 30\.0}\)'
    )
    with pytest.raises(UserError, match=f"{change} needs --allow-change data.stages.0.shares"):
        check_run_directory(run_dir, recipe, resume=True, allowed=())
    assert check_run_directory(run_dir, recipe, resume=True, allowed=["data.stages.0.shares"])


def test_a_stage_that_leaves_no_pair_is_refused_before_the_first_step(mixed, tmp_path):
    stages = "data.stages=[{weights: {a: 1}, until: {steps: 3}}, {weights: {b: 0.001}}]"
    with pytest.raises(
        UserError, match=r"^the weights of data\.stages\.1 leave an epoch without a pair; raise"
    ):
        mixed.trainer(tmp_path / "run", mixed.recipe(stages=stages))


def test_temperature_keeps_the_pairs_of_an_epoch_and_evens_the_corpora(mixed, used, tmp_path):
    recipe = mixed.recipe("data.mixing.temperature=5", stages=NONE)
    trainer = mixed.trainer(tmp_path / "run", recipe)
    trainer.train(StopRequest())
    epoch = trainer.training.plan.batches_of(0)
    found = corpora_of(used[: epoch.stop], recipe, mixed)
    num_pairs, roots = sum(SIZES.values()), {name: size**0.2 for name, size in SIZES.items()}
    expected = {name: num_pairs * root / sum(roots.values()) for name, root in roots.items()}
    assert found == pytest.approx(expected, abs=0.51)
