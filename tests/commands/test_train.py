import errno
import fcntl
import hashlib
import json
import os
import shlex
import shutil
from unittest import mock

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.command_line import training
from nmt_cli.commands import average_checkpoints, train
from nmt_cli.files.atomic_files import read_manifest, write_manifest
from nmt_cli.files.temporary_names import temporary_path
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, InterruptedTrainingError, UserError
from nmt_cli.recipe.model_settings import as_json
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.model_directory import Model, find_model
from nmt_cli.training import training as training_module
from nmt_cli.training.gradient.gradient_sum import GradientFigures
from nmt_cli.training.validation import Validator
from tests.folders_in_memory import tmp_path as tmp_path
from tests.saved_weights import read_weights


def fingerprint(directory):
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_a_run_directory_describes_its_run(run, toy):
    directory = run("training.max_steps=3")
    assert {path.name for path in directory.iterdir()} - {"tensorboard"} == {
        "checkpoints", "metrics.jsonl", "recipe.yaml", "run.lock", "sessions.jsonl", "status.json"
    }  # fmt: skip
    assert (directory / "run.lock").read_bytes() == b""
    assert json.loads((directory / "status.json").read_text())["state"] == "finished"
    session = json.loads((directory / "sessions.jsonl").read_text())
    assert session["from_step"] == 0
    assert session["max_tokens_per_device"] == 60
    assert "torch" in session["versions"]
    assert "max_steps: 3" in (directory / "recipe.yaml").read_text()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_one_warning(run, monkeypatch, capsys, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    logs.configure(quiet=True)
    directory = run("training.max_steps=3")
    capsys.readouterr()
    newest = list_checkpoints(directory)[-1].path
    replaced = temporary_path(newest, "replaced")
    newest.rename(replaced)  # as if a process had been killed between its two renames
    partial = temporary_path(newest, "partial")
    partial.mkdir()
    run("training.max_steps=4", resume=True)
    warning = f"Warning: {directory} cannot be locked ({os.strerror(number)}): if another process"
    assert capsys.readouterr().err.count(warning) == 1
    assert [checkpoint.step for checkpoint in list_checkpoints(directory)] == [3, 4]
    assert partial.exists()  # another process may be writing it


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["training.max_steps=3"], "training.max_steps 3 was reached"),
        (["training.max_epochs=1"], "training.max_epochs 1 was reached"),
        (
            ["validation.patience=2", "validation.every_steps=1"],
            "2 validations in a row brought no improvement (validation.patience 2)",
        ),
        (
            ["training.max_steps=2", "validation.patience=2", "validation.every_steps=1"],
            "training.max_steps 2 was reached and 2 validations in a row brought no improvement "
            "(validation.patience 2)",
        ),
    ],
)
def test_why_training_ended_stands_in_its_last_line_and_its_status(
    run, monkeypatch, capsys, overrides, reason
):
    validate = Validator.validate

    def never_better(*arguments):
        measured = validate(*arguments)
        assert measured is not None
        return measured._replace(quality=None)

    monkeypatch.setattr(Validator, "validate", never_better)
    logs.configure(quiet=False)
    directory = run("validation.bleu=off", *overrides)
    *_, last, following = capsys.readouterr().err.splitlines()
    status = json.loads((directory / "status.json").read_text())
    assert last.startswith("Finished at step ")
    assert last.endswith(f" target tokens, because {reason}.")
    assert status["message"] == last
    assert following.startswith("Next: ")
    run("validation.bleu=off", *overrides, resume=True)
    assert capsys.readouterr().err.endswith(f"{directory} is finished; nothing to do. {last}\n")


def test_checkpoints_are_never_overwritten(run, tmp_path):
    run("training.max_steps=3")
    with pytest.raises(
        UserError,
        match=r"run already holds checkpoints up to step 3. Add --resume to continue, or choose",
    ):
        run("training.max_steps=3")


def test_a_finished_run_started_again_changes_nothing(run):
    directory = run("training.max_steps=3")
    before = fingerprint(directory)
    run("training.max_steps=3", resume=True)
    assert fingerprint(directory) == before


def test_resume_goes_on_with_what_may_change(run, capsys):
    logs.configure(quiet=False)
    directory = run("training.max_steps=3")
    run("training.max_steps=6", "validation.bleu=off", resume=True)
    assert capsys.readouterr().err.count("Recipe changed: ") == 2
    sessions = (directory / "sessions.jsonl").read_text().splitlines()
    assert [json.loads(line)["from_step"] for line in sessions] == [0, 3]


@pytest.mark.gpu
def test_a_resumed_training_on_a_gpu_is_bit_equal_where_that_is_asked_for(run, tmp_path):
    def weights(directory):
        return read_weights(list_checkpoints(directory)[-1].path)

    of_a_gpu = {"device": "cuda", "precision": "bf16", "deterministic": True}
    width = "model.d_model=40"  # heads of 8, which FlashAttention takes
    try:
        whole = run(width, "training.max_steps=6", run_dir=tmp_path / "whole", **of_a_gpu)
        run(width, "training.max_steps=3", **of_a_gpu)
        parts = run(width, "training.max_steps=6", resume=True, **of_a_gpu)
    finally:
        torch.use_deterministic_algorithms(False)
    expected = weights(whole)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(parts).items())


