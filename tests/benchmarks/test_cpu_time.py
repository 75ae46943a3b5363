"""CPU time is that of a process and of all that it has started."""

import os
import subprocess
import sys
import time

import pytest

from tests.benchmarks.cpu_time import TICKS, cpu_seconds, cpu_seconds_of_all, with_children

# A process whose child computes for as long as it says.
PROGRAM = """
import subprocess, sys, time
if len(sys.argv) > 1:
    while time.process_time() < 0.3: pass
    print(time.process_time(), flush=True)
    sys.stdin.read()
else:
    subprocess.run([sys.executable, __file__, "child"])
"""


def test_the_time_of_children_and_theirs_counts(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    before, own = cpu_seconds_of_all(os.getpid()), time.process_time()
    with subprocess.Popen(
        [sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        of_child = float(process.stdout.readline())
        middle, child = with_children(process.pid)
        found = cpu_seconds_of_all(os.getpid()) - before
        expected = time.process_time() - own + cpu_seconds(middle) + of_child
        process.communicate("")
    assert cpu_seconds(os.getpid()) <= time.process_time() + 1 / TICKS
    assert found == pytest.approx(expected, abs=5 / TICKS)
    assert of_child >= 0.3
    assert child != process.pid
