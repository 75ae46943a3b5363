"""Damaged checkpoints and token files: found, named, and never taken for a new start."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.run_directories import (
    End,
    check_same_end,
    checkpoints,
    hashes,
    newest,
)
from tests.faults.trainings import Trainings

PAGE = 4096
Damage = Callable[[Path, Path, random.Random], Path]  # newest, older, chance -> what was damaged


def some_file(checkpoint: Path, chance: random.Random) -> Path:
    return chance.choice(sorted(path for path in checkpoint.iterdir() if path.is_file()))


def truncated(checkpoint: Path, _: Path, chance: random.Random) -> Path:
    path = some_file(checkpoint, chance)
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) - 1)])  # more than a last LF
    return path


def one_bit_flipped(checkpoint: Path, _: Path, chance: random.Random) -> Path:
    path = some_file(checkpoint, chance)
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return path


def page_zeroed(checkpoint: Path, _: Path, chance: random.Random) -> Path:
    path = some_file(checkpoint, chance)
    content = path.read_bytes()
    start = chance.randrange(0, len(content), PAGE)
    zeros = bytes(len(content[start : start + PAGE]))
    path.write_bytes(content[:start] + zeros + content[start + PAGE :])
    return path if path.read_bytes() != content else page_zeroed(checkpoint, _, chance)


def file_missing(checkpoint: Path, _: Path, chance: random.Random) -> Path:
    path = some_file(checkpoint, chance)
    path.unlink()
    return path


def directory_emptied(checkpoint: Path, _: Path, __: random.Random) -> Path:
    for path in checkpoint.iterdir():
        path.unlink()
    return checkpoint


def file_of_another(checkpoint: Path, older: Path, chance: random.Random) -> Path:
    name = chance.choice(["model.safetensors", "training_state.pt", "manifest.json"])
    shutil.copyfile(older / name, checkpoint / name)
    return checkpoint / name


def another_step(checkpoint: Path, _: Path, chance: random.Random) -> Path:
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    manifest["step"] += chance.choice([-2, -1, 1, 100])
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    return checkpoint


def another_name(checkpoint: Path, _: Path, chance: random.Random) -> Path:
    step = int(checkpoint.name.removeprefix("step-")) + chance.choice([1, 2, 100])
    return checkpoint.rename(checkpoint.with_name(f"step-{step:08d}"))


def a_link_in_its_place(checkpoint: Path, _: Path, chance: random.Random) -> Path:
    names = ["model.safetensors", "training_state.pt", "recipe.yaml"]
    path = checkpoint / chance.choice(names)
    elsewhere = checkpoint.parent.with_name("elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    return path


DAMAGES: list[Damage] = [
    truncated, one_bit_flipped, page_zeroed, file_missing, directory_emptied,
    file_of_another, another_step, another_name, a_link_in_its_place,
]  # fmt: skip


FEW = 2 * len(DAMAGES)


def check_damage_is_found(
    trainings: Trainings, finished: Path, folder: Path, expected: End, damage: Damage, seed: int
) -> None:
    """Damage the newest checkpoint of a copy of ``finished``, resume, and expect the same end."""
    run_dir = folder / f"{damage.__name__}{seed}"
    shutil.copytree(finished, run_dir)
    older, last = list(checkpoints(run_dir).values())[-2:]
    damaged = damage(last, older, random.Random(seed))
    ended = trainings.run(run_dir, "--resume")
    assert ended.status == 0, ended.stderr
    assert last.name in ended.stderr or damaged.name in ended.stderr, "the damage is not named"
    assert f"Resuming from {older}" in ended.stderr
    if damage is another_name:
        shutil.rmtree(damaged)  # the user's; what follows is the run's
    check_same_end(run_dir, expected)
    shutil.rmtree(run_dir)


def mutations(num: int) -> list[tuple[Damage, int]]:
    return [(DAMAGES[seed % len(DAMAGES)], seed) for seed in range(num)]


@pytest.mark.parametrize("part", range(3))
def test_a_damaged_newest_checkpoint_is_found(
    trainings, undisturbed_dir, tmp_path, undisturbed, part
):
    for damage, seed in mutations(FEW)[part::3]:
        check_damage_is_found(trainings, undisturbed_dir, tmp_path, undisturbed, damage, seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_damages_of_the_newest_checkpoint_are_found(
    trainings, undisturbed_dir, tmp_path, undisturbed, part
):
    for damage, seed in mutations(200)[FEW + part :: 4]:
        check_damage_is_found(trainings, undisturbed_dir, tmp_path, undisturbed, damage, seed)


def check_all_damaged(trainings: Trainings, finished: Path, folder: Path) -> None:
    """Damage every checkpoint; assert that resuming is refused and changes nothing."""
    run_dir = folder / "run"
    for seed, damage in enumerate(DAMAGES[:5]):
        shutil.copytree(finished, run_dir)
        for number, checkpoint in enumerate(checkpoints(run_dir).values()):
            damage(checkpoint, checkpoint, random.Random(100 * seed + number))
        before = hashes(run_dir)
        ended = trainings.run(run_dir, "--resume")
        assert ended.status == 1
        assert "no undamaged checkpoint" in ended.stderr
        assert hashes(run_dir) == before, "something was written"
        shutil.rmtree(run_dir)


def test_where_every_checkpoint_is_damaged_training_does_not_start_anew(
    trainings, undisturbed_dir, tmp_path
):
    check_all_damaged(trainings, undisturbed_dir, tmp_path)


def check_flipped_tokens_are_found(
    trainings: Trainings, folder: Path, finished: Path, toy_prepared: Path, seed: int
) -> None:
    """Flip one byte of a token file; a new run and a resumed one must both refuse it by name."""
    chance = random.Random(seed)
    prepared = folder / f"prepared{seed}"
    shutil.copytree(toy_prepared, prepared)
    path = chance.choice(sorted(prepared.glob("train.*")))
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= chance.randrange(1, 256)
    path.write_bytes(content)
    new = folder / f"new{seed}"
    run_dir = folder / f"run{seed}"
    shutil.copytree(finished, run_dir)
    shutil.rmtree(newest(run_dir))
    before = hashes(run_dir)
    for directory in (new, run_dir):
        ended = trainings.with_prepared(prepared).run(directory, "--resume")
        assert ended.status == 1, ended.stderr
        assert path.name in ended.stderr
    assert not list(new.rglob("step-*"))
    assert not list(new.rglob("metrics.jsonl"))
    assert hashes(run_dir) == before


def test_a_flipped_byte_of_the_tokens_is_found(trainings, toy, undisturbed_dir, tmp_path):
    for seed in range(6):
        check_flipped_tokens_are_found(trainings, tmp_path, undisturbed_dir, toy.prepared, seed)


@pytest.mark.slow
def test_many_flipped_bytes_of_the_tokens_are_found(trainings, toy, undisturbed_dir, tmp_path):
    for seed in range(6, 60):
        check_flipped_tokens_are_found(trainings, tmp_path, undisturbed_dir, toy.prepared, seed)
