import fcntl
import io
import os
import re
import struct
import termios
import time
from typing import Any

import pytest

from nmt_cli.messages import logs


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


@pytest.fixture
def clock(monkeypatch):
    """Let a report come at every count, on a clock that the test moves."""
    now = [1000.0]
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_PLAIN_REPORTS", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_lines_with_the_total_and_the_time_left(capsys, clock):
    with logs.progress("train", "steps", total=2_000) as counter:
        clock[0] += 75
        counter.advance(1_500, "loss 3.2")
    assert capsys.readouterr().err == (
        "train: 1,500 of 2,000 steps, 20 steps/s, 01:15 elapsed, 00:25 left  loss 3.2\n"
    )


def test_the_time_left_of_a_resumed_run_is_that_of_its_own_steps(capsys, clock):
    with logs.progress("train", "steps", total=100_000, initial=90_000) as counter:
        clock[0] += 4000
        counter.advance(1_000)
    assert capsys.readouterr().err == (
        "train: 91,000 of 100,000 steps, 0.25 steps/s, 1:06:40 elapsed, 10:00:00 left\n"
    )


def test_without_a_total_there_is_count_rate_and_time(capsys, clock):
    with logs.progress("Translating", "lines") as counter:
        clock[0] += 10
        counter.advance(512)
    assert capsys.readouterr().err == "Translating: 512 lines, 51 lines/s, 00:10 elapsed\n"


def test_an_estimated_total_is_called_so_until_it_is_known(capsys, clock):
    with logs.progress("Translating", "lines") as counter:
        for total, is_estimate in ((2900, True), (3003, False), (10, True)):
            clock[0] += 10
            counter.expect(total, is_estimate)
            counter.advance(500)
    assert capsys.readouterr().err.splitlines() == [
        "Translating: 500 of about 2,900 lines, 50 lines/s, 00:10 elapsed, 00:48 left",
        "Translating: 1,000 of 3,003 lines, 50 lines/s, 00:20 elapsed, 00:40 left",
        "Translating: 1,500 of about 1,500 lines, 50 lines/s, 00:30 elapsed, 00:00 left",
    ]


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


def test_a_bar_takes_over_the_expected_total(monkeypatch):
    terminal, now = Terminal(), [1000.0]
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    with logs.progress("Translating", "lines") as counter:
        counter.expect(3003)
        now[0] += 1.0  # tqdm draws once in 0.1 s
        counter.advance(1500)
    assert "1,500/3,003" in terminal.getvalue()


def _resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))


@pytest.fixture
def pseudo_terminal(monkeypatch, clock):
    """Return a function that moves the clock and returns the bar that a count then draws."""
    ours, theirs = os.openpty()
    _resize(ours, 80)
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    stderr: Any = Terminal()
    stderr.fileno = lambda: theirs

    def draw(counter, columns, amount, notes=None):
        _resize(ours, columns)
        clock[0] += 680
        counter.advance(amount, notes)
        (bar,) = re.findall(r"([^\r]+)\x1b\[J\r$", stderr.getvalue())
        return bar

    drawn: Any = draw
    drawn.stderr = stderr
    yield drawn
    os.close(ours)
    os.close(theirs)


NOTES = "loss 3.201, perplexity 20.15, lr 1.23e-04, norm 1.05, 5,120 target tokens/s"


def test_a_bar_has_the_fields_that_fit_the_terminal(pseudo_terminal, monkeypatch):
    monkeypatch.setattr("sys.stderr", pseudo_terminal.stderr)
    with logs.progress("train", "steps", total=20_000) as counter:
        for columns, count, more in (
            (200, "5,000/20,000, 34:00 left", f", {NOTES}, 7.4 steps/s, 11:20 elapsed"),
            (100, "10,000/20,000, 22:40 left", ", loss 3.201, perplexity 20.15, lr 1.23e-04"),
            (80, "15,000/20,000, 11:20 left", ", loss 3.201"),
            (60, "20,000/20,000, 00:00 left", ""),
            (40, "25,000/25,000", None),
        ):
            bar = pseudo_terminal(counter, columns, 5_000, NOTES)
            full = re.fullmatch(r"train \|(.+)\| (.+)", bar)
            assert full is not None
            assert len(bar) < columns
            assert len(full[1]) == (20 if columns > 40 else 16)
            assert full[2] == count + (more or "")


def test_a_bar_shows_when_the_work_ends_if_it_stops_before(pseudo_terminal, clock, monkeypatch):
    monkeypatch.setattr("sys.stderr", pseudo_terminal.stderr)
    end = clock[0] + 1360
    with logs.progress("train", "steps", total=20_000, deadline=end) as counter:
        assert "| 100/20,000, ends in 11:20" in pseudo_terminal(counter, 80, 100)
    with logs.progress("train", "steps", total=20_000, deadline=end + 1360) as counter:
        assert "| 19,000/20,000, 00:35 left" in pseudo_terminal(counter, 80, 19_000)


def test_a_bar_without_a_total_has_the_unit(pseudo_terminal, monkeypatch):
    monkeypatch.setattr("sys.stderr", pseudo_terminal.stderr)
    with logs.progress("{Reading} \x07", "pairs") as counter:
        expected = "{Reading} \\x07: 1,360 pairs, 2 pairs/s, 11:20 elapsed"
        assert pseudo_terminal(counter, 80, 1360) == expected


def test_hidden_progress_shows_nothing(capsys, clock, monkeypatch):
    with logs.progress("Translating", "lines", hidden=True) as counter:
        counter.advance(3)
    monkeypatch.setattr("sys.stderr", Terminal())
    with logs.progress("Translating", "lines", hidden=True) as counter:
        counter.advance(3)
    assert capsys.readouterr().err == ""


def test_quiet_shows_no_progress(capsys, monkeypatch):
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_PLAIN_REPORTS", 0.0)
    logs.configure(quiet=True)
    with logs.progress("train", "steps", total=3) as counter:
        counter.advance(3)
    assert capsys.readouterr().err == ""
