"""What all commands print for bad input: tests/messages_of_bad_input.txt."""

import re

import pytest

from tests.messages_of_bad_input import PAIRS, TEXTS, make_folder, read_messages, run

WHERE = ("--", "runs/", "MODEL", "REFERENCES", "SOURCE")  # beside the names of files and keys


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the commands name, which they do not change."""
    path = tmp_path_factory.mktemp("bad_input")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        make_folder()
        yield path


@pytest.mark.parametrize("expected", read_messages(), ids=lambda message: message.command)
def test_bad_input_gets_its_message_and_status_and_changes_no_file(expected, folder):
    before = _files(folder)
    assert run(expected.command) == expected
    assert before.items() <= _files(folder).items()


def _files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("message", read_messages(), ids=lambda message: message.command)
def test_every_message_is_an_error_that_names_a_file_a_key_or_an_option(message):
    assert message.status in {1, 2}
    assert message.text.count("Error: ") == 1
    error = message.text[message.text.index("Error: ") :]
    names = {*re.split(r"[ =/]", message.command), *TEXTS, *dict(PAIRS.values()), *WHERE} - {""}
    assert any(name in error for name in names)
