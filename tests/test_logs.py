import io

import pytest

from nmt_cli import logs


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _loud():
    logs.configure(quiet=False)
    yield
    logs.configure(quiet=False)


def test_words_go_to_stderr(capsys):
    logs.info("hello")
    logs.warning("careful")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "hello\nWarning: careful\n"


def test_quiet_leaves_warnings(capsys):
    logs.configure(quiet=True)
    logs.info("hello")
    logs.warning("careful")
    assert capsys.readouterr().err == "Warning: careful\n"


def test_input_cannot_drive_the_terminal(capsys):
    logs.warning("line \x1b[31mred\x07")
    assert capsys.readouterr().err == "Warning: line \\x1b[31mred\\x07\n"


def test_a_log_gets_plain_lines_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_PLAIN_REPORTS", 0.0)
    with logs.progress("train", "steps", total=2_000) as counter:
        counter.advance(1_500, "loss 3.2")
    assert capsys.readouterr().err == "train: 1,500 of 2,000 steps  loss 3.2\n"


def test_a_log_is_not_flooded(capsys):
    with logs.progress("train", "steps") as counter:
        for _ in range(100):
            counter.advance()
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with logs.progress("train", "steps", total=3) as counter:
        counter.advance(3, "loss 3.2")
    assert "train" in terminal.getvalue()
    assert "/3" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")


def test_quiet_shows_no_progress(capsys, monkeypatch):
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_PLAIN_REPORTS", 0.0)
    logs.configure(quiet=True)
    with logs.progress("train", "steps", total=3) as counter:
        counter.advance(3)
    assert capsys.readouterr().err == ""
