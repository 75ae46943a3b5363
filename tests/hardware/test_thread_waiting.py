import json
import os
import subprocess
import sys
import threading

import pytest
import torch

from nmt_cli.hardware import thread_waiting
from nmt_cli.hardware.thread_waiting import (
    CHOSEN_BY_USERS,
    LONG_SPINNING,
    following_load,
    spin_long,
    spins_long,
    waking_microseconds,
)
from nmt_cli.hardware.undocumented import gnu_openmp
from nmt_cli.messages import logs

# Follows the states of the process's threads, as the kernel shows them: a thread that spins runs.
PROGRAM = """\
import json, os, sys, threading, time
from pathlib import Path
from nmt_cli.messages import logs
from nmt_cli.hardware import thread_waiting
from nmt_cli.hardware.cpu import Cores

thread_waiting.LONG_SPINNING = {"GOMP_SPINCOUNT": "30000000000"}  # minutes
thread_waiting.SECONDS_BETWEEN_LOOKS = 0.01
others = 0.0
class Meter:
    def others(self):
        return others
warnings = []
thread_waiting.logs.warning = warnings.append
thread_waiting.LOOKS_BEFORE_WARNING = 3
thread_waiting.LoadMeter = Meter
thread_waiting.cores = lambda: Cores(2)
thread_waiting.spin_long()
import torch
torch.set_num_threads(2)
numbers = torch.ones(1 << 16)

def states():
    main, seen = threading.get_native_id(), []
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != main:
            seen.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return seen

def becomes(spinning):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        numbers.add_(1)
        time.sleep(0.01)
        # Twice, because a thread that follows the load runs for a moment as well.
        if all(("R" in states()) == spinning for _ in "12"):
            return True
    return False

found = {"before": becomes(True)}
with thread_waiting.following_load(2):
    found["quiet"] = becomes(True)
    others = 1.0
    found["crowded"] = becomes(False)
    others = 0.0
    found["quiet again"] = becomes(True)
    others = 1.0
    found["crowded again"] = becomes(False)
    until = time.monotonic() + 20
    while not warnings and time.monotonic() < until:
        time.sleep(0.01)
found["one warning"] = len(warnings) == 1
found["after"] = becomes(True)
sys.stdout.write(json.dumps(found))
sys.stdout.flush()
os._exit(0)  # without waiting for the thread that spins
"""


@pytest.fixture
def before_torch(monkeypatch):
    """Look like a process that has not imported torch yet; nothing may import it meanwhile."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.mark.usefixtures("before_torch")
def test_other_variables_leave_the_waiting_to_us():
    environment = {"OMP_NUM_THREADS": "2", "HOME": "/root"}
    spin_long(environment)
    assert environment == {"OMP_NUM_THREADS": "2", "HOME": "/root"} | LONG_SPINNING
    assert spins_long(environment)


@pytest.mark.usefixtures("before_torch")
@pytest.mark.parametrize("name", CHOSEN_BY_USERS)
def test_what_a_user_chose_stays(name):
    environment = {name: "active"}
    spin_long(environment)
    assert environment == {name: "active"}
    assert not spins_long(environment)


def test_users_can_choose_what_we_set():
    assert set(LONG_SPINNING) < set(CHOSEN_BY_USERS)


def test_after_torch_nothing_changes(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    environment: dict[str, str] = {}
    spin_long(environment)
    assert environment == {}
    assert not spins_long(environment)


@pytest.mark.skipif(gnu_openmp() is None, reason="torch does not compute with GNU's OpenMP")
def test_threads_spin_while_there_are_cores_and_sleep_beside_other_programs():
    environment = {name: os.environ[name] for name in os.environ.keys() - set(CHOSEN_BY_USERS)}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
        env=environment,
    )  # fmt: skip
    states = ("before", "quiet", "crowded", "quiet again", "crowded again", "one warning")
    assert json.loads(result.stdout) == dict.fromkeys((*states, "after"), True)


@pytest.mark.parametrize(
    ("num_threads", "variables"),
    [(2, {}), (2, {**LONG_SPINNING, "OMP_WAIT_POLICY": "active"}), (1, LONG_SPINNING)],
)
def test_the_waiting_of_one_thread_or_of_a_users_choice_is_not_changed(
    monkeypatch, capsys, num_threads, variables
):
    for name in CHOSEN_BY_USERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    looked = threading.Event()

    class Crowded:
        looks = 0

        def others(self):
            Crowded.looks += 1
            if Crowded.looks == 5:
                looked.set()
            return 100.0

    monkeypatch.setattr(thread_waiting, "LoadMeter", Crowded)
    monkeypatch.setattr(thread_waiting, "SECONDS_BETWEEN_LOOKS", 0.001)
    monkeypatch.setattr(thread_waiting, "LOOKS_BEFORE_WARNING", 3)
    monkeypatch.setattr(thread_waiting, "sleeping_at_once", lambda _: pytest.fail("changed"))
    logs.configure(quiet=True)
    with following_load(num_threads):
        assert looked.wait(20)
    assert capsys.readouterr().err.count("Warning: other programs keep ") == 1


@pytest.mark.skipif(gnu_openmp() is None, reason="torch does not compute with GNU's OpenMP")
def test_the_cost_of_waking_is_measured():
    library = gnu_openmp()
    assert library is not None
    numbers = torch.ones(8)
    assert 0 <= waking_microseconds(library, lambda: numbers.add_(1)) < 1e5
    assert numbers.max() > 100
