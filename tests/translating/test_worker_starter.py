"""The process that starts workers is replaced when it dies."""

import os
import signal
import subprocess
import threading
import time
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from nmt_cli.launch.python_process import end_with_parent
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.interface.request import numbered
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers import worker_main
from nmt_cli.translating.workers.messages import WorkerModel
from nmt_cli.translating.workers.starter import Starter
from nmt_cli.translating.workers.text_workers import TextWorkers
from tests.translating.fake_workers import FakeTranslator

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Forked:
    """In place of ``Popen``: a starter that needs no time to import torch."""

    num_started = 0

    def __init__(self, _, *, pass_fds, **__):
        Forked.num_started += 1
        self.pid = os.fork()
        if self.pid == 0:
            try:
                end_with_parent(parent=os.getppid())
                worker_main._serve(Connection(os.dup(pass_fds[0])))
            finally:
                os._exit(1)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_killed_starter_and_its_workers_are_replaced_once(monkeypatch, num_workers):
    monkeypatch.setattr(Forked, "num_started", 0)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: FakeTranslator(Path()))
    monkeypatch.setattr(subprocess, "Popen", Forked)
    windows = [[f"line {number}"] * 5 for number in range(40)]
    found = []
    with closing(Starter()) as starter:
        starter.load(WorkerModel(Path("none"), {}, 1, on_gpus=False, quiet=True))
        with closing(TextWorkers(starter, num_workers)) as workers:
            workers.open()
            for window in workers.translate_windows(list(numbered(each)) for each in windows):
                found.append([translation.text for translation in window])
                if len(found) == 3:
                    assert starter._process is not None
                    pid = starter._process.pid
                    starter._process.kill()
                    with suppress(ChildProcessError):  # a thread has waited for it
                        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                    time.sleep(0.05)  # its workers end, too
    assert found == windows
    assert Forked.num_started == 2


def test_a_starter_that_is_closed_while_the_model_loads_begins_no_other_load(monkeypatch):
    monkeypatch.setattr(Forked, "num_started", 0)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: time.sleep(100))
    monkeypatch.setattr(subprocess, "Popen", Forked)
    starter, errors = Starter(), list[str]()
    starter.load(WorkerModel(Path("none"), {}, 1, on_gpus=False, quiet=True))

    def start():
        with pytest.raises(UserError) as caught:
            starter.start(0)
        errors.append(str(caught.value))

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    starter.close()
    thread.join(10)
    assert errors == ["the command ends."]
    assert Forked.num_started == 1
