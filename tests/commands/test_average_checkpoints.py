import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from nmt_cli import cli
from nmt_cli.commands import average_checkpoints, train
from nmt_cli.files.atomic_files import (
    directory_appearing_whole,
    remove_directory,
    write_manifest,
)
from nmt_cli.files.file_names import MANIFEST, TRAINING_STATE, WEIGHTS
from nmt_cli.files.locks import claimed
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.model_directory import find_model, load_model
from tests.folders_in_memory import tmp_path as tmp_path
from tests.saved_weights import read_weights


@pytest.fixture(scope="module")
def trained(toy, tmp_path_factory):
    """A run with regular checkpoints of steps 3, 6, 9 and 12."""
    run_dir = tmp_path_factory.mktemp("average") / "run"
    train.run(
        str(toy.recipe_path),
        overrides=["checkpoints.keep_for_average=4", "validation.bleu=off"],
        prepared=toy.prepared,
        run_dir=run_dir,
        device="cpu",
        precision="fp32",
    )
    return run_dir


@pytest.fixture
def run_dir(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def checkpoint(run_dir, step):
    return run_dir / "checkpoints" / f"step-{step:08d}"


def test_the_average_is_the_mean_of_the_last(run_dir):
    (checkpoint(run_dir, 12) / TRAINING_STATE).unlink()  # not needed
    average_checkpoints.run(run_dir, last=3)
    found = read_weights(run_dir / "average")
    parts = [read_weights(checkpoint(run_dir, step)) for step in (6, 9, 12)]
    for name, weight in found.items():
        expected = torch.stack([part[name] for part in parts]).double().mean(0)
        assert weight.dtype == torch.float32
        assert torch.allclose(weight.double(), expected, rtol=1e-7, atol=1e-9)
        assert not torch.equal(weight, parts[2][name])


def averaged_steps(run_dir):
    manifest = json.loads((run_dir / "average" / MANIFEST).read_text())
    return [part["step"] for part in manifest["averaged"]]


def test_the_recipe_decides_how_many_without_early_ones_by_default(run_dir, capsys):
    logs.configure(quiet=False)
    average_checkpoints.run(run_dir)
    assert averaged_steps(run_dir) == [9, 12]
    assert find_model(run_dir).path == run_dir / "average"
    load_model(run_dir / "average")
    before, _, all_of_them = capsys.readouterr().err.partition(" steps 3 and 6. To average all 4: ")
    assert before.rpartition("\n")[2].startswith("Left out of the average, as too early in a ")
    arguments = shlex.split(all_of_them.partition("\n")[0])
    assert arguments[0] == "nmt-cli"
    assert CliRunner().invoke(cli.main, arguments[1:], catch_exceptions=False).exit_code == 0
    assert averaged_steps(run_dir) == [3, 6, 9, 12]
    assert "Left out" not in capsys.readouterr().err


def removing_first(patch, target, run_dir, *, remove=True):
    """Let a training save another checkpoint, and remove the oldest, right before ``target``."""
    original, num_calls = getattr(average_checkpoints, target), 0

    def after_a_save(*arguments):
        nonlocal num_calls
        num_calls += 1
        newest = list_checkpoints(run_dir)[-1]
        if remove or num_calls == 1:
            remove_directory(list_checkpoints(run_dir)[0].path)
            step = newest.step + 3
            with directory_appearing_whole(checkpoint(run_dir, step)) as partial:
                for name in newest.manifest["files"]:
                    shutil.copy(newest.path / name, partial.path / name)
                weights = load_file(partial.path / WEIGHTS)
                save_file({name: -w for name, w in weights.items()}, partial.path / WEIGHTS)
                partial.manifest.update({**newest.manifest, "step": step})
        return original(*arguments)

    patch.setattr(average_checkpoints, target, after_a_save)


@pytest.mark.parametrize("target", ["verified", "mean_weights"])
def test_a_checkpoint_that_a_training_removes_is_replaced_by_a_newer_one(
    run_dir, monkeypatch, capsys, target
):
    removing_first(monkeypatch, target, run_dir, remove=False)
    average_checkpoints.run(run_dir, last=4)
    manifest = json.loads((run_dir / "average" / MANIFEST).read_text())
    assert [part["step"] for part in manifest["averaged"]] == [6, 9, 12, 15]
    assert "damaged" not in capsys.readouterr().err


def test_checkpoints_that_are_removed_all_the_time_are_not_called_damaged(run_dir, monkeypatch):
    removing_first(monkeypatch, "mean_weights", run_dir)
    with pytest.raises(UserError) as caught:
        average_checkpoints.run(run_dir, last=4)
    assert str(caught.value) == (
        f"{checkpoint(run_dir, 6)} was removed while it was averaged: a training goes on there, "
        "which keeps only its newest checkpoints. Run the command again, or give a smaller --last."
    )
    assert not (run_dir / "average").exists()


def test_the_average_in_int8_is_small_and_near(run_dir):
    average_checkpoints.run(run_dir, last=3)
    average_checkpoints.run(run_dir, last=3, precision="int8")
    assert find_model(run_dir).path == run_dir / "average"
    sizes = [(run_dir / name / WEIGHTS).stat().st_size for name in ("average", "average-int8")]
    assert sizes[1] < 0.5 * sizes[0]  # of such a small model, the header counts
    exact, rounded = (read_weights(run_dir / name) for name in ("average", "average-int8"))
    assert exact.keys() == rounded.keys()
    for name, weight in exact.items():
        if weight.dim() == 2:
            half_a_step = weight.abs().amax(1, keepdim=True) / 254
            assert ((weight - rounded[name]).abs() <= half_a_step * 1.001).all()
            assert not torch.equal(weight, rounded[name])
        else:
            assert torch.equal(weight, rounded[name])
    load_model(run_dir / "average-int8")
    average_checkpoints.run(run_dir, checkpoints=[run_dir / "average-int8"], output=run_dir / "x")
    again = read_weights(run_dir / "x")
    assert all(torch.equal(again[name], weight) for name, weight in rounded.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({"a.scales": torch.ones(2, 1)}), "a.scales does not have a scale for"),
        (lambda t: t.update({"output_weight.scales": torch.ones(1, 1)}), "each row of output_weig"),
        (lambda t: t.pop("output_weight.scales"), "output_weight is int8"),
        (lambda t: t.update({"a": torch.ones(2), "a.scales": torch.ones(2, 1)}), "each row of a"),
        (lambda t: t.update({"a": torch.ones(()), "a.scales": torch.ones(1)}), "each row of a"),
    ],
)
def test_scales_that_do_not_fit_are_named(run_dir, change, message):
    average_checkpoints.run(run_dir, last=1, precision="int8")
    folder = run_dir / "average-int8"
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)
    manifest = json.loads((folder / MANIFEST).read_text())
    facts = {k: v for k, v in manifest.items() if k not in ("files", "manifest_sha256")}
    write_manifest(folder, facts)
    with pytest.raises(DamagedError, match=message):
        load_model(folder)


