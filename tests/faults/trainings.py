"""Trainings in processes of their own: started, killed, waited for."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.zygote import FAULT_FAILED

ROOT = Path(__file__).parents[2]
Fault = tuple[str, dict[str, Any]]  # "module:function" and its arguments, called in the child

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Zygote:
    """The process that forks commands; see ``zygote.py``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, **request: Any) -> int:
        """Send a request and return its answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def close(self) -> None:
        """End the zygote, and with it all its children."""
        self._process.kill()
        self._process.communicate()


class Ended(NamedTuple):
    """How a command ended; a negative status is the number of the signal that killed it."""

    status: int
    stderr: str


class Command:
    """A running command."""

    def __init__(self, zygote: Zygote, arguments: Sequence[str], stderr: Path, faults: Any) -> None:
        self._zygote, self._stderr = zygote, stderr
        stderr.write_bytes(b"")
        self.pid = zygote.ask(arguments=list(arguments), stderr=str(stderr), faults=list(faults))

    def wait(self) -> Ended:
        ended = Ended(self._zygote.ask(wait=self.pid), self._stderr.read_text())
        if ended.status == FAULT_FAILED:
            raise RuntimeError(f"the fault cannot be injected: {ended.stderr}")
        return ended

    def kill_after(self, seconds: float) -> Ended:
        """Send SIGKILL after so many seconds; the command may have ended before."""
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGKILL)  # not reaped yet, so that the pid is still its own
        return self.wait()


class Trainings:
    """Starts ``nmt-cli train`` for one recipe; ``faults`` of a mutant go into every process."""

    def __init__(
        self,
        zygote: Zygote,
        recipe: Path,
        prepared: Path,
        overrides: Sequence[str],
        faults: Sequence[Fault] = (),
    ) -> None:
        self._zygote, self._recipe, self._prepared = zygote, recipe, prepared
        self._overrides, self._faults = tuple(overrides), tuple(faults)

    def with_overrides(self, *overrides: str) -> "Trainings":
        return Trainings(
            self._zygote,
            self._recipe,
            self._prepared,
            _merged([*self._overrides, *overrides]),
            self._faults,
        )

    def with_faults(self, *faults: Fault) -> "Trainings":
        return Trainings(
            self._zygote,
            self._recipe,
            self._prepared,
            self._overrides,
            (*self._faults, *faults),
        )

    def with_prepared(self, prepared: Path) -> "Trainings":
        return Trainings(self._zygote, self._recipe, prepared, self._overrides, self._faults)

    def start(self, run_dir: Path, *options: str, faults: Sequence[Fault] = ()) -> Command:
        arguments = ["train", str(self._recipe), f"--prepared={self._prepared}", "--device=cpu"]
        arguments += [f"--run-dir={run_dir}", "--threads=1", "--precision=fp32"]
        arguments += [f"--set={override}" for override in self._overrides]
        stderr = run_dir.with_name(f"{run_dir.name}.stderr")
        return Command(self._zygote, [*arguments, *options], stderr, (*self._faults, *faults))

    def run(self, run_dir: Path, *options: str, faults: Sequence[Fault] = ()) -> Ended:
        return self.start(run_dir, *options, faults=faults).wait()

    def finish(self, run_dir: Path, *options: str) -> Ended:
        """Run to the recipe's end, from where ``run_dir`` stands."""
        ended = self.run(run_dir, "--resume", *options)
        assert ended.status == 0, ended.stderr
        return ended


def _merged(overrides: Sequence[str]) -> list[str]:
    """Return the last override of each key."""
    return list({override.partition("=")[0]: override for override in overrides}.values())
