import shlex
import subprocess
from pathlib import Path

import pytest

from nmt_cli.messages.proposals import as_argument, command, unused_name


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
