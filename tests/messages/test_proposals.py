"""Names that are near another one, and commands that can be pasted."""

import shlex
import subprocess
from pathlib import Path

import pytest

from nmt_cli.messages.proposals import as_argument, command, nearest, unused_name

OPTIONS = ["--beam-size", "--length-penalty", "--n-best", "--max-time", "--max-tokens-per-device"]
KEYS = ["relu_dropout", "attention_dropout", "dropout", "d_k", "d_v", "max_steps", "seed"]


@pytest.mark.parametrize(
    ("written", "known", "meant"),
    [
        ("--beam-sise", OPTIONS, ["--beam-size"]),  # a wrong letter
        ("--baem-size", OPTIONS, ["--beam-size"]),  # two swapped ones
        ("--n_bst", OPTIONS, ["--n-best"]),  # a missing one
        ("--beam", OPTIONS, ["--beam-size"]),  # words left out
        ("--tokens-per-device", OPTIONS, ["--max-tokens-per-device"]),
        ("--len", OPTIONS, ["--length-penalty"]),  # the rest left out
        ("d_x", KEYS, ["d_k", "d_v"]),
        ("attention", KEYS, ["attention_dropout"]),
    ],
)
def test_a_slip_or_a_part_of_a_name_is_near(written, known, meant):
    assert nearest(written, known) == meant


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("--min-length", OPTIONS),
        ("--max-steps", OPTIONS),
        ("bpe_dropout", KEYS),
        ("emb_dropout", KEYS),
        ("dk", KEYS),
        ("", KEYS),
        ("--", OPTIONS),
        ("x" * 1000, KEYS),
    ],
)
def test_another_name_is_not_near(written, known):
    assert nearest(written, known) == []


def test_many_names_are_no_proposal():
    assert nearest("max", ["max_steps", "max_epochs", "max_length"]) == []


@pytest.mark.parametrize("name", ["-dash", "--help", "it's one", "$HOME", "-", "plain", "a/-b"])
def test_a_proposed_command_works_as_it_is_pasted(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("content")
    pasted = command("cat", Path(name))
    assert subprocess.check_output(pasted, shell=True, text=True) == "content"
    assert Path(as_argument(Path(name))) == Path(name)


def test_only_paths_that_look_like_options_are_written_otherwise():
    assert command("train", Path("-a"), "--last", "3") == "train ./-a --last 3"
    assert command("train", Path("a"), Path("/-a")) == "train a /-a"


def test_an_unused_name_is_that_of_nothing(tmp_path):
    path = tmp_path / "keep.de"
    assert unused_name(path) == path
    path.write_text("precious")
    (tmp_path / "keep-2.de").symlink_to("nowhere")
    assert unused_name(path) == tmp_path / "keep-3.de"
    assert shlex.split(command(unused_name(path))) == [str(tmp_path / "keep-3.de")]
