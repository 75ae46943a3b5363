"""``make benchmark``: measures, prints a record, and writes it to a file named by the hardware.

python -m tests.benchmarks.run --peers build/benchmark-venv/bin/python [--only speed ...]
"""

import argparse
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from nmt_cli import logs
from tests.benchmarks import report
from tests.benchmarks.parts import BUILD, Benchmark

RESULTS = Path("tests/benchmarks/results")
PARTS = ("data", "kernels", "memory", "speed", "decoding", "waiting", "loss")
TEXTS = ("captions", "news")
CPU_SHAPES, GPU_SHAPES = ("S", "base"), ("S", "base", "base-25k", "big-25k")


def main() -> None:
    """Run the parts asked for; add them to the day's record of this hardware."""
    options = parse_options()
    logs.configure(quiet=False)
    benchmark = Benchmark(options)
    date = datetime.date.today().isoformat()
    name = f"{date}-{benchmark.hardware.slug}{'-quick' if options.quick else ''}"
    store = BUILD / "records" / f"{name}.json"
    record: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {}
    record |= {
        "date": date,
        "hardware": benchmark.hardware._asdict(),
        "torch": torch.__version__,
        "threads": options.threads,
        "is_quick": options.quick,
    }
    store.parent.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        if part not in options.only:
            continue
        result = getattr(benchmark, part)(record)
        record[part] = {**record.get(part, {}), **result}
        store.write_text(json.dumps(record, indent=1))
    text = report.markdown(record)
    results = BUILD if options.quick else RESULTS
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    logs.info(f"Written to {results / name}.md.")


def parse_options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    shapes = GPU_SHAPES if torch.cuda.is_available() else CPU_SHAPES
    parser.add_argument("--peers", type=Path, required=True, help="python of their environment")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--shapes", nargs="+", choices=GPU_SHAPES, default=shapes)
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS, help="of decoding")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--minutes", type=float, default=30.0, help="loss needs time left")
    parser.add_argument("--quick", action="store_true", help="a trial: small steps, and few")
    return parser.parse_args()


if __name__ == "__main__":
    main()
