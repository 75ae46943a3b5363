import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli.files.atomic_files import file_appearing_whole
from nmt_cli.files.output_streams import is_stream
from nmt_cli.messages.errors import UserError

WRITE = """
import sys
from pathlib import Path
from nmt_cli.files.atomic_files import file_appearing_whole
with file_appearing_whole(Path(sys.argv[1])) as stream:
    stream.write(b"output\\n")
"""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_output_to_a_descriptor_keeps_what_the_shell_writes_to_its_file(tmp_path, name):
    command = [sys.executable, "-c", WRITE, name]
    with (tmp_path / "out").open("wb", buffering=0) as out:
        out.write(b"header\n")
        subprocess.run(command, stdout=out, check=True)
        out.write(b"footer\n")
    assert (tmp_path / "out").read_text() == "header\noutput\nfooter\n"


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_output_to_a_descriptor_is_appended_where_it_was_opened_so(tmp_path, folder):
    (tmp_path / "log").write_bytes(b"precious\n")
    with (tmp_path / "log").open("ab") as log:
        with file_appearing_whole(Path(folder, str(log.fileno()))) as stream:
            stream.write(b"output\n")
        log.write(b"footer\n")  # the descriptor is still open
    assert (tmp_path / "log").read_text() == "precious\noutput\nfooter\n"


def test_a_descriptor_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "in").write_bytes(b"precious\n")
    with (tmp_path / "in").open("rb") as readable:
        for number in (readable.fileno(), 987):
            name = Path(f"/dev/fd/{number}")
            with pytest.raises(UserError, match=f"{name} is not open for writing; open it"):
                file_appearing_whole(name).__enter__()
    assert (tmp_path / "in").read_bytes() == b"precious\n"


def test_numbers_in_other_folders_are_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_stream(Path("1"))
    assert not is_stream(tmp_path / "missing" / "1")
    with file_appearing_whole(Path("1")) as stream:
        stream.write(b"x")
    assert os.listdir() == ["1"]  # noqa: PTH208
