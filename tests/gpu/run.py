"""``make gpu``: what a machine with a GPU can show in eight minutes, in one dated file.

Each part is a process of its own with a limit of time. Its output is in the file, and on stdout,
when it has ended, so that what was measured is kept if all is stopped. A part that fails, or takes
too long, is recorded with the end of its output, and the others go on.
"""

import argparse
import datetime
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TextIO

RESULTS = Path("tests/benchmarks/results")
LINES_KEPT = 60  # of the output of a part
# A machine without a network may lack these; the last two are for parts of their own.
PACKAGES = (
    *("numpy", "yaml", "click", "pydantic", "safetensors", "sentencepiece", "sacrebleu"),
    *("sacremoses", "tqdm", "pytest", "hypothesis", "triton", "ctranslate2"),
)


class Part(NamedTuple):
    """A command and its limit of time."""

    title: str
    arguments: tuple[str, ...]  # of Python
    seconds: float


# Without the options of pyproject.toml, which need plugins that a bare checkout may not have.
PYTEST = ("-m", "pytest", "--config-file", os.devnull, "--rootdir", ".", "-q", "-p", "no:warnings")
TESTED = ("tests/model", "tests/search", "tests/commands")
MEASURE = ("-m", "tests.gpu.measure")
PARTS = {
    "machine": Part("The machine", (*MEASURE, "machine"), 20),
    "layer": Part("One layer: kernels one by one against a graph", (*MEASURE, "layer"), 40),
    "kernels": Part("Each kernel of ours", (*MEASURE, "kernels"), 80),
    "base": Part("Training of base", (*MEASURE, "training", "base"), 60),
    "profile": Part("Kernels of a step", (*MEASURE, "profile"), 30),
    "big": Part("Training of big, and of small steps", (*MEASURE, "training", "big"), 60),
    "rooms": Part("New shapes of graphs", (*MEASURE, "rooms"), 30),
    "decoding": Part("Decoding", (*MEASURE, "decoding"), 60),
    "natural": Part("Decoding of text by base", (*MEASURE, "natural", "base"), 70),
    "faults": Part("Faults", (*MEASURE, "faults"), 30),
}
MORE = {
    "sweeps": Part("Sizes of tiles and numbers of warps", (*MEASURE, "sweeps"), 180),
    "tests": Part(
        "Tests", (*PYTEST, "-m", "gpu", "tests/model", "tests/search", "tests/commands"), 90
    ),
    "big-text": Part("Decoding of text by big", (*MEASURE, "natural", "big"), 100),
    "resumed": Part("A training that is resumed", (*MEASURE, "resumed"), 60),
    "killed": Part("A killed NCCL rank", (*MEASURE, "killed_rank"), 50),
}


def main(words: Sequence[str] = ()) -> int:
    """Run parts and record them; return 1 if one failed or there is no GPU."""
    parser = argparse.ArgumentParser(prog="make gpu ARGS=", description=__doc__)
    parser.add_argument("--more", action="store_true", help="the parts that take longer")
    parser.add_argument("--part", action="append", choices=(*PARTS, *MORE), help="only this one")
    given = parser.parse_args(words)
    try:
        import torch
    except ImportError:
        sys.stderr.write("make gpu needs torch, which this Python does not have.\n")
        return 1
    if not torch.cuda.is_available():
        sys.stderr.write("make gpu needs a CUDA device, and torch finds none.\n")
        return 1
    missing = ", ".join(each for each in PACKAGES if find_spec(each) is None)
    name, date = torch.cuda.get_device_name(), datetime.date.today().isoformat()
    facts = (
        f"{torch.cuda.device_count()} x {name}, torch {torch.__version__}, CUDA "
        f"{torch.version.cuda}, {platform.platform()}, commit {_commit()}"
    )
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    path, has_failed = RESULTS / f"{date}-gpu-{slug}.md", False
    chosen = {**PARTS, **MORE}
    names = given.part or (MORE if given.more else PARTS)
    with path.open("a", encoding="utf-8") as file:
        _write(file, f"Packages that are missing: {missing or 'none'}.", f"# {name}, {date}", facts)
        for part in (chosen[each] for each in names):
            sys.stderr.write(f"{part.title} (at most {part.seconds:.0f} s)\n")
            how, output = run_part(part)
            has_failed = has_failed or not how.startswith("ended well")
            text = f"{how[0].upper()}{how[1:]}."
            _write(file, f"## {part.title}", text, f"```\n{output}\n```")
    sys.stderr.write(f"Written to {path}.\n")
    return int(has_failed)


def _write(file: TextIO, *texts: str) -> None:
    """Write paragraphs to ``file`` and to stdout, at once."""
    for stream in (file, sys.stdout):
        stream.write("".join(f"{each}\n\n" for each in texts))
        stream.flush()


def run_part(part: Part) -> tuple[str, str]:
    """Return how the part ended, and the end of its output."""
    started = time.monotonic()
    command = [sys.executable, *part.arguments]
    try:
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=part.seconds,
            check=False,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, (".", os.environ.get("PYTHONPATH")))),
            },
        )
        output, status = ended.stdout, ended.returncode
    except subprocess.TimeoutExpired as error:
        output, status = error.stdout or b"", None
    seconds = time.monotonic() - started
    how = {0: "ended well", None: "was stopped at its limit"}.get(status, f"failed ({status})")
    lines = output.decode("utf-8", errors="replace").strip().splitlines()
    return f"{how} after {seconds:.0f} s", "\n".join(lines[-LINES_KEPT:])


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
