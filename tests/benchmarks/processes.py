"""Starts worker processes and gives them their turns."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.hardware.cpu import SPINS
from tests.benchmarks.shapes import Setup

SECONDS_TO_LEAVE = 10


class Toolkit(NamedTuple):
    """A toolkit that is measured, and the module of its loop."""

    name: str
    module: str
    is_peer: bool = True
    is_tuned: bool = False


OURS = Toolkit("nmt-cli", "tests.benchmarks.ours", is_peer=False)
HUGGING_FACE = Toolkit("Hugging Face", "tests.benchmarks.peer_huggingface")
EOLE = Toolkit("eole", "tests.benchmarks.peer_eole")
TORCH = Toolkit("torch.nn.Transformer", "tests.benchmarks.peer_torch")
PEERS = (
    HUGGING_FACE,
    EOLE,
    TORCH,
    HUGGING_FACE._replace(name="Hugging Face, tuned", is_tuned=True),
    EOLE._replace(name="eole, tuned", is_tuned=True),
)


class WorkerError(Exception):
    """A worker ended instead of answering; the message gives the reason."""


class Worker:
    """A toolkit's loop in a process of its own; use it in a ``with`` block."""

    def __init__(
        self,
        toolkit: Toolkit,
        setup: Setup,
        peers_python: Path,
        log: Path,
        waiting: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process; ``waiting`` has OpenMP's variables, for us and for tuned peers.

        By default they are those that commands choose.
        """
        python = str(peers_python) if toolkit.is_peer else sys.executable
        setup = setup._replace(is_tuned=toolkit.is_tuned)
        environment = {**os.environ, "OMP_NUM_THREADS": str(setup.threads)}
        if toolkit.is_tuned or not toolkit.is_peer:
            environment |= SPINS if waiting is None else waiting
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [python, "-m", toolkit.module, setup.as_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env=environment,
            )
        try:
            answer = self._answer()
        except BaseException:
            self.close()
            raise
        self.facts: dict[str, Any] = answer["facts"]

    def turn(self, variant: str, first: int, count: int) -> dict[str, Any]:
        """Return {"steps": [...], "memory": peak bytes} after training on ``count`` batches."""
        assert self._process.stdin is not None
        try:
            request = {"variant": variant, "first": first, "count": count}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._reason()) from None
        return self._answer()

    def pause(self) -> None:
        """Stop the process until ``go_on``: its threads may spin between two turns."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process go on."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process."""
        self.go_on()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS_TO_LEAVE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(self._reason())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _reason(self) -> str:
        """Return the last line of the log: of a Python traceback, this is the error."""
        status = self._process.wait()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else f"exit status {status}"
