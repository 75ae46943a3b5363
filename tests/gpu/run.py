"""``make gpu``: what a machine with a GPU can show in ten minutes, in one dated file.

Each part is a process of its own with a limit of time. A part that fails, or takes too long, is
recorded with the end of its output, and the others go on.
"""

import datetime
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

RESULTS = Path("tests/benchmarks/results")
LINES_KEPT = 60  # of the output of a part


class Part(NamedTuple):
    """A command and its limit of time."""

    title: str
    arguments: tuple[str, ...]  # of Python
    seconds: float


# Without the options of pyproject.toml, which need plugins that a bare checkout may not have.
PYTEST = ("-m", "pytest", "--config-file", os.devnull, "--rootdir", ".", "-q", "-p", "no:warnings")
MEASURE = ("-m", "tests.gpu.measure")
PARTS = (
    Part("Tests", (*PYTEST, "-m", "gpu", "tests/model", "tests/search", "tests/commands"), 90),
    Part("Speed of training", (*MEASURE, "training"), 60),
    Part("Backends of training", (*MEASURE, "backends"), 120),
    Part("Speed of decoding", (*MEASURE, "decoding"), 60),
    Part("Decoding of text by base", (*MEASURE, "natural", "base"), 90),
    Part("Decoding of text by big", (*MEASURE, "natural", "big"), 100),
    Part("A killed NCCL rank", (*MEASURE, "killed_rank"), 50),
    Part("Profile of a step", (*MEASURE, "profile"), 30),
)


def main() -> int:
    """Run all parts, write their record and print it; return 1 if one failed or there is no GPU."""
    try:
        import torch
    except ImportError:
        sys.stderr.write("make gpu needs torch, which this Python does not have.\n")
        return 1
    if not torch.cuda.is_available():
        sys.stderr.write("make gpu needs a CUDA device, and torch finds none.\n")
        return 1
    name, date = torch.cuda.get_device_name(), datetime.date.today().isoformat()
    facts = (
        f"{torch.cuda.device_count()} x {name}, torch {torch.__version__}, CUDA "
        f"{torch.version.cuda}, {platform.platform()}, commit {_commit()}"
    )
    texts, failed = [f"# {name}, {date}", facts], False
    for part in PARTS:
        sys.stderr.write(f"{part.title} (at most {part.seconds:.0f} s)\n")
        how, output = run_part(part)
        failed = failed or not how.startswith("ended well")
        texts += [f"## {part.title}", f"{how[0].upper()}{how[1:]}.", f"```\n{output}\n```"]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    path = RESULTS / f"{date}-gpu-{slug}.md"
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    sys.stdout.write(path.read_text(encoding="utf-8"))
    sys.stderr.write(f"Written to {path}.\n")
    return int(failed)


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
    raise SystemExit(main())
