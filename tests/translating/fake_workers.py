"""Worker processes that need no model: some lines kill them, or are bugs."""

import os
import signal
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.workers.starter import Starter
from nmt_cli.translating.workers.worker_main import work


class FakeSearch:
    """Answers each line with itself; takes all lines that are known at once, as a search does."""

    def __init__(self, folder: Path, lines: Any) -> None:
        self.folder, self.lines = folder, lines

    def free_caches(self) -> None:
        pass

    def run(self) -> None:
        inside = dict[Any, str]()
        while True:
            while (taken := self.lines.take()) is not None:
                inside[taken[0]] = taken[1].text
            if not inside:
                return
            for text in inside.values():
                self.suffer(text)
            key, text = inside.popitem()
            time.sleep(0.01 if text.startswith("slow") else 0.0)
            self.lines.answer(key, TypeError("ours") if text == "bug" else Translation(text))
            for withdrawn in self.lines.take_withdrawn(inside):
                inside.pop(withdrawn, None)

    def suffer(self, text: str) -> None:
        if text.startswith("once"):  # the first worker that gets it dies
            try:
                (self.folder / text.replace(" ", "-")).touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)
        if text.startswith("deadly"):
            os._exit(9)
        if text.startswith("real-time"):
            os.kill(os.getpid(), signal.SIGRTMIN + 1)


class FakeTranslator:
    def __init__(self, folder: Path) -> None:
        self.folder, self.chosen = folder, {"precision": "fp32"}

    def continuous_search(self, lines: Any) -> FakeSearch:
        return FakeSearch(self.folder, lines)


class ForkingStarter(Starter):
    """Forks workers from this process."""

    def __init__(self, load: Any) -> None:
        self._load_model = load
        self.processes = list[int]()
        self.connections = list[Any]()
        self.num_started = 0

    def start(self, number: int) -> tuple[Any, int]:
        ours, theirs = Pipe()
        process = os.fork()
        if process == 0:
            for connection in (ours, *self.connections):
                connection.close()  # so that each worker notices when its other end is closed
            try:
                work(theirs, self._load_model)
            finally:
                os._exit(0)
        theirs.close()
        self.processes.append(process)
        self.num_started += 1
        return ours, process

    def status_of(self, process: int) -> int | None:
        self.processes.remove(process)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def close(self) -> None:
        for process in self.processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self.processes.clear()
