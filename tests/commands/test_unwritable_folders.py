"""A folder that cannot be written: each command names the option that chooses another place."""

import errno
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands.experiments import pipeline
from nmt_cli.files import locks
from nmt_cli.messages import logs
from nmt_cli.saved.run_directory import locked

pytestmark = pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs /proc, where no file can be made"
)
UNWRITABLE = "/proc/new"


@pytest.fixture
def trained(run, tmp_path, monkeypatch):
    """A folder with a run of two steps."""
    run("training.max_steps=2", "checkpoints.every_steps=1", "validation.bleu=off")
    monkeypatch.chdir(tmp_path)
    logs.configure(quiet=False)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("preprocess {recipe}", "--prepared"),
        ("train {recipe} --prepared {prepared} --device cpu", "--run-dir"),
        ("run {recipe} --until train --prepared {prepared} --device cpu", "--run-dir"),
        ("average-checkpoints run", "--output"),
        ("report run", "--output"),
        ("export run --format ctranslate2", "--output"),
        ("translate run --device cpu --input {recipe}", "--output"),
        ("rescore run {recipe} {recipe} --device cpu", "--output"),
        ("align {recipe} {recipe}", "--output"),
        ("data get wmt14-en-de", "--output"),
        ("data split {recipe} {recipe}", "--output"),
    ],
)
def test_the_option_for_another_place_is_named(trained, toy, command, option):
    words = command.format(recipe=toy.recipe_path, prepared=toy.prepared).split()
    result = CliRunner().invoke(cli.main, [*words, option, UNWRITABLE])
    assert result.exit_code == 1
    refused = rf"(Error|failed): /proc(/new)? cannot be used: [^;]*; choose another {option}\."
    assert re.search(refused, result.stderr), result.stderr


def test_a_run_that_can_only_be_read_must_be_copied_to_go_on(trained, monkeypatch):
    def refuse(lock, _):
        raise OSError(errno.EROFS, "Read-only file system", str(lock.parent))

    monkeypatch.setattr(locks, "_opened", refuse)
    refused = r"Read-only .*; choose another --run-dir, and copy the run there to go on with it\.$"
    with pytest.raises(locks.UnwritableOutputError, match=refused), locked(trained):
        pass


def test_run_names_its_own_option_for_what_its_stages_write():
    error = locks.UnwritableOutputError("runs cannot be used: x; choose another --output.")
    with (
        pytest.raises(locks.UnwritableOutputError, match=r"choose another --run-dir\. When"),
        pipeline.naming("report", "anew"),
    ):
        raise error