def test_the_order_is_nothing(run_dir, tmp_path):
    chosen = [checkpoint(run_dir, step) for step in (3, 9, 12)]
    average_checkpoints.run(run_dir, checkpoints=chosen, output=tmp_path / "one")
    average_checkpoints.run(run_dir, checkpoints=chosen[::-1], output=tmp_path / "two")
    assert (tmp_path / "one" / WEIGHTS).read_bytes() == (tmp_path / "two" / WEIGHTS).read_bytes()


def test_too_few_are_reported(run_dir):
    with pytest.raises(
        UserError,
        match=r"needs 9 checkpoints, .*run has 4 \(steps 3, 6, 9, 12\)\. .* or give --last 2\.",
    ):
        average_checkpoints.run(run_dir, last=9)
    assert not (run_dir / "average").exists()


def test_safety_checkpoints_do_not_enter(run_dir):
    write_manifest(checkpoint(run_dir, 12), {"kind": "safety", "step": 12})
    average_checkpoints.run(run_dir, last=2)
    manifest = json.loads((run_dir / "average" / MANIFEST).read_text())
    assert [part["step"] for part in manifest["averaged"]] == [6, 9]


def test_a_damaged_one_is_named(run_dir):
    (checkpoint(run_dir, 9) / WEIGHTS).write_bytes(b"")
    with pytest.raises(DamagedError, match=r"step-00000009/model.safetensors has 0 bytes"):
        average_checkpoints.run(run_dir, last=4)
    assert not (run_dir / "average").exists()


