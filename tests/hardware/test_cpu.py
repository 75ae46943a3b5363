"""The CPU, the cores and the limits of a process, from files of made-up machines."""

import os
import subprocess
import sys

import pytest

from nmt_cli.hardware import cpu
from nmt_cli.hardware.cpu import (
    CHOSEN_BY_USERS,
    SPINS,
    Cores,
    Cpu,
    cores,
    cpu_limit,
    limit_spinning,
    memory_limit,
    read_cpu,
    threads_of_each,
)

CPUINFO = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model name\t: AMD EPYC 9005: with a colon
flags\t\t: fpu avx512f avx512bw
bugs\t\t: sysret_ss_attrs

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
flags\t\t: fpu amx_tile
"""
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd bf16\nCPU implementer\t: 0x41\n"


def test_the_first_core_is_read(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO)
    assert read_cpu(path) == Cpu("AuthenticAMD", 26, frozenset({"fpu", "avx512f", "avx512bw"}))


def test_the_features_of_an_arm_are_read(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(ARM)
    assert read_cpu(path) == Cpu(None, None, frozenset({"fp", "asimd", "bf16"}))


@pytest.mark.parametrize("text", [None, "", "vendor_id : \ncpu family : unknown\n"])
def test_what_is_not_stated_is_not_known(tmp_path, text):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    cpu = read_cpu(path)
    assert not cpu.vendor
    assert cpu.family is None
    assert cpu.flags == frozenset()


@pytest.mark.parametrize(
    ("quota", "usable", "threads"),
    [(None, 4, 4), (6.0, 4, 4), (2.0, 2, 2), (1.5, 1.5, 2), (0.25, 0.25, 1)],
)
def test_a_quota_only_lowers_the_usable_cores(quota, usable, threads):
    found = Cores(4, quota)
    assert (found.usable, found.worth_a_thread) == (usable, threads)


def test_only_the_cores_of_this_process_count(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 6})
    assert cores(tmp_path) == Cores(3)


@pytest.mark.parametrize(("num_workers", "threads"), [(1, 3), (2, 1), (3, 1), (8, 1)])
def test_workers_share_the_cores_and_each_has_a_thread(monkeypatch, num_workers, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 6})
    assert threads_of_each(num_workers) == threads


@pytest.mark.parametrize(
    ("usable", "together", "threads"),
    [
        (64, 64, 8),  # none is bound
        (8, 64, 8),  # each is bound to cores of its own
        (32, 64, 8),  # four share a socket
        (4, 64, 4),  # --cpus-per-task=4 of a whole node
        (64, 16, 2),  # others use the rest of the node
        (2, 4, 1),
    ],
)
def test_workers_may_be_bound_to_a_part_of_their_cores(monkeypatch, usable, together, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)))
    monkeypatch.setattr(cpu, "cpu_limit", lambda _: None)
    assert threads_of_each(8, together) == threads


@pytest.mark.parametrize("quota", [2.0, 1.5])
def test_workers_share_what_a_quota_leaves(monkeypatch, quota):
    monkeypatch.setattr(cpu, "cores", lambda: Cores(64, quota))
    assert [threads_of_each(num_workers) for num_workers in (1, 2, 8)] == [2, 1, 1]


SLURM = "/slurm/uid_1000/job_7/step_0"
VERSION_1 = f"11:memory:{SLURM}/task_0\n4:cpu,cpuacct:{SLURM}\n1:name=systemd:/init.scope\n"


@pytest.fixture
def machine(tmp_path):
    """A function that writes /proc/self/cgroup and files below /sys/fs/cgroup; returns the root."""

    def write(groups, files):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
        for name, text in files.items():
            path = tmp_path / "sys/fs/cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return tmp_path

    return write


@pytest.mark.parametrize("level", ["a.slice/job.scope/step", "a.slice/job.scope", "a.slice", "."])
def test_the_smallest_limit_of_all_levels_counts(machine, level):
    levels = ["a.slice/job.scope/step", "a.slice/job.scope", "a.slice", "."]
    files = {f"{name}/memory.max": "9000" for name in levels} | {f"{level}/memory.max": "800"}
    files |= {f"{name}/cpu.max": "400000 100000" for name in levels}
    files |= {f"{level}/cpu.max": "150000 100000"}
    system = machine("0::/a.slice/job.scope/step\n", files)
    assert (memory_limit(system), cpu_limit(system)) == (800, 1.5)


def test_groups_beside_those_of_the_process_do_not_count(machine):
    files = {"a.slice/memory.max": "max", "b.slice/memory.max": 800, "a.slice/c/memory.max": 700}
    assert memory_limit(machine("0::/a.slice\n", files)) is None


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_version_1_has_a_hierarchy_for_each_controller(machine, mount):
    files = {
        f"memory{SLURM}/task_0/memory.limit_in_bytes": 9223372036854771712,
        f"memory{SLURM}/memory.limit_in_bytes": 8_000,
        "memory/memory.limit_in_bytes": 9223372036854771712,
        f"{mount}{SLURM}/cpu.cfs_quota_us": 50_000,
        f"{mount}{SLURM}/cpu.cfs_period_us": 100_000,
        f"{mount}/cpu.cfs_quota_us": -1,
        f"{mount}/cpu.cfs_period_us": 100_000,
    }
    system = machine(VERSION_1, files)
    assert (memory_limit(system), cpu_limit(system)) == (8_000, 0.5)


def test_both_versions_side_by_side(machine):
    files = {
        "memory/memory.limit_in_bytes": 9_000,
        "unified/user.slice/memory.max": 8_000,
        "unified/user.slice/cpu.max": "100000 100000",
    }
    system = machine("11:memory:/\n0::/user.slice/app\n", files)
    assert (memory_limit(system), cpu_limit(system)) == (8_000, 1.0)


@pytest.mark.parametrize(
    ("files", "memory", "cpu"),
    [
        ({"memory.max": 8_000, "cpu.max": "150000 100000"}, 8_000, 1.5),
        (
            {
                "memory/memory.limit_in_bytes": 8_000,
                "cpu/cpu.cfs_quota_us": 50_000,
                "cpu/cpu.cfs_period_us": 100_000,
            },
            8_000,
            0.5,
        ),
        ({"memory.max": "max", "cpu.max": "max 100000"}, None, None),
        ({"cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100_000}, None, None),
        ({}, None, None),
    ],
)
@pytest.mark.parametrize("groups", ["", "0::/docker/0123\n11:memory:/docker/0123\n", "nonsense\n"])
def test_a_container_sees_its_own_group_at_the_root(machine, groups, files, memory, cpu):
    system = machine(groups, files)
    assert (memory_limit(system), cpu_limit(system)) == (memory, cpu)


def test_a_path_out_of_the_groups_namespace_is_no_error(machine):
    assert memory_limit(machine("0::/../../a.slice\n", {"memory.max": 800})) == 800


def test_threads_spin_for_a_while_before_they_sleep(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    environment = {"OMP_NUM_THREADS": "2", "HOME": "/root"}
    limit_spinning(environment)
    assert environment == {"OMP_NUM_THREADS": "2", "HOME": "/root"} | SPINS


@pytest.mark.parametrize("name", CHOSEN_BY_USERS)
def test_how_threads_wait_stays_as_a_user_chose(monkeypatch, name):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    environment = {name: "active"}
    limit_spinning(environment)
    assert environment == {name: "active"}


def test_after_torch_the_spins_are_not_set(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    environment: dict[str, str] = {}
    limit_spinning(environment)
    assert environment == {}


def test_openmp_reads_how_its_threads_are_to_wait():
    program = "from nmt_cli.hardware.cpu import limit_spinning; limit_spinning(); import torch"
    environment = {name: os.environ[name] for name in os.environ.keys() - set(CHOSEN_BY_USERS)}
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**environment, "OMP_DISPLAY_ENV": "verbose"},
    ).stderr  # fmt: skip
    if "GOMP_SPINCOUNT" not in shown:
        pytest.skip("torch does not compute with GNU's OpenMP")
    assert f"GOMP_SPINCOUNT = '{SPINS['GOMP_SPINCOUNT']}'" in shown
