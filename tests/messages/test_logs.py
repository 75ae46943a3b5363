import io
import time

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
    assert "1500/3003" in terminal.getvalue()


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
