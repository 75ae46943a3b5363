"""Workers share a text: in order, bounded, and whatever happens to a worker."""

import os
import signal
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.translating.interface.request import Request, numbered
from nmt_cli.translating.workers import dispatcher
from nmt_cli.translating.workers.messages import WorkerBugError
from nmt_cli.translating.workers.text_workers import TextWorkers
from nmt_cli.translating.workers.worker_process import LINES_OF_A_TEXT, MostLines
from tests.translating.fake_workers import FakeTranslator, ForkingStarter

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@contextmanager
def opened(num_workers, load):
    with closing(TextWorkers(ForkingStarter(load), num_workers)) as workers:
        workers.open()
        yield workers


@pytest.fixture
def translate(tmp_path):
    """Return the texts, or errors, of windows that workers translate."""

    def call(windows, num_workers=2):
        with opened(num_workers, lambda: FakeTranslator(tmp_path)) as workers:
            requests = (list(numbered(window)) for window in windows)
            return [
                [translation.error or translation.text for translation in translations]
                for translations in workers.translate_windows(requests)
            ]

    return call


def windows_of(lines, size):
    return [lines[start : start + size] for start in range(0, len(lines), size)]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_windows_come_out_whole_and_in_order(translate, num_workers):
    lines = [f"{'slow ' if number % 17 == 0 else ''}{number}" for number in range(100)]
    windows = windows_of(lines, 7)
    assert translate(windows, num_workers) == windows
    assert translate([], num_workers) == []


def test_all_workers_get_lines_of_a_single_window(tmp_path, monkeypatch):
    class Naming(FakeTranslator):
        def continuous_search(self, lines):
            search, whole = super().continuous_search(lines), lines.answer
            lines.answer = lambda key, answer: whole(key, replace(answer, text=str(os.getpid())))
            return search

    window = [Request(f"slow {number}", line=number) for number in range(300)]
    monkeypatch.setitem(LINES_OF_A_TEXT, "cpu", MostLines(20, 20))
    with opened(3, lambda: Naming(tmp_path)) as workers:
        (found,) = workers.translate_windows(iter([window]))
    assert len({each.text for each in found}) == 3


def test_killed_workers_are_replaced_without_a_lost_line(translate, capsys):
    logs.configure(quiet=False)
    lines = [f"{'once ' if number % 10 == 0 else ''}{number}" for number in range(60)]
    windows = windows_of(lines, 20)
    assert translate(windows) == windows
    assert "a worker process has died (signal SIGKILL); its lines are" in capsys.readouterr().err


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_line_that_kills_its_workers_fails_alone(translate, num_workers):
    lines = [str(number) for number in range(64)]
    lines[37] = "deadly"
    answers = [each for window in translate(windows_of(lines, 32), num_workers) for each in window]
    error = answers.pop(37)
    assert error == "the worker processes that translated it have died (status 9)"
    assert answers == lines[:37] + lines[38:]


def test_a_signal_without_a_name_has_its_number(translate):
    ((error,),) = translate([["real-time"]])
    assert error.endswith(f"have died (signal {signal.SIGRTMIN + 1})")


def test_workers_that_die_without_end_end_the_command(translate, monkeypatch):
    monkeypatch.setattr(dispatcher, "MOST_DEATHS_IN_A_ROW", 5)
    with pytest.raises(UserError, match=r"6 worker processes in a row have died \(status 9\)"):
        translate([["deadly"] * 64])


def test_workers_that_cannot_begin_end_the_command():
    def dies():
        os._exit(3)

    with (
        pytest.raises(UserError, match=r"end before they can begin \(status 3\)"),
        opened(2, dies),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "message"),
    [(UserError("no such model"), "no such model"), (MemoryError(), "there is not enough memory;")],
)
def test_a_model_that_is_refused_is_the_commands_error(error, message):
    def refuses():
        raise error

    with pytest.raises(UserError, match=message), opened(2, refuses):
        pass


def test_a_bug_is_raised_behind_the_lines_before(tmp_path):
    windows = [["a"], ["b", "once", "c", "bug", "d"], ["e"]]
    with opened(2, lambda: FakeTranslator(tmp_path)) as workers:
        translations = workers.translate_windows(list(numbered(each)) for each in windows)
        assert [translation.text for translation in next(translations)] == ["a"]
        with pytest.raises(LinesFailedError) as caught:
            next(translations)
    error = caught.value
    assert (error.first, error.last) == (3, 3)
    assert [translation.text for translation in error.finished] == ["b", "once", "c"]
    assert isinstance(error.__cause__, WorkerBugError)
    assert "TypeError: ours" in str(error.__cause__)


def test_few_windows_are_read_ahead(tmp_path):
    num_read = 0

    def windows():
        nonlocal num_read
        for number in range(100):
            num_read += 1
            yield [Request(str(number), line=number)]

    with opened(2, lambda: FakeTranslator(tmp_path)) as workers:
        for place, _ in enumerate(workers.translate_windows(windows()), start=1):
            time.sleep(0.001)
            assert num_read <= place + 2 * 2


def test_answers_come_while_the_input_stalls(tmp_path):
    goes_on = threading.Event()

    def windows():
        yield [Request("one", line=1)]
        goes_on.wait(20)
        yield [Request("two", line=2)]

    with opened(2, lambda: FakeTranslator(tmp_path)) as workers:
        translations = workers.translate_windows(windows())
        assert next(translations)[0].text == "one"
        goes_on.set()
        assert next(translations)[0].text == "two"


def test_an_error_of_the_input_comes_behind_the_windows_before(tmp_path):
    def windows():
        yield [Request("one", line=1)]
        yield [Request("two", line=2)]
        raise UserError("the input is damaged")

    with opened(2, lambda: FakeTranslator(tmp_path)) as workers:
        seen = []
        with pytest.raises(UserError, match="the input is damaged"):
            seen.extend(workers.translate_windows(windows()))
    assert [[each.text for each in window] for window in seen] in ([], [["one"], ["two"]])
