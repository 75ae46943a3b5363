"""Folders above, below and beside what was meant, as users give them from where they stand."""

import json
from pathlib import Path

import pytest

from nmt_cli.files.atomic_files import write_manifest
from nmt_cli.files.folders import not_a_run, what_to_give
from nmt_cli.files.formats import OtherFormatError
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.saved.model_directory import find_model

MODEL = "a model directory, a checkpoint or a run directory"


def make(path, kind=None, step=4, **facts):
    path.mkdir(parents=True)
    if kind is not None:
        write_manifest(path, {"kind": kind, "step": step, **facts})


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with prepared text, two runs, an average, a report and what is the user's."""
    monkeypatch.chdir(tmp_path)
    for run in ("base", "big"):
        make(Path(f"runs/{run}/tensorboard"))
        Path(f"runs/{run}/sessions.jsonl").write_text("{}\n")
    make(Path("runs/base/checkpoints/step-00000004"), "regular")
    make(Path("runs/base/checkpoints/step-00000008"), "final", 8)
    make(Path("runs/big/average"), "average")
    make(Path("runs/big/report"), "report")
    make(Path("prepared/base"), "prepared")
    make(Path("imported"), "average", imported={"from": "marian"})
    make(Path("empty"))
    make(Path("mine"))
    Path("mine/thesis.tex").write_text("years of work")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        ("runs", "model", "runs holds runs; give one of them: runs/base, runs/big."),
        ("runs", "run", "runs holds runs; give one of them: runs/base, runs/big."),
        (".", "run", ". holds runs; give one of them: runs/base, runs/big."),
        (
            "runs/base/checkpoints",
            "model",
            "runs/base/checkpoints holds checkpoints; give runs/base or one of them, "
            "such as runs/base/checkpoints/step-00000008.",
        ),
        (
            "runs/base/checkpoints",
            "run",
            "runs/base/checkpoints holds checkpoints; give runs/base.",
        ),
        ("runs/big/average", "run", "runs/big/average is an average, not a run; give runs/big."),
        (
            "imported",
            "run",
            "imported is an imported model, not a run; give the run directory that train wrote.",
        ),
        (
            "runs/big/average/manifest.json",
            "model",
            "runs/big/average/manifest.json is a file; give runs/big/average.",
        ),
        ("runs/big/report", "model", "runs/big/report is a report, not a model; give runs/big."),
        ("runs/big/tensorboard", "model", "runs/big/tensorboard is empty; give runs/big."),
        (
            "prepared/base",
            "model",
            f"prepared/base is a prepared corpus, not a model; give {MODEL}.",
        ),
        ("prepared", "prepared corpus", "prepared holds prepared corpora; give prepared/base."),
        (
            "runs/base",
            "prepared corpus",
            "runs/base is a run, not a prepared corpus; give the folder that preprocess wrote.",
        ),
        ("empty", "run", "empty is empty; give the run directory that train wrote."),
        ("mine", "model", f"mine is not a model; give {MODEL}."),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_a_folder_is_and_which_was_meant_is_named(given, wanted, expected):
    assert what_to_give(Path(given), wanted) == expected


def test_the_advice_is_right_from_where_the_user_stands(project, monkeypatch):
    monkeypatch.chdir(project / "runs/base/checkpoints")
    assert what_to_give(Path(), "run") == ". holds checkpoints; give ../."
    monkeypatch.chdir(project / "runs/base")
    advice = what_to_give(Path("checkpoints"), "model")
    assert advice == (
        "checkpoints holds checkpoints; give ./ or one of them, such as checkpoints/step-00000008."
    )
    assert find_model(Path("./")).path == Path("checkpoints/step-00000008")


def test_of_many_folders_some_are_named(tmp_path):
    for number in range(7):
        make(tmp_path / f"{number}", "average")
    named = ", ".join(str(tmp_path / str(number)) for number in range(5))
    assert what_to_give(tmp_path, "model") == (
        f"{tmp_path} holds models; give one of them: {named} and 2 more."
    )


def test_a_folder_to_give_is_never_taken_for_an_option(project):
    make(Path("-dash/base"), "average")
    assert what_to_give(Path("-dash"), "model") == "-dash holds models; give ./-dash/base."


def test_a_neighbour_of_a_newer_format_is_passed_over(project):
    for newer in (project / "runs/newer", project / "newer"):
        make(newer)
        manifest = {"format_version": 99, "kind": "average", "files": {}}
        (newer / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(OtherFormatError):
            what_to_give(newer, "model")
    found = what_to_give(project / "runs", "model")
    assert (
        found
        == f"{project}/runs holds runs; give one of them: {project}/runs/base, {project}/runs/big."
    )


@pytest.mark.parametrize("newer", [["4"], ["8"], ["4", "8"]])
@pytest.mark.usefixtures("project")
def test_a_checkpoint_of_a_newer_format_is_a_checkpoint(newer):
    checkpoints = Path("runs/base/checkpoints")
    for step in newer:
        manifest = {"format_version": 99, "kind": "regular", "files": {}}
        (checkpoints / f"step-0000000{step}/manifest.json").write_text(json.dumps(manifest))
    assert what_to_give(checkpoints, "run") == f"{checkpoints} holds checkpoints; give runs/base."
    assert not_a_run(checkpoints) == "holds checkpoints"


@pytest.mark.parametrize(
    "names",
    [
        ["model.bin", "config.json"],
        ["model.safetensors", "generation_config.json"],
        ["model.npz"],
        ["model.00.safetensors"],
        ["checkpoint_best.pt"],
    ],
)
def test_models_of_other_programs_are_to_be_imported(project, names):
    make(Path("their's"))
    for name in names:
        Path("their's", name).touch()
    Path("imported").touch()
    with pytest.raises(UserError) as caught:
        find_model(Path("their's"))
    assert str(caught.value) == (
        "their's is not a model of nmt-cli; if it is one of another program, run: "
        """nmt-cli import 'their'"'"'s' --output imported-2"""
    )
    if names[0].endswith(".pt"):
        with pytest.raises(UserError, match="is not a model of nmt-cli; if it is one of another"):
            find_model(Path("their's", names[0]))


def test_a_model_that_lacks_its_manifest_is_damaged(project):
    make(Path("model"))
    for name in ("model.safetensors", "config.json"):
        Path("model", name).touch()
    with pytest.raises(DamagedError, match="manifest"):
        find_model(Path("model"))
