"""Workers share a stream: in order, bounded, and whatever happens to a worker."""

import os
import signal
import threading
import time
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import Pipe
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers import pool
from nmt_cli.translating.workers.pool import WorkerBugError, WorkerPool
from nmt_cli.translating.workers.process import work

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Fake:
    """Answers a line with the window that it is in; some lines kill the process."""

    def __init__(self, folder):
        self.folder = folder
        self.chosen = {"precision": "fp32"}

    def translate_window(self, lines):
        for line in lines:
            self.suffer(line)
        if "bug" in lines:
            first = lines.index("bug")
            raise LinesFailedError(first, first, self.answers(lines[:first])) from TypeError("ours")
        return self.answers(lines)

    def answers(self, lines):
        return [Translation(f"{line} of {len(lines)} from {lines[0]}") for line in lines]

    def suffer(self, line):
        if line.startswith("slow"):
            time.sleep(0.05)
        if line.startswith("once"):  # the first worker that gets it dies
            try:
                (self.folder / line).touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)
        if line.startswith("deadly"):
            os._exit(9)
        if line.startswith("real-time"):
            os.kill(os.getpid(), signal.SIGRTMIN + 1)


class ForkingStarter:
    """Forks workers from this process."""

    def __init__(self, load):
        self.load = load
        self.processes = []
        self.connections = []

    def start(self, number):
        ours, theirs = Pipe()
        process = os.fork()
        if process == 0:
            for connection in (ours, *self.connections):
                connection.close()  # so that each worker notices when its other end is closed
            try:
                work(theirs, self.load)
            finally:
                os._exit(0)
        theirs.close()
        self.connections.append(ours)
        self.processes.append(process)
        return ours, process

    def status_of(self, process):
        self.processes.remove(process)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def close(self):
        for process in self.processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


@contextmanager
def opened(num_workers, load, **options):
    starter = ForkingStarter(load)
    pool = WorkerPool(starter, num_workers, **options)
    try:
        pool.open()
        yield pool
    finally:
        pool.close()


@pytest.fixture
def translate(tmp_path):
    """Return the texts, or errors, of windows that workers translate."""

    def call(windows, num_workers=2):
        with opened(num_workers, lambda: Fake(tmp_path)) as pool:
            return [
                [translation.error or translation.text for translation in translations]
                for translations in pool.translate_windows(iter(windows))
            ]

    return call


def windows_of(lines, size):
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def expected(windows):
    fake = Fake(Path())
    return [[translation.text for translation in fake.answers(window)] for window in windows]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_windows_come_out_whole_and_in_order(translate, num_workers):
    lines = [f"{'slow ' if number % 17 == 0 else ''}{number}" for number in range(100)]
    windows = windows_of(lines, 7)
    assert translate(windows, num_workers) == expected(windows)
    assert translate([], num_workers) == []


@pytest.mark.parametrize(("num_lines", "sizes"), [(10, [3, 3, 4]), (2, [1, 1]), (1, [1])])
def test_workers_share_a_window_if_no_other_waits(tmp_path, num_lines, sizes):
    # Slow, so that all workers begin before one could take a second part.
    rest = iter(f"slow {number}" for number in range(num_lines))
    parts = [list(islice(rest, size)) for size in sizes]
    with opened(3, lambda: Fake(tmp_path), divides=True) as pool:
        (found,) = pool.translate_windows(iter([[*chain(*parts)]]))
    assert [each.text for each in found] == [*chain(*expected(parts))]


def test_a_killed_worker_is_replaced_without_a_lost_line(translate, capsys):
    logs.configure(quiet=False)
    lines = [f"{'once ' if number % 10 == 0 else ''}{number}" for number in range(60)]
    windows = windows_of(lines, 20)
    assert translate(windows) != expected(windows)  # a window that killed twice is halved
    lines = [f"{'once-' if number % 20 == 0 else ''}{number}" for number in range(60)]
    windows = windows_of(lines, 20)
    assert translate(windows) == expected(windows)
    assert "a worker process has died (signal SIGKILL); its lines are" in capsys.readouterr().err


