"""Whole commands, as a user types them: ``nmt-cli translate`` with its defaults, and CTranslate2.

Both translate the same file from the shell in turns, with the start of the interpreter. Memory is
the largest sum of the proportional set sizes of all processes of a command, looked at every 20 ms.
"""

import compileall
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import nmt_cli
from nmt_cli.messages import logs
from tests.benchmarks import targets
from tests.benchmarks.cpu_time import with_children
from tests.benchmarks.targets import verdict

ROUNDS = 7
LINES = {"S": 5_000, "base": 1_000}
BATCH_SIZES = (32, 64, 128)  # of CTranslate2, of which the fastest counts
SECONDS_BETWEEN_LOOKS = 0.02
PEER = Path(__file__).with_name("peer_command.py")
CTRANSLATE2, OURS = targets.CTRANSLATE2, "nmt-cli translate"
TYPES = {"fp32": "float32", "bf16": "float32", "int8": "int8"}  # of CTranslate2

Figures = dict[str, Any]


class Run(NamedTuple):
    """What one command took."""

    seconds: float
    memory: int  # bytes


def measure(
    model: Path, export: Path, text: Path, precisions: Sequence[str], rounds: int = ROUNDS
) -> Figures:
    """Return the medians of both commands in each precision, for ``text`` and for its first line.

    ``export`` is ``model`` as CTranslate2 reads it.
    """
    # As pip does. Where PYTHONDONTWRITEBYTECODE is set, each command of a checkout would compile.
    compileall.compile_dir(Path(nmt_cli.__file__).parent, quiet=1)
    one_line = text.with_suffix(".1")
    with text.open("rb") as lines:
        one_line.write_bytes(next(lines))
    batch_sizes = {
        kind: min(BATCH_SIZES, key=lambda size: run(_peer(export, model, kind, size), text).seconds)
        for kind in dict.fromkeys(TYPES[precision] for precision in precisions)
    }
    rows: Figures = {}
    for precision in precisions:
        kind = TYPES[precision]
        commands = {
            OURS: _ours(model, precision),
            f"{CTRANSLATE2} {kind}": _peer(export, model, kind, batch_sizes[kind]),
        }
        for name, source in ((precision, text), (f"{precision}, one line", one_line)):
            logs.info(f"commands: {name}")
            found: dict[str, list[Run]] = {each: [] for each in commands}
            for _ in range(rounds):
                for each, command in commands.items():
                    found[each].append(run(command, source))
            rows[name] = {
                each: {
                    "seconds": median(one.seconds for one in runs),
                    "all_seconds": [one.seconds for one in runs],
                    "memory": median(one.memory for one in runs),
                }
                for each, runs in found.items()
            }
    return {"rows": rows, "rounds": rounds, "batch_sizes": batch_sizes}


def run(command: Sequence[str], source: Path) -> Run:
    """Return what ``command`` takes to translate the file ``source``."""
    started, memory = time.perf_counter(), 0
    with source.open("rb") as lines, (source.parent / "out").open("wb") as output:
        process = subprocess.Popen(command, stdin=lines, stdout=output, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            memory = max(memory, sum(map(_proportional_size, with_children(process.pid))))
            with suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_BETWEEN_LOOKS)
    seconds = time.perf_counter() - started
    translated = (source.parent / "out").read_bytes().count(b"\n")
    assert (process.returncode, translated) == (0, source.read_bytes().count(b"\n")), command
    return Run(seconds, memory)


def _proportional_size(process: int) -> int:
    """Return the bytes of a process; of a page of several, its share. 0 if it has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    sizes = (line.split() for line in text.splitlines() if line.startswith("Pss:"))
    return 1024 * sum(int(words[1]) for words in sizes)


def _ours(model: Path, precision: str) -> list[str]:
    program = str(Path(sys.executable).with_name("nmt-cli"))
    return [program, "translate", str(model), "--precision", precision]


def _peer(export: Path, model: Path, kind: str, batch_size: int) -> list[str]:
    arguments = (export, model / "tokenizer.model", kind, batch_size)
    return [sys.executable, str(PEER), *map(str, arguments)]


def markdown(measured: Figures, write_table: Any) -> str:
    """Return a table for all shapes."""
    lines = [line for shape, figures in measured.items() for line in _lines(shape, figures)]
    head = ["", "seconds", "CTranslate2", "ratio", "to reach (aim)", "MB", "CTranslate2", "ratio"]
    rounds = {figures["rounds"] for figures in measured.values()}
    sizes = {shape: figures["batch_sizes"] for shape, figures in measured.items()}
    return (
        f"## Whole commands from the shell\n\n{write_table(head, lines)}\n\n"
        f"Captions: {', '.join(f'{LINES[shape]:,} lines of {shape}' for shape in measured)}. "
        f"Medians of {max(rounds)} alternating runs, with the start of the interpreter; "
        "`peer_command.py` is the script around CTranslate2, with two threads of one core and its "
        f"fastest batch size ({sizes}). MB are the largest sum of the proportional set sizes of "
        f"all processes; at most {targets.MAX_MEMORY_OF_COMMANDS:g} times the script's."
    )


def _lines(shape: str, figures: Figures) -> Iterator[list[str]]:
    for name, commands in figures["rows"].items():
        ours, theirs = commands.values()
        wanted = targets.COMMANDS.get(f"{shape} {name}")
        if name.endswith("one line"):
            wanted = targets.MAX_ONE_LINE
        seconds = ours["seconds"] / theirs["seconds"]
        memory = ours["memory"] / theirs["memory"]
        reached = verdict(seconds <= wanted.least) if wanted else ""
        yield [
            f"{shape} {name}",
            f"{ours['seconds']:.2f}",
            f"{theirs['seconds']:.2f}",
            f"{seconds:.2f} {reached}",
            f"{wanted.least:g} ({wanted.aim:g})" if wanted else "",
            f"{ours['memory'] / 1e6:,.0f}",
            f"{theirs['memory'] / 1e6:,.0f}",
            f"{memory:.2f} {verdict(memory <= targets.MAX_MEMORY_OF_COMMANDS)}",
        ]
