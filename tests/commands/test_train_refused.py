"""A training that is refused changes nothing, and its message states what to do."""

import hashlib
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import train
from nmt_cli.files.temporary_names import temporary_path
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError, UserError
from nmt_cli.saved.run_directory import locked
from nmt_cli.training.trainer import Trainer


def tree(folder):
    """Return a hash of every file, None for a folder, by path."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def write(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)


FOLDERS = {
    "absent": lambda folder, toy: None,
    "empty": lambda folder, toy: folder.mkdir(parents=True),
    "the user's": lambda folder, toy: write(folder / "thesis.tex", "years of work"),
    "a corpus": lambda folder, toy: shutil.copytree(toy.prepared, folder),
    "a run": lambda folder, toy: write(folder / "sessions.jsonl", ""),
    "a folder of runs": lambda folder, toy: write(folder / "base" / "sessions.jsonl", ""),
}
REFUSALS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "no model to start from": (["training.max_steps=3"], {"init_from": Path("absent")}),
    "a pair that is too long": (["training.max_steps=3"], {"max_tokens_per_device": 9}),
    "no such option": ([], {"device": "tpu"}),
}


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refused_training_changes_nothing(run, toy, tmp_path, folder, refusal):
    FOLDERS[folder](tmp_path / "some" / "run", toy)
    before = tree(tmp_path)
    overrides, options = REFUSALS[refusal]
    with pytest.raises(UserError):
        run(*overrides, run_dir=tmp_path / "some" / "run", **options)
    assert tree(tmp_path) == before


PLACE = {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": "a", "MASTER_PORT": 29500}


@pytest.mark.parametrize("names", [["RANK", "WORLD_SIZE"], ["WORLD_SIZE"], [*PLACE]])
def test_a_place_among_workers_that_torchrun_did_not_give_is_refused(run, monkeypatch, names):
    for name in names:
        monkeypatch.setenv(name, str(PLACE[name]))
    values = " ".join(f"{name}={PLACE[name]}" for name in names)
    with pytest.raises(UserError) as caught:
        run("training.max_steps=3")
    assert str(caught.value) == (
        f"the environment has {values}, as for one of several processes, but torchrun did not "
        "start this one (TORCHELASTIC_RUN_ID is not set). To train with one process: unset "
        f"{' '.join(names)}. For several, give --devices or --nnodes, or use torchrun."
    )
    monkeypatch.setenv("WORLD_SIZE", "1")  # as a cluster sets it for a job of one process
    run("training.max_steps=3")


def test_variables_that_a_shell_kept_do_not_reach_the_workers(run, monkeypatch):
    for name, value in PLACE.items():
        monkeypatch.setenv(name, str(value))
    launched = []
    monkeypatch.setattr(train, "run_workers", lambda number, *_: launched.append(number))
    run("training.max_steps=3", devices=2)
    assert launched == [2]


def test_a_refused_training_on_several_devices_changes_nothing(run, tmp_path):
    """Its launcher checks the run directory before it starts workers."""
    finished = run("training.max_steps=3")
    (finished / "run.lock").unlink()
    before = tree(tmp_path)
    with pytest.raises(UserError, match="needs --allow-change"):
        run("training.max_steps=3", "training.seed=2", resume=True, devices=2)
    with pytest.raises(UserError, match="already holds checkpoints"):
        run("training.max_steps=3", devices=2)
    assert tree(tmp_path) == before


def test_a_folder_that_is_no_run_is_named(run, toy, tmp_path):
    with pytest.raises(UserError, match="prepared is a prepared corpus, not a run; choose another"):
        run(run_dir=toy.prepared)
    write(tmp_path / "runs" / "base" / "metrics.jsonl", "")
    with pytest.raises(UserError, match="runs holds runs; choose another --run-dir"):
        run(run_dir=tmp_path / "runs")
    with pytest.raises(UserError, match=r"^/ is the whole file system; choose another --run-dir"):
        run(run_dir=Path("/"))


def test_a_process_that_trains_keeps_its_lock_when_another_is_refused(run, tmp_path):
    with locked(tmp_path / "run"):
        before = (tmp_path / "run" / "run.lock").read_bytes()
        with pytest.raises(UserError, match=r"run is in use: process \d+ on \S+ trains in it"):
            run()
        assert (tmp_path / "run" / "run.lock").read_bytes() == before


def test_advice_repeats_the_users_own_options(toy, tmp_path):
    """The command that is proposed makes what was missing."""
    recipe, prepared = tmp_path / "my recipe.yaml", tmp_path / "there"
    recipe.write_text(toy.recipe_path.read_text())
    text = ["--set", "data.max_length=20", "--set", "data.normalization={nfc: true}"]
    arguments = ["train", str(recipe), "--prepared", str(prepared), *text, "--device=cpu"]
    arguments += [f"--run-dir={tmp_path / 'run'}", "--max-tokens-per-device=3"]
    refused = CliRunner().invoke(cli.main, arguments)
    found, _, command = refused.stderr.strip().partition(" not found. Run: ")
    assert found == f"Error: {prepared}"
    assert shlex.split(command) == [
        "nmt-cli", "preprocess", str(recipe), *text, "--prepared", str(prepared)
    ]  # fmt: skip
    assert CliRunner().invoke(cli.main, shlex.split(command)[1:]).exit_code == 0
    assert "more than --max-tokens" in CliRunner().invoke(cli.main, arguments).stderr
    arguments[arguments.index(text[1])] = "data.max_length=25"
    stale = CliRunner().invoke(cli.main, arguments)
    assert "was made with max_length 20, the recipe says 25. " in stale.stderr
    command = stale.stderr.strip().partition(" Correct the recipe or make it again: ")[2]
    assert CliRunner().invoke(cli.main, shlex.split(command)[1:]).exit_code == 0
    assert "more than --max-tokens" in CliRunner().invoke(cli.main, arguments).stderr


def test_what_does_not_change_the_text_is_not_repeated(run, toy, tmp_path):
    with pytest.raises(UserError) as caught:
        run("training.max_steps=3", prepared=None)
    assert str(caught.value) == (
        f"prepared/toy not found. Run: nmt-cli preprocess {toy.recipe_path}"
    )
    assert not (tmp_path / "run").exists()


def test_a_prepared_text_of_the_same_recipe_under_another_name_is_proposed(run, toy, tmp_path):
    folder = tmp_path / "prepared"
    shutil.copytree(toy.prepared, folder / "exp1")
    shutil.copytree(toy.prepared, folder / ".partial-exp0")
    (folder / "no corpus").mkdir()
    other = ("data.max_length=20",)  # was not prepared
    for overrides, proposed in (
        ((), f"{folder}/exp2 not found, but {folder}/exp1 was made from the same text: give "
         f"--prepared {folder}/exp1. Or run: nmt-cli preprocess {toy.recipe_path} --prepared "
         f"{folder}/exp2"),
        (other, f"{folder}/exp2 not found. Run: nmt-cli preprocess {toy.recipe_path} --set "
         f"{other[0]} --prepared {folder}/exp2"),
    ):  # fmt: skip
        with pytest.raises(UserError) as caught:
            run(*overrides, prepared=folder / "exp2")
        assert str(caught.value) == proposed


def test_a_run_of_the_same_recipe_is_named_where_there_is_none_to_resume(run, tmp_path, capsys):
    short = ("training.max_steps=2", "validation.bleu=off")
    run(*short, run_dir=tmp_path / "runs" / "exp 1")
    logs.configure(quiet=False)
    anew = "holds no checkpoint to resume from; training starts anew."
    hint = " To continue a run of this recipe, give --run-dir "
    for folder, seed, is_named in (
        ("runs/exp2", 1, True),
        ("runs/exp3", 2, False),
        ("x/y", 1, False),
    ):
        run(*short, f"training.seed={seed}", run_dir=tmp_path / folder, resume=True)
        written = capsys.readouterr().err
        assert f"Warning: {tmp_path / folder} {anew}" in written
        assert (f"{hint}'{tmp_path}/runs/exp 1'." in written) == is_named


def test_a_prepared_text_is_not_replaced_while_a_training_reads_it(run, toy, tmp_path, monkeypatch):
    prepared = tmp_path / "prepared" / "toy"
    shutil.copytree(toy.prepared, prepared)
    again = ["preprocess", str(toy.recipe_path), "--prepared", str(prepared), "--force"]
    results = []

    def train_meanwhile(self, stop):
        before = tree(prepared)
        results.append(CliRunner().invoke(cli.main, again))
        assert tree(prepared) == before
        raise UserError("enough")

    monkeypatch.setattr(Trainer, "train", train_meanwhile)
    with pytest.raises(UserError, match="enough"):
        run("training.max_steps=2", prepared=prepared)
    assert results[0].exit_code == 1
    assert results[0].stderr == (
        f"Error: {prepared} is in use: a training reads it; wait for its end, or choose another "
        "--prepared.\n"
    )
    assert CliRunner().invoke(cli.main, again).exit_code == 0


PREPARED_INSTEAD = {
    "file": "is a file; give the folder that preprocess wrote.",
    "above": "holds prepared corpora; give {folder}/words.",
    "run": "is a run, not a prepared corpus; give the folder that preprocess wrote.",
    "mine": "is not a prepared corpus; give the folder that preprocess wrote.",
}


@pytest.mark.parametrize("name", PREPARED_INSTEAD)
def test_what_is_no_prepared_corpus_is_named_without_force(run, toy, tmp_path, name):
    write(tmp_path / "folder" / "file", "x")
    (tmp_path / "folder" / "above").mkdir()
    (tmp_path / "folder" / "above" / "words").symlink_to(toy.prepared)
    write(tmp_path / "folder" / "run" / "sessions.jsonl", "")
    write(tmp_path / "folder" / "mine" / "thesis.tex", "years of work")
    given = tmp_path / "folder" / name
    with pytest.raises(UserError) as caught:
        run(prepared=given)
    assert str(caught.value) == f"{given} {PREPARED_INSTEAD[name].format(folder=given)}"


def test_a_corpus_that_was_being_replaced_by_a_killed_process_is_found(run, toy, tmp_path):
    shutil.copytree(toy.prepared, temporary_path(tmp_path / "prepared", "replaced"))
    run("training.max_steps=1", prepared=tmp_path / "prepared")


def test_too_little_space_is_reported_in_numbers_that_differ(run, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=110_000))
    with pytest.raises(OutputError, match=r"checkpoint in \S+: 1 MiB needed, 0 MiB free"):
        run("training.max_steps=1")
