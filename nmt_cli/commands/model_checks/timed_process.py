"""The process that measures one model; it imports only what translating needs."""

import json
import sys
import time
from pathlib import Path
from statistics import median

from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator

PROGRAM = "from nmt_cli.commands.model_checks.timed_process import main; main()"
THREADS = 2
LINES_ALONE, WARM_UP = 20, 8


def main() -> None:
    """Measure the model that stdin names, with its lines and options; write figures to stdout."""
    path, texts, options = json.load(sys.stdin)
    set_num_threads(THREADS)
    translator = Translator.load(path, **options)
    requests = [Request(text, tag=tag) for text, tag in texts]
    translator.translate_window(requests[:WARM_UP])
    seconds = list[float]()
    for window in (requests, *([request] for request in requests[:LINES_ALONE])):
        started = time.perf_counter()
        translator.translate_window(window)
        seconds.append(time.perf_counter() - started)
    # Not getrusage: the maximum there includes that of the process that started this one.
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    figures = {
        "lines_per_second": round(len(requests) / seconds[0], 1),
        "ms_of_one_line": round(1000 * median(seconds[1:]), 2),
        "megabytes_in_memory": round(peak * 1024 / 1e6, 1),
    }
    json.dump(figures, sys.stdout)
