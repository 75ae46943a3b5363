"""The process that starts workers is replaced when it dies."""

import os
import signal
import subprocess
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from nmt_cli.launch.node_workers import PARENT, die_with_parent
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers import process
from nmt_cli.translating.workers.messages import WorkerModel
from nmt_cli.translating.workers.pool import WorkerPool
from nmt_cli.translating.workers.starter import Starter

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Echo:
    def __init__(self, chosen=None):
        self.chosen = chosen or {"precision": "fp32"}

    def translate_window(self, lines):
        return [Translation(line) for line in lines]


class Forked:
    """In place of ``Popen``: a starter that needs no time to import torch."""

    num_started = 0

    def __init__(self, _, *, pass_fds, **__):
        Forked.num_started += 1
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.environ.pop(PARENT, None)
                die_with_parent()
                process._serve(Connection(os.dup(pass_fds[0])))
            finally:
                os._exit(1)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_killed_starter_and_its_workers_are_replaced_once(monkeypatch, num_workers):
    monkeypatch.setattr(Forked, "num_started", 0)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: Echo())
    monkeypatch.setattr(subprocess, "Popen", Forked)
    windows = [[f"line {number}"] * 5 for number in range(40)]
    found = []
    with Starter() as of_workers:
        of_workers.load(WorkerModel(Path("none"), {}, 1, on_gpus=False, quiet=True))
        pool = WorkerPool(of_workers, num_workers)
        pool.open()
        for window in pool.translate_windows(iter(windows)):
            found.append([translation.text for translation in window])
            if len(found) == 3:
                assert of_workers._process is not None
                pid = of_workers._process.pid
                of_workers._process.kill()
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                time.sleep(0.05)  # its workers end, too
        pool.close()
    assert found == windows
    assert Forked.num_started == 2