def test_resume_shows_old_and_new_of_what_may_not(run):
    run("training.max_steps=3")
    with pytest.raises(
        UserError,
        match=r"was trained with another recipe: model.d_ff \(was 28, is 30\) cannot change "
        r"within a run; training.seed \(was 1, is 2\) needs --allow-change training.seed\.",
    ):
        run("training.seed=2", "model.d_ff=30", resume=True)
    run("training.seed=2", "training.max_steps=4", resume=True, allowed_changes=["training.seed"])


def test_permission_to_change_a_key_that_does_not_exist_is_refused(run):
    run("training.max_steps=3")
    for key in ("training.max_step", "max_steps", "decodings"):
        with pytest.raises(UserError, match=f"--allow-change {key}: there is no such key"):
            run("training.max_steps=4", resume=True, allowed_changes=[key])


def test_a_forbidden_change_is_reported_before_text_is_prepared_again(run):
    run("training.max_steps=3")
    with pytest.raises(UserError, match=r"data.max_length .* cannot change within a run") as error:
        run("training.max_steps=4", "data.max_length=29", resume=True)
    assert "--force" not in str(error.value)


def test_resume_without_a_checkpoint_is_a_start(run):
    assert (run("training.max_steps=3", resume=True) / "checkpoints").is_dir()


def test_resume_never_starts_from_zero_beside_damaged_checkpoints(run):
    directory = run("training.max_steps=3")
    for manifest in directory.glob("checkpoints/*/manifest.json"):
        manifest.write_text("{}")
    with pytest.raises(UserError, match="holds no undamaged checkpoint"):
        run("training.max_steps=3", resume=True)


def test_leftovers_of_a_killed_save_are_removed(run):
    directory = run("training.max_steps=3")
    temporary_path(directory / "checkpoints" / "step-00000009", "partial").mkdir()
    run("training.max_steps=6", resume=True)
    assert not list((directory / "checkpoints").glob(".partial-*"))


def test_a_corpus_of_another_recipe_is_refused(run, tmp_path):
    with pytest.raises(UserError, match=r"was made with max_length 30, the recipe says 29"):
        run("data.max_length=29")
    assert not (tmp_path / "run").exists()


def test_a_damaged_corpus_is_refused(run, toy, tmp_path):
    prepared = tmp_path / "prepared"
    shutil.copytree(toy.prepared, prepared)
    tokens = bytearray((prepared / "train.target.tokens").read_bytes())
    tokens[-1] ^= 1
    (prepared / "train.target.tokens").write_bytes(tokens)
    with pytest.raises(DamagedError, match=r"train.target.tokens has changed"):
        run(prepared=prepared)
    assert not (tmp_path / "run").exists()


def test_a_pair_over_the_devices_limit_is_named(run, tmp_path):
    with pytest.raises(
        UserError,
        match=r"one sentence pair has 10 tokens, more than --max-tokens-per-device 9; raise it",
    ):
        run(max_tokens_per_device=9)


def test_a_resumed_run_reports_another_micro_batch_limit_once(run, capsys):
    run("training.max_steps=1", max_tokens_per_device=30)
    capsys.readouterr()
    logs.configure(quiet=False)
    for steps, limit, expected in ((2, None, 1), (3, None, 0), (4, 30, 1)):
        run(f"training.max_steps={steps}", resume=True, max_tokens_per_device=limit)
        assert capsys.readouterr().err.count("Micro-batches have at most") == expected