def test_other_models_do_not_fit(run_dir, toy, tmp_path):
    other = tmp_path / "other"
    train.run(
        str(toy.recipe_path),
        overrides=["model.d_ff=30", "training.max_steps=3", "validation.bleu=off"],
        prepared=toy.prepared,
        run_dir=other,
        device="cpu",
    )
    with pytest.raises(UserError, match="has another model than"):
        average_checkpoints.run(run_dir, checkpoints=[checkpoint(run_dir, 3), checkpoint(other, 3)])


def test_a_checkpoint_or_its_copy_is_not_averaged_twice(run_dir, tmp_path):
    first = checkpoint(run_dir, 3)
    copy = shutil.copytree(first, tmp_path / "copy")
    link = tmp_path / "link"
    link.symlink_to(first)
    for second, problem in (
        (copy, f"has the same weights as {first}; leave one of them out"),
        (first, "is given twice; give each checkpoint once"),
        (link, "is given twice; give each checkpoint once"),
    ):
        with pytest.raises(UserError) as caught:
            average_checkpoints.run(run_dir, checkpoints=[first, second])
        assert str(caught.value) == f"{second} {problem}."


def test_checkpoints_of_a_run_that_did_not_change_are_averaged_with_a_warning(run_dir, capsys):
    """As earlier versions wrote them after the learning rate had become 0."""
    for step in (9, 12):
        shutil.copy(checkpoint(run_dir, 6) / WEIGHTS, checkpoint(run_dir, step) / WEIGHTS)
        manifest = json.loads((checkpoint(run_dir, step) / MANIFEST).read_text())
        facts = {k: v for k, v in manifest.items() if k not in ("files", "manifest_sha256")}
        write_manifest(checkpoint(run_dir, step), facts)
    average_checkpoints.run(run_dir, last=4)
    assert "Warning: the checkpoints of steps 6, 9 and 12 have the same weights, " in (
        capsys.readouterr().err
    )
    found, first, other = map(
        read_weights, (run_dir / "average", checkpoint(run_dir, 3), checkpoint(run_dir, 6))
    )
    for name, weight in found.items():
        expected = (first[name].double() + 3 * other[name].double()) / 4
        assert torch.allclose(weight.double(), expected, rtol=1e-7, atol=1e-9)


def test_an_existing_average_is_kept_without_force(run_dir):
    average_checkpoints.run(run_dir, last=2)
    before = (run_dir / "average" / WEIGHTS).read_bytes()
    with pytest.raises(UserError, match="average already exists; add --force"):
        average_checkpoints.run(run_dir, last=3)
    assert (run_dir / "average" / WEIGHTS).read_bytes() == before
    average_checkpoints.run(run_dir, last=3, force=True)
    assert (run_dir / "average" / WEIGHTS).read_bytes() != before


def test_a_missing_run_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"run .*absent not found; give the run directory"):
        average_checkpoints.run(tmp_path / "absent")


def warnings_of(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("Warning: ")]


def renew(warning):
    """Run the command that the warning proposes; return how it ended."""
    arguments = shlex.split(warning.partition("to renew it run: ")[2])
    assert arguments[0] == "nmt-cli"
    return CliRunner().invoke(cli.main, arguments[1:], catch_exceptions=False)


def test_an_average_that_lacks_the_newest_checkpoint_is_used_with_a_warning(run_dir, capsys):
    average_checkpoints.run(
        run_dir,
        checkpoints=[checkpoint(run_dir, 3), checkpoint(run_dir, 6), checkpoint(run_dir, 9)],
    )
    capsys.readouterr()
    assert find_model(run_dir).path == run_dir / "average"
    (warning,) = warnings_of(capsys)
    assert warning == (
        f"Warning: {run_dir}/average was made of steps 3 to 9, without the newest checkpoint of "
        f"{run_dir}, of step 12. It is used as it is; to renew it run: "
        f"nmt-cli average-checkpoints {run_dir} --force"
    )
    assert renew(warning).exit_code == 0
    assert find_model(run_dir).path == run_dir / "average"
    assert warnings_of(capsys) == []


def test_the_command_that_renews_an_average_fits_few_checkpoints(
    run_dir, capsys, tmp_path, monkeypatch
):
    """The run began anew beside an old average: steps are lower, and too few for the recipe."""
    average_checkpoints.run(run_dir, last=2)
    monkeypatch.chdir(tmp_path)
    spaced = shutil.copytree(run_dir, Path("-my run"))
    for step in (6, 9, 12):
        shutil.rmtree(checkpoint(spaced, step))
    capsys.readouterr()
    find_model(spaced)
    (warning,) = warnings_of(capsys)
    assert "was made of steps 9 to 12, without the newest checkpoint of " in warning
    assert warning.endswith(f" './{spaced}' --last 1 --force")
    assert renew(warning).exit_code == 0
    find_model(spaced)
    assert warnings_of(capsys) == []


