import shutil

import pytest
import torch

from nmt_cli.files.file_names import TRAINING_STATE, WEIGHTS
from nmt_cli.messages.errors import OutputError, UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.optimization import Adam
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.training_state import (
    CheckpointContents,
    TrainingState,
    load_newest,
    prune,
    save_checkpoint,
)


def new_state(toy, seed=1):
    torch.manual_seed(seed)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    optimizer = Adam(model.parameters(), fused=True)
    return TrainingState(model, optimizer)


def take_a_step(state):
    for parameter in state.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    state.optimizer.step()
    state.progress.step += 1
    state.progress.batch_index += 1


def save(toy, run_dir, state, kind="regular", quality=None):
    validation = None if quality is None else {"quality": quality}
    facts = {"kind": kind, "step": state.progress.step, "validation": validation, "epoch": 0}
    save_checkpoint(run_dir, CheckpointContents.of(state), toy.recipe, toy.corpus, facts)


def names(run_dir):
    return [int(checkpoint.path.name[5:]) for checkpoint in list_checkpoints(run_dir)]


def resumable(run_dir):
    return [
        checkpoint.step
        for checkpoint in list_checkpoints(run_dir)
        if (checkpoint.path / TRAINING_STATE).exists()
    ]


@pytest.fixture
def run_of_two(toy, tmp_path):
    """Checkpoints of steps 1 and 2, and the state saved last."""
    state = new_state(toy)
    for _ in range(2):
        take_a_step(state)
        save(toy, tmp_path, state)
    return tmp_path, state


def test_everything_comes_back(toy, run_of_two):
    run_dir, state = run_of_two
    restored = new_state(toy, seed=2)
    assert load_newest(run_dir, restored).step == 2
    assert restored.progress == state.progress
    for found, saved in zip(restored.model.parameters(), state.model.parameters(), strict=True):
        assert torch.equal(found, saved)
        for moment in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.equal(
                restored.optimizer.state[found][moment], state.optimizer.state[saved][moment]
            )


@pytest.mark.parametrize("name", [WEIGHTS, TRAINING_STATE, "recipe.yaml", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_newest_is_named_and_the_one_before_used(toy, run_of_two, name, damage, capsys):
    run_dir, _ = run_of_two
    path = run_dir / "checkpoints" / "step-00000002" / name
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    else:
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content if damage == "flip" else content[:-1])
    if damage == "flip" and name == "manifest.json":
        path.write_bytes(b"\x00" + bytes(content))
    restored = new_state(toy, seed=2)
    assert load_newest(run_dir, restored).step == 1
    assert restored.progress.step == 1
    assert "step-00000002" in capsys.readouterr().err


def test_a_checkpoint_for_which_there_is_no_memory_is_not_damaged(toy, run_of_two, monkeypatch):
    def load(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

    run_dir, _ = run_of_two
    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        load_newest(run_dir, new_state(toy))


def test_without_an_undamaged_checkpoint_there_is_no_silent_start(toy, run_of_two):
    run_dir, _ = run_of_two
    for checkpoint in list_checkpoints(run_dir):
        (checkpoint.path / WEIGHTS).write_bytes(b"")
    with pytest.raises(UserError, match="holds no undamaged checkpoint to resume from"):
        load_newest(run_dir, new_state(toy))


def test_a_checkpoint_moved_to_another_step_is_not_believed(toy, run_of_two):
    run_dir, _ = run_of_two
    folder = run_dir / "checkpoints"
    shutil.copytree(folder / "step-00000001", folder / "step-00000009")
    assert load_newest(run_dir, new_state(toy)).step == 2


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(10**11),
        torch.zeros(3),
        torch.full((10, 20), float("nan")),
        torch.zeros(2, dtype=torch.int64),
    ],
)
def test_hostile_moments_are_refused(toy, run_of_two, tensor, monkeypatch):
    run_dir, _ = run_of_two
    newest = run_dir / "checkpoints" / "step-00000002"
    saved = torch.load(newest / TRAINING_STATE, weights_only=True)
    saved["optimizer"][0]["exp_avg"] = tensor
    torch.save(saved, newest / TRAINING_STATE)
    monkeypatch.setattr("nmt_cli.saved.training_state.verify", lambda _: None)
    assert load_newest(run_dir, new_state(toy)).step == 1


def test_pruning_keeps_the_average_the_best_and_two_to_resume_from(toy, tmp_path):
    state = new_state(toy)
    for quality in (-3.0, -1.0, None, -2.0, -2.5, None, None):
        take_a_step(state)
        kind = "safety" if state.progress.step in (3, 6) else "regular"
        save(toy, tmp_path, state, kind, quality)
        prune(tmp_path, keep_for_average=3, step=state.progress.step)
    assert names(tmp_path) == [2, 4, 5, 6, 7]  # 2 is the best, 6 the last but one
    assert resumable(tmp_path) == [6, 7]
    assert load_newest(tmp_path, new_state(toy)).step == 7


def test_a_damaged_newest_does_not_stand_for_one_to_resume_from(toy, tmp_path):
    state = new_state(toy)
    for _ in range(3):
        take_a_step(state)
        save(toy, tmp_path, state)
    weights = tmp_path / "checkpoints" / "step-00000003" / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    resumed = new_state(toy)
    assert load_newest(tmp_path, resumed).step == 2
    prune(tmp_path, keep_for_average=1, step=2)
    assert resumable(tmp_path) == [1, 2, 3]


def test_weights_that_are_not_finite_are_never_saved(toy, tmp_path):
    state = new_state(toy)
    take_a_step(state)
    with torch.no_grad():
        state.model.output_weight[0, 0] = float("nan")
    with pytest.raises(UserError, match=r"output_weight is not finite after step 1"):
        save(toy, tmp_path, state)
    assert names(tmp_path) == []


def test_a_checkpoint_is_not_begun_without_space(toy, run_of_two, monkeypatch):
    run_dir, state = run_of_two
    usage = shutil.disk_usage(run_dir)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    take_a_step(state)
    with pytest.raises(OutputError, match="no space for a checkpoint"):
        save(toy, run_dir, state)
    assert names(run_dir) == [1, 2]
