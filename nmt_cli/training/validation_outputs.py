"""What becomes of the translations of a validation.

The command of ``--validation-script`` judges them by a number of its own, and
``--keep-validations`` keeps them as files.
"""

import math
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, NamedTuple

from nmt_cli.files.atomic_files import file_appearing_whole, make_folders
from nmt_cli.files.file_names import CHECKPOINT_GLOB, SETS, VALIDATIONS
from nmt_cli.files.lines import number_in
from nmt_cli.hardware.ranks import Ranks
from nmt_cli.launch.node_workers import LAUNCHED
from nmt_cli.launch.python_process import PARENT
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.launch.worker import LAUNCH_ID, OUTCOME, PLACE_VARIABLES
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError
from nmt_cli.messages.figures import duration_text, with_prefix
from nmt_cli.saved.checkpoints import checkpoint_name
from nmt_cli.saved.metrics_log import logged_validations

LIMIT_SECONDS = 3600.0
MOST_BYTES = 100_000_000  # that it may print
POLL_SECONDS = 0.1
LAST_BYTES = 10_000  # of what it printed, in which its last line is
LONGEST_SHOWN = 100  # characters of a line
# By these a script, or a program that it starts, would take itself for one of the ranks.
OF_THIS_RANK = {*PLACE_VARIABLES, LAUNCH_ID, LAUNCHED, OUTCOME, PARENT}


class Verdict(NamedTuple):
    """The number of a script; None if it gave none, and ``failure`` is why."""

    number: float | None
    failure: str | None = None


def judge(
    script: str, texts: Mapping[str, Sequence[str]], ranks: Ranks, stop: StopRequest
) -> Verdict | None:
    """Return the verdict of ``script`` on a set, or None if ``stop`` came meanwhile.

    ``texts`` are the lines of each file by its place in the command. All ranks call this, and the
    main rank runs the script.
    """
    with ExitStack() as stack:
        run = stack.enter_context(_running(script, texts)) if ranks.is_main else None
        while ranks.from_main(run is not None and run.is_running()):
            stop.agree(ranks.sum(stop.flags()))
            if stop.agreed:
                return None
        return ranks.from_main(run.verdict() if run is not None else Verdict(None))


@contextmanager
def _running(script: str, texts: Mapping[str, Sequence[str]]) -> Iterator["_Run"]:
    """Start ``script``; at the end of the block it and its children are killed."""
    with (
        # Children that are not dead yet may write into it while it is removed.
        TemporaryDirectory(prefix="nmt-cli-", ignore_cleanup_errors=True) as name,
        # Files, because a child that outlives the script would keep a pipe open.
        TemporaryFile() as stdout,
        TemporaryFile() as stderr,
    ):
        run = _Run(stdout, stderr)
        try:
            run.start(script, texts, Path(name))
            yield run
        finally:
            run.kill()


class _Run:
    """A script that was started, and what it prints."""

    def __init__(self, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._stdout, self._stderr = stdout, stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: str | None = None
        self._ends = time.monotonic() + LIMIT_SECONDS

    def start(self, script: str, texts: Mapping[str, Sequence[str]], folder: Path) -> None:
        """Start the script on these texts, which are written into ``folder``."""
        words = shlex.split(script)
        try:
            for place, lines in texts.items():
                path = folder / place
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                words = [word.replace(f"{{{place}}}", str(path)) for word in words]
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self._stdout,
                stderr=self._stderr,
                env={name: each for name, each in os.environ.items() if name not in OF_THIS_RANK},
                start_new_session=True,  # a group of its own, so that all of it can be killed
            )
        except OSError as error:
            self._failure = f"it was not started: {error.filename}: {error.strerror}"

    def is_running(self) -> bool:
        """Return whether the script goes on; after a limit it is killed."""
        if self._process is None:
            return False
        # It stays a zombie, so that no other process gets its number before it is killed.
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if os.waitid(os.P_PID, self._process.pid, ended) is not None:
            return False
        if time.monotonic() > self._ends:
            self._failure = f"it was killed after {duration_text(LIMIT_SECONDS)}"
        elif (
            sum(os.fstat(each.fileno()).st_size for each in (self._stdout, self._stderr))
            > MOST_BYTES
        ):
            self._failure = f"it was killed after it printed {with_prefix(MOST_BYTES, 'B')}"
        else:
            time.sleep(POLL_SECONDS)
        return self._failure is None

    def verdict(self) -> Verdict:
        """Return the number, or why there is none."""
        self.kill()
        if self._failure is not None or self._process is None:
            return Verdict(None, self._failure)
        last, last_error = map(_last_line, (self._stdout, self._stderr))
        status = self._process.returncode
        if status:
            end = f"status {status}"
            if status < 0:
                end = f"signal {-status} ({signal.strsignal(-status)})"
            said = f": {last_error}" if last_error else ""
            return Verdict(None, f"it ended with {end}{said}")
        if not last:
            return Verdict(None, "it printed nothing on stdout")
        if math.isnan(number := number_in(last)):
            return Verdict(None, f'its last line is no finite number: "{last}"')
        return Verdict(number)

    def kill(self) -> None:
        """Kill what is left of the script and its children."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _last_line(stream: IO[bytes]) -> str:
    """Return the last line that is not blank, shortened."""
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - LAST_BYTES))
    lines = stream.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last if len(last) <= LONGEST_SHOWN else f"{last[:LONGEST_SHOWN]}…"


def judged_before(run_dir: Path, step: int, script: str) -> dict[str | None, float | None]:
    """Return the numbers that ``script`` gave the model of ``step``, by the names of the sets.

    They are logged if the session before ended between the validation and the next save.
    """
    logged = [each for each in logged_validations(run_dir) if each["step"] == step]
    if not logged or logged[-1].get("script") != script:
        return {}
    figures = logged[-1]["validation"]
    of_sets = {name: each.get("script") for name, each in figures.get(SETS, {}).items()}
    return {None: figures.get("script"), **of_sets}


def keep_translations(
    run_dir: Path, step: int, of_sets: Mapping[str | None, Sequence[str]], number: int
) -> None:
    """Write the translations of each set, and remove all but those of the last ``number`` steps.

    If the disk is full, a warning is logged.
    """
    folder = run_dir / VALIDATIONS
    try:
        make_folders(folder)
        for name, lines in of_sets.items():
            parts = [checkpoint_name(step), *([name] if name is not None else []), "txt"]
            with file_appearing_whole(folder / ".".join(parts), replace=True) as stream:
                stream.write("".join(f"{line}\n" for line in lines).encode())
        found = {
            path: path.name.partition(".")[0] for path in folder.glob(f"{CHECKPOINT_GLOB}.txt")
        }
        # Files of later steps are of a session that ended before it saved them.
        steps = sorted(name for name in set(found.values()) if name <= checkpoint_name(step))
        for path, name in found.items():
            if name not in steps[-number:]:
                path.unlink()
    except (OSError, OutputError) as error:
        logs.warning(f"step {step:,}: the translations were not kept: {error}")