def test_an_average_of_another_training_is_noticed_at_the_same_step(run_dir, capsys):
    average_checkpoints.run(run_dir, last=2)
    weights = checkpoint(run_dir, 12) / WEIGHTS
    shutil.copy(checkpoint(run_dir, 3) / WEIGHTS, weights)
    write_manifest(checkpoint(run_dir, 12), {"kind": "final", "step": 12})
    capsys.readouterr()
    find_model(run_dir)
    (warning,) = warnings_of(capsys)
    assert "of steps 9 to 12, without the newest checkpoint" in warning
    assert renew(warning).exit_code == 0


def test_a_newer_safety_checkpoint_makes_no_average_stale(run_dir, capsys):
    write_manifest(checkpoint(run_dir, 12), {"kind": "safety", "step": 12})
    average_checkpoints.run(run_dir, last=2)
    capsys.readouterr()
    find_model(run_dir)
    assert warnings_of(capsys) == []


def test_a_run_that_was_moved_without_its_checkpoints_is_its_average(run_dir, capsys):
    average_checkpoints.run(run_dir, last=2)
    shutil.rmtree(run_dir / "checkpoints")
    capsys.readouterr()
    assert load_model(run_dir).path == run_dir / "average"
    assert warnings_of(capsys) == []


def test_a_second_averaging_into_the_same_folder_is_refused(run_dir):
    with (
        claimed(run_dir / "average", "--output"),
        pytest.raises(
            UserError, match=r"average is in use: process .*; wait .* another --output\."
        ),
    ):
        average_checkpoints.run(run_dir, last=2)
    average_checkpoints.run(run_dir, last=2)


def test_a_number_of_checkpoints_is_no_checkpoint(run_dir):
    with pytest.raises(UserError) as caught:
        average_checkpoints.run(run_dir, checkpoints=[Path("20")])
    assert str(caught.value) == (
        "20 is not a checkpoint folder; to average the last 20 give --last 20."
    )


def test_force_is_not_proposed_for_what_is_no_average(run_dir):
    (run_dir / "average").mkdir()
    (run_dir / "average" / "thesis.tex").write_text("years of work")
    for force in (False, True):
        with pytest.raises(UserError) as caught:
            average_checkpoints.run(run_dir, last=2, force=force)
        assert str(caught.value) == (
            f"{run_dir}/average exists and is not an average; choose another --output."
        )


def test_an_imported_model_is_no_average(run_dir, tmp_path):
    (tmp_path / "imported").mkdir()
    write_manifest(tmp_path / "imported", {"kind": "average", "imported": {"program": "marian"}})
    with pytest.raises(UserError, match="imported exists and is not an average; choose another"):
        average_checkpoints.run(run_dir, last=2, output=tmp_path / "imported", force=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("..", "holds runs; give {0}/../run."),
        ("checkpoints", "holds checkpoints; give {0}."),
        ("checkpoints/step-00000003", "is a checkpoint, not a run; give {0}."),
        ("checkpoints/step-00000003/manifest.json", "is a file; give {0}."),
    ],
)
def test_the_run_that_was_meant_is_named(run_dir, given, says):
    with pytest.raises(UserError) as caught:
        average_checkpoints.run(run_dir / given)
    assert str(caught.value) == f"{run_dir / given} {says.format(run_dir)}"


def test_for_safety_checkpoints_only_the_error_shows_how_to_average_them(run_dir):
    for step in (3, 6, 9, 12):
        path = checkpoint(run_dir, step)
        manifest = json.loads((path / MANIFEST).read_text())
        facts = {k: v for k, v in manifest.items() if k not in ("files", "manifest_sha256")}
        write_manifest(path, {**facts, "kind": "safety"})
    with pytest.raises(UserError, match=r"saved for safety, such as .*step-00000012") as error:
        average_checkpoints.run(run_dir)
    option, path = shlex.split(str(error.value).removesuffix("."))[-2:]
    assert option == "--checkpoints"
    average_checkpoints.run(run_dir, checkpoints=[Path(path)])
