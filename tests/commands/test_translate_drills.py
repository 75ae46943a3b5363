"""The command as a process of its own, with real pipes and files: no line is lost or moved."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from tests.compressed import PACK, UNPACK
from tests.tagging import NASTY, digest, expected_output, forked, fuzzed

ROOT = Path(__file__).parents[2]
WRITE, READ = {".txt": bytes, **PACK}, {".txt": bytes, **UNPACK}
SIZES = [10_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
# Settings in which Python's own text streams cannot hold these lines, or are told other encodings.
LOCALES = [
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "1"},
    {"LC_ALL": "C.UTF-8"},
    {"LC_ALL": "tr_TR.ISO-8859-9", "PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "no_such_locale", "LANG": "", "PYTHONIOENCODING": "utf-16"},
]


class Running:
    """The command in a process that was forked, between two pipes."""

    def __init__(self, folder, *arguments):
        self.stderr = folder / "stderr"
        in_reading, self.stdin = os.pipe()
        self.stdout, out_writing = os.pipe()
        # One process, because the translator is a fake that others would not have.
        words = ["translate", "model", "--device=cpu", "--workers=1", *map(str, arguments)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # pytest has other threads
            self.process = forked(words, in_reading, out_writing, self.stderr)
        os.close(in_reading)
        os.close(out_writing)

    def feed(self, data):
        """Write ``data`` to stdin from a thread, and close it."""

        def write():
            try:
                with os.fdopen(self.stdin, "wb") as stream:
                    for start in range(0, len(data), 4096):
                        stream.write(data[start : start + 4096])
                        self.num_fed = start
            except BrokenPipeError:
                pass

        self.num_fed = 0
        threading.Thread(target=write, daemon=True).start()

    def output(self):
        """Return all that the command writes to stdout."""
        with os.fdopen(self.stdout, "rb") as stream:
            return stream.read()

    def status(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


@pytest.mark.parametrize("num_lines", SIZES)
@pytest.mark.parametrize("seed", [1, 2])
def test_fuzzed_lines_through_stdin_and_stdout(tmp_path, num_lines, seed):
    data = fuzzed(num_lines // 2, seed)
    command = Running(tmp_path)
    command.feed(data)
    assert command.output() == expected_output(data, digest)
    assert command.status() == 0, command.stderr.read_text()


@pytest.mark.parametrize("num_lines", SIZES)
@pytest.mark.parametrize("suffix", WRITE)
def test_fuzzed_lines_of_files(tmp_path, num_lines, suffix):
    data = fuzzed(num_lines // len(WRITE), len(suffix))
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    source.write_bytes(WRITE[suffix](data))
    command = Running(tmp_path, "--input", source, "--output", target)
    os.close(command.stdin)
    assert command.output() == b""
    assert command.status() == 0, command.stderr.read_text()
    assert READ[suffix](target.read_bytes()) == expected_output(data, digest)


def test_a_reader_that_waits_stops_the_reading(tmp_path):
    data = b"a line\n" * 60_000
    command = Running(tmp_path)
    command.feed(data)
    before = -1
    while command.num_fed > before:  # until nothing more is taken
        before = command.num_fed
        time.sleep(0.1)
    assert before < len(data) / 2
    assert command.output() == expected_output(data, digest)
    assert command.status() == 0


def test_a_reader_that_took_enough_ends_the_command(tmp_path):
    command = Running(tmp_path)
    command.feed(b"a line\n" * 400_000)
    assert os.read(command.stdout, 5) == digest("a line")[:5].encode()
    os.close(command.stdout)  # as head -1 does
    assert command.status() == 141
    assert command.stderr.read_text() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_that_waits(tmp_path, number):
    command = Running(tmp_path)
    os.write(command.stdin, b"a line\n")
    assert os.read(command.stdout, 99) == digest("a line").encode() + b"\n"  # input is still open
    os.kill(command.process, number)
    assert command.status() == 128 + number


def test_a_command_under_nohup_outlives_its_terminal(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        command = Running(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    answer = digest("a line").encode() + b"\n"
    for _ in range(2):
        os.write(command.stdin, b"a line\n")
        assert os.read(command.stdout, 99) == answer
        os.kill(command.process, signal.SIGHUP)
    os.close(command.stdin)
    assert command.status() == 0


@pytest.mark.parametrize(
    "variables",
    [LOCALES[0], *(pytest.param(other, marks=pytest.mark.slow) for other in LOCALES[1:])],
    ids=lambda variables: variables["LC_ALL"],
)
def test_no_locale_changes_a_byte(variables):
    data = fuzzed(1000, 3) + b"\n" + b"\n".join(NASTY)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))
    }
    result = subprocess.run(
        [sys.executable, "-m", "tests.tagging", "translate", "model", "--device=cpu"],
        cwd=ROOT,
        env={**environment, **variables},
        input=data,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == expected_output(data, digest)
