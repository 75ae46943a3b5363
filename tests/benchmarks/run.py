"""``make benchmark``: measures, prints a record, and writes it to a file named by the hardware.

python -m tests.benchmarks.run --peers build/benchmark-venv/bin/python [--only speed ...]
"""

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nmt_cli.hardware.cpu import usable_cores
from nmt_cli.messages import logs
from nmt_cli.messages.figures import duration_text
from tests.benchmarks import report
from tests.benchmarks.hardware import Hardware
from tests.benchmarks.parts import BUILD, Benchmark, Record, Step

RESULTS = Path("tests/benchmarks/results")
RECORDS = BUILD / "records"
PARTS = (
    *("data", "kernels", "memory", "speed", "commands", "decoding", "serving", "waiting", "loss"),
)
TEXTS = ("captions", "news")
CPU_SHAPES, GPU_SHAPES = ("S", "base"), ("S", "base", "base-25k", "big-25k")


class Store:
    """The record of a run in a file, written after each step, so that a stopped run continues.

    ``record`` has a list "done" of the steps of a run that has not ended, and in "seconds" what
    each step took the last time.
    """

    def __init__(self, path: Path, head: Record) -> None:
        self._path = path
        self.record: Record = json.loads(path.read_text()) if path.exists() else {}
        self.record |= head
        self.done: list[str] = self.record.setdefault("done", [])
        self.seconds: dict[str, float] = self.record.setdefault("seconds", {})

    @property
    def name(self) -> str:
        """The day and the hardware."""
        return self._path.stem

    def add(self, step: Step, figures: Record, seconds: float) -> None:
        """Write down that ``step`` is done."""
        part = self.record.setdefault(step.part, {})
        if step.of is None:
            part |= figures
        else:
            part[step.of] = figures
        self.done.append(step.name)
        self.seconds[step.name] = seconds
        self._write()

    def end(self, steps: Sequence[Step]) -> None:
        """Write down that the run of ``steps`` is over: the next one measures them again."""
        self.done[:] = set(self.done) - {step.name for step in steps}
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(self.record, indent=1))
        temporary.replace(self._path)


def measure(steps: Sequence[Step], store: Store) -> None:
    """Take each step that a stopped run did not take; log how far this is and what is left."""
    left = [step for step in steps if step.name not in store.done]
    if len(left) < len(steps):
        names = ", ".join(step.name for step in steps if step not in left)
        logs.info(f"Continuing the run of {store.name}, which has: {names}. --anew starts anew.")
    for number, step in enumerate(left):
        logs.info(f"[{len(steps) - len(left) + number + 1}/{len(steps)}] {step.name}")
        started = time.monotonic()
        figures = step.measure(store.record)
        store.add(step, figures, time.monotonic() - started)
        logs.info(_time_left(left[number + 1 :], store.seconds))
    store.end(steps)


def _time_left(steps: Sequence[Step], seconds: dict[str, float]) -> str:
    if not steps:
        return "All is measured."
    known = [seconds[step.name] for step in steps if step.name in seconds]
    text = f"{len(steps)} more to measure"
    if not known:
        return f"{text}."
    of_those = "" if len(known) == len(steps) else f" for {len(known)} of them"
    return f"{text}; as before, about {duration_text(round(sum(known)))}{of_those}."


def open_store(hardware: Hardware, options: argparse.Namespace, folder: Path = RECORDS) -> Store:
    """Return the store of a run that was stopped on this hardware, else that of the day."""
    ending = f"-{hardware.slug}{'-quick' if options.quick else ''}.json"
    date = datetime.date.today().isoformat()
    path = folder / f"{date}{ending}"
    past = sorted(p for p in folder.glob(f"*{ending}") if len(p.name) == len(path.name))
    last: Record = json.loads(past[-1].read_text()) if past else {}
    if last.get("done") and not options.anew:
        path, date = past[-1], last["date"]
    head: dict[str, Any] = {
        "date": date,
        "hardware": hardware._asdict(),
        "torch": torch.__version__,
        "threads": options.threads,
        "is_quick": options.quick,
    }
    if options.anew:
        head["done"] = []
    return Store(path, {"seconds": last.get("seconds", {}), **head})


def main() -> None:
    """Measure the parts asked for; add them to the day's record of this hardware."""
    options = parse_options()
    logs.configure(quiet=False)
    benchmark = Benchmark(options)
    store = open_store(benchmark.hardware, options)
    measure(benchmark.steps([part for part in PARTS if part in options.only]), store)
    text = report.markdown(store.record)
    results = BUILD if options.quick else RESULTS
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{store.name}.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    logs.info(f"Written to {results / store.name}.md.")


def parse_options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    shapes = GPU_SHAPES if torch.cuda.is_available() else CPU_SHAPES
    parser.add_argument("--peers", type=Path, required=True, help="python of their environment")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--shapes", nargs="+", choices=GPU_SHAPES, default=shapes)
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS, help="of decoding")
    parser.add_argument("--no-generate", action="store_true", help="decoding: no Hugging Face")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--minutes", type=float, default=30.0, help="loss needs time left")
    parser.add_argument("--quick", action="store_true", help="a trial: small steps, and few")
    parser.add_argument("--anew", action="store_true", help="do not continue a stopped run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