def test_a_line_that_kills_its_workers_fails_alone(translate):
    lines = [str(number) for number in range(64)]
    lines[37] = "deadly"
    answers = [answer for window in translate(windows_of(lines, 32), 3) for answer in window]
    failed = [place for place, answer in enumerate(answers) if "have died (status 9)" in answer]
    assert failed == [37]
    assert [answer.split()[0] for answer in answers[:37]] == lines[:37]
    assert [answer.split()[0] for answer in answers[38:]] == lines[38:]


def test_a_signal_without_a_name_has_its_number(translate):
    ((error,),) = translate([["real-time"]])
    assert error.endswith(f"have died (signal {signal.SIGRTMIN + 1})")


def test_workers_that_die_without_end_end_the_command(translate, monkeypatch):
    monkeypatch.setattr(pool, "MOST_DEATHS_IN_A_ROW", 5)
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
    with opened(2, lambda: Fake(tmp_path)) as pool:
        translations = pool.translate_windows(iter(windows))
        assert [translation.text for translation in next(translations)] == ["a of 1 from a"]
        with pytest.raises(LinesFailedError) as caught:
            next(translations)
    error = caught.value
    assert (error.first, error.last) == (3, 3)
    assert [translation.text.split()[0] for translation in error.finished] == ["b", "once", "c"]
    assert isinstance(error.__cause__, WorkerBugError)
    assert "TypeError: ours" in str(error.__cause__)


def test_a_bug_in_half_a_window_has_the_number_of_its_line(tmp_path):
    window = ["once-1", "once-2", "c", "d", "e", "bug", "g", "h"]
    with opened(2, lambda: Fake(tmp_path)) as pool, pytest.raises(LinesFailedError) as caught:
        list(pool.translate_windows(iter([window])))
    assert (caught.value.first, caught.value.last) == (5, 5)
    assert [translation.text.split()[0] for translation in caught.value.finished] == window[:5]


def test_few_windows_are_read_ahead(tmp_path):
    num_read = 0

    def windows():
        nonlocal num_read
        for number in range(100):
            num_read += 1
            yield [str(number)]

    with opened(2, lambda: Fake(tmp_path)) as pool:
        for place, _ in enumerate(pool.translate_windows(windows()), start=1):
            time.sleep(0.001)
            assert num_read <= place + 2 * 2


def test_answers_come_while_the_input_stalls(tmp_path):
    goes_on = threading.Event()

    def windows():
        yield ["one"]
        goes_on.wait(20)
        yield ["two"]

    with opened(2, lambda: Fake(tmp_path)) as pool:
        translations = pool.translate_windows(windows())
        assert next(translations)[0].text.startswith("one")
        goes_on.set()
        assert next(translations)[0].text.startswith("two")


def test_an_error_of_the_input_comes_behind_the_windows_before(tmp_path):
    def windows():
        yield ["one"]
        yield ["two"]
        raise UserError("the input is damaged")

    with opened(2, lambda: Fake(tmp_path)) as pool:
        seen = []
        with pytest.raises(UserError, match="the input is damaged"):
            seen.extend(pool.translate_windows(windows()))
    assert len(seen) in (0, 2)


class Threads:
    """Answers a line with the number of threads and the process that translated it."""

    chosen: ClassVar = {"precision": "fp32"}

    def translate_window(self, lines):
        time.sleep(0.05)
        return [Translation(f"{torch.get_num_threads()} {os.getpid()}") for _ in lines]


def test_lines_are_shared_only_while_a_long_window_waits_for_each_worker(monkeypatch):
    monkeypatch.setattr(pool, "LEAST_SHARED_LINES", 10)
    asked, told = threading.Event(), []

    def windows():
        yield ["a"] * 9
        yield ["b"]
        asked.wait(20)
        for _ in range(9):
            yield ["c"] * 10
        asked.clear()
        asked.wait(20)
        yield ["d"]

    with opened(2, Threads, all_threads=3, when_shared=lambda: told.append(1)) as adapting:
        answers = []
        for number, window in enumerate(adapting.translate_windows(windows())):
            answers.append([translation.text.split() for translation in window])
            if number == 1:
                assert (told, len(adapting._workers)) == ([], 1)
            if number in (1, 10):
                asked.set()
    threads = [{threads for threads, _ in window} for window in answers]
    assert threads[:2] == [{"3"}, {"3"}]
    assert {"1"} in threads[2:11]
    assert threads[11] == {"3"}
    assert told == [1]
    assert len({process for window in answers for _, process in window}) == 2