@pytest.mark.parametrize("name", ["recipe.yaml", "metrics.jsonl"])
def test_files_of_the_user_are_not_written_over(run, tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("mine")
    with pytest.raises(UserError, match=f"{name} exists and is not a run's"):
        run()
    assert (tmp_path / "run" / name).read_text() == "mine"


def test_a_run_killed_before_its_first_checkpoint_starts_anew(run, tmp_path):
    directory = run("training.max_steps=3")
    for checkpoint in directory.glob("checkpoints/step-*"):
        shutil.rmtree(checkpoint)
    run("training.max_steps=3")
    assert list(directory.glob("checkpoints/step-*"))


def test_a_file_is_no_run_directory(run, tmp_path):
    (tmp_path / "run").write_text("x")
    with pytest.raises(UserError, match="run is a file; choose another --run-dir"):
        run()


def test_an_unknown_device_is_named(run):
    with pytest.raises(UserError, match="--device must be auto, cpu, cuda or cuda:N, but is tpu"):
        run(device="tpu")


def test_init_from_starts_from_the_weights_of_another_run(run, tmp_path):
    parent = run("training.max_steps=3")
    child = run(
        "training.max_steps=1",
        "training.peak_learning_rate=1e-9",
        run_dir=tmp_path / "child",
        init_from=parent,
    )
    before, after = (read_weights(list_checkpoints(path)[-1].path) for path in (parent, child))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    origin = list_checkpoints(child)[-1].manifest["initialized_from"]
    assert origin["pieces_matched"] == origin["vocabulary_size"]
    run("training.max_steps=2", "training.peak_learning_rate=1e-9", run_dir=child, resume=True)
    assert list_checkpoints(child)[-1].manifest["initialized_from"] == origin


def with_characters(model, characters):
    """Let a model know these characters; None: nobody knows which it knows."""
    settings = Model(model, read_manifest(model)).settings._replace(characters=characters)
    (model / "config.json").write_text(as_json(settings), encoding="utf-8")
    facts = read_manifest(model)
    write_manifest(model, {name: fact for name, fact in facts.items() if name != "files"})


def characters_of(run_dir):
    return find_model(run_dir).settings.characters


def test_models_know_the_characters_of_all_that_they_were_trained_on(run, toy, tmp_path):
    parent = run("training.max_steps=3", "checkpoints.every_steps=1")
    own = toy.corpus.characters
    assert own == frozenset("".join(decoded_sources(toy))) - {" "}
    assert characters_of(parent) == own
    newest = list_checkpoints(parent)[-1].path
    with_characters(newest, own | {"ж"})
    average_checkpoints.run(parent, last=2)
    assert characters_of(parent) == own  # those of both checkpoints
    child = run("training.max_steps=1", run_dir=tmp_path / "child", init_from=newest)
    assert characters_of(child) == own | {"ж"}
    run("training.max_steps=2", run_dir=child, resume=True)
    assert characters_of(child) == own | {"ж"}
    with_characters(newest, None)
    other = run("training.max_steps=1", run_dir=tmp_path / "other", init_from=newest)
    assert characters_of(other) is None


def decoded_sources(toy):
    tokens, _ = toy.corpus.source.gather(np.arange(len(toy.corpus.source)))
    tokenizer = toy.corpus.tokenizer
    return tokenizer.pieces(sorted(set(tokens.tolist()) - {tokenizer.eos_id}), "source")


def test_time_that_is_up_stops_and_saves(run, tmp_path):
    with pytest.raises(
        InterruptedTrainingError, match=r"--max-time 0\.1s stopped training at step 1"
    ):
        run(max_time=0.1)  # counted from the start of this process, which took longer to import
    assert list_checkpoints(tmp_path / "run")[-1].step == 1
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["exit_status"] == 75
    assert status["message"].startswith("--max-time 0.1s stopped training at step 1;")


def test_a_training_without_a_finite_gradient_reports_it_in_its_status(run, tmp_path, monkeypatch):
    monkeypatch.setattr(training_module, "MAX_SKIPPED_IN_A_ROW", 1)
    monkeypatch.setattr(GradientFigures, "is_finite", False)
    with pytest.raises(UserError, match="training diverged"):
        run()
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["exit_status"]) == ("failed", 1)
    assert "training diverged" in status["message"]


def test_workers_get_the_options_that_were_given(run, monkeypatch):
    given = []
    monkeypatch.setattr(train, "run_workers", lambda _, arguments, *__: given.extend(arguments))
    run(devices=2, max_time=5_400.25, in_run=True)
    context = training.train.make_context("train", given[1:], **cli.main.context_settings)
    params = context.params
    assert (params["max_time"], params["in_run"]) == (5_400.25, True)


def test_the_recipe_that_training_leaves_means_the_run(run, tmp_path):
    directory = run("training.max_steps=3", run_dir=tmp_path / "first")
    (copied := tmp_path / "recipe.yaml").write_bytes((directory / "recipe.yaml").read_bytes())
    (checkpoint,) = list_checkpoints(directory)
    for path in (directory / "recipe.yaml", checkpoint.path / "recipe.yaml", copied):
        assert read_recipe(str(path)).name == "first"


@pytest.mark.parametrize(("keep", "options"), [(2, ""), (9, " --last 2")])
def test_the_next_command_averages_what_there_is_without_early_ones(run, tmp_path, keep, options):
    run_dir = tmp_path / "my run"
    with mock.patch.object(logs, "info") as told:
        run(f"checkpoints.keep_for_average={keep}", run_dir=run_dir)
    last = told.call_args.args[0]
    assert last == f"Next: nmt-cli average-checkpoints '{run_dir}'{options}"
    command = shlex.split(last)[2:]
    assert CliRunner().invoke(cli.main, command).exit_code == 0
    with mock.patch.object(logs, "info") as told:
        run(f"checkpoints.keep_for_average={keep}", "training.max_steps=13", run_dir=run_dir,
            resume=True)  # fmt: skip
    again = shlex.split(told.call_args.args[0])[2:]
    assert again[-1] == "--force"
    assert CliRunner().invoke(cli.main, again).exit_code == 0
