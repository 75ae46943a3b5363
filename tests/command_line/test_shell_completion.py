"""Shells complete commands, recipes, runs and keys, without loading what training needs."""

import shutil
import subprocess

import pytest
from click.testing import CliRunner

from nmt_cli.cli import main
from nmt_cli.command_line.completion import VARIABLE
from tests.imported_modules import ended

HEAVY = {"torch", "numpy", "pydantic", "yaml", "sentencepiece", "sacrebleu"}


def completed(words, folder):
    """Return what bash gets for the last of ``words``, and check what was imported for it."""
    typed = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    found = ended([], folder, {**typed, VARIABLE: "bash_complete"})
    assert found.stderr == ""
    assert not found.modules & HEAVY
    return found.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tra"], ["plain,train", "plain,translate"]),
        (["train", "--dev"], ["plain,--device", "plain,--devices"]),
        (["preprocess", "base"], ["file,base", "plain,base", "plain,base-en-fr"]),
        (["compare", "quick"], ["file,quick", "plain,quickstart"]),
        (["train", "base", "--set", "training.max_st"], ["plain,training.max_steps="]),
        (["translate", "ru"], ["file,ru", "plain,runs/mine", "plain,runs/other"]),
        (["report", "runs/mine", "runs/o"], ["file,runs/o", "plain,runs/other"]),
        (["data", "get", "wmt14-en-d"], ["plain,wmt14-en-de"]),
        (["data", "get", "op"], ["plain,opus:"]),
        (["inspect", "runs/m"], ["file,runs/m", "plain,runs/mine"]),
    ],
)
def test_words_are_completed(words, expected, tmp_path):
    for run in ("mine", "other"):
        (tmp_path / "runs" / run).mkdir(parents=True)
    (tmp_path / "runs/notes.txt").touch()
    assert completed(["nmt-cli", *words], tmp_path) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_it_can_read(shell):
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0
    assert VARIABLE in script.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script.stdout, text=True, check=True)
