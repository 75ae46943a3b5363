import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands.doctor import advice_on
from nmt_cli.hardware.system_facts import system_facts
from nmt_cli.hardware.torch_facts import is_built_for
from nmt_cli.model.compiled import c_library as compiled

TORCH_FACTS = "nmt_cli.hardware.torch_facts"
# A machine that needs no advice.
HEALTHY = {
    "nmt-cli": "1", "python.debug_build": False, "torch.debug_build": False,
    "environment.OMP_NUM_THREADS": None, "environment.MKL_NUM_THREADS": None,
    "environment.CUDA_VISIBLE_DEVICES": None,
    "cpu.cores": 16, "cpu.cores_allowed": 16, "cpu.quota_cores": None, "torch.threads": 16,
    "memory.huge_pages": "madvise", "memory.allowed_gib": 64.0,
    "disk.here_gib": 100.0, "disk.temporary_gib": 100.0, "disk.shared_memory_gib": 32.0,
    "gpu.on_bus": 0, "gpu.driver": None, "torch.cuda": None, "torch.hip": None,
    "torch.gpus": 0, "torch.gpu_problem": None, "torch.cpu_capability": "AVX512",
    "device.cpu.bf16_is_fast": True,
}  # fmt: skip
ON_GPU = HEALTHY | {
    "gpu.on_bus": 1, "gpu.driver": "580.1", "torch.cuda": "12.8", "torch.gpus": 1,
    "device.cpu.bf16_is_fast": False, "device.cuda.0.name": "NVIDIA H200",
    "device.cuda.0.capability": "9.0", "device.cuda.0.is_built_for": True,
    "device.cuda.0.memory_gib": 139.8, "device.cuda.0.free_gib": 139.0,
    "device.cuda.0.bf16_is_fast": True, "device.cuda.0.precision": "bf16",
}  # fmt: skip
NO_GPU_SEEN = {"torch.cuda": "12.8", "torch.gpus": 0}


def run_doctor(*arguments):
    result = CliRunner().invoke(cli.main, ["doctor", *arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_every_line_is_a_name_and_a_value():
    lines = run_doctor().splitlines()
    facts = dict(line.split(": ", 1) for line in lines if not line.startswith("advice: "))
    assert lines[-1].startswith("advice: ")
    assert len(facts) == len([line for line in lines if not line.startswith("advice: ")])
    assert all(re.fullmatch(r"[\w.-]+", name) for name in facts)
    assert facts["torch.version"] == torch.__version__
    assert facts["torch.threads"] == str(torch.get_num_threads())
    assert facts["packages.numpy"] == metadata.version("numpy")
    assert facts["cpu.cores_allowed"] == str(len(os.sched_getaffinity(0)))
    assert facts["device.cpu.precision"] in {"fp32", "bf16"}


def test_json_holds_the_same_facts():
    found = json.loads(run_doctor("--format", "json"))
    names = [line.split(": ")[0] for line in run_doctor().splitlines()]
    assert [*found["facts"]] == [name for name in names if name != "advice"]
    assert isinstance(found["facts"]["cpu.cores_allowed"], int)
    assert found["advice"] == advice_on(found["facts"])


def test_the_level_of_the_library_for_cpus_is_a_fact_or_its_problem(library, monkeypatch):
    assert f"translating.level: {library.level}" in run_doctor().splitlines()
    monkeypatch.setattr(compiled, "LIBRARY", Path("none.so"))
    compiled.load_library.cache_clear()
    lines = run_doctor().splitlines()
    compiled.load_library.cache_clear()
    assert "translating.level: none" in lines
    (problem,) = [line for line in lines if line.startswith("advice: torch translates on this")]
    assert "none.so was not built when nmt-cli was installed. Install a C compiler" in problem


def test_without_torch_and_the_library_no_advice_contradicts_another():
    without = HEALTHY | {"torch.version": None, "translating.problem": "no library"}
    first, second = advice_on(without)
    assert first.startswith("torch is not installed, so this installation cannot train; to train")
    assert second == "nothing translates on this CPU: no library"


def test_a_package_that_is_not_installed_is_printed_as_none(monkeypatch):
    version = metadata.version

    def version_of_others(name):
        if name == "matplotlib":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", version_of_others)
    lines = run_doctor().splitlines()
    assert "packages.matplotlib: none" in lines


def test_a_broken_torch_is_a_fact_and_not_an_error(monkeypatch):
    monkeypatch.delitem(sys.modules, TORCH_FACTS, raising=False)
    monkeypatch.setitem(sys.modules, "nmt_cli.hardware.memory", None)
    lines = run_doctor().splitlines()
    assert any(
        line.startswith("torch.problem: import of nmt_cli.hardware.memory") for line in lines
    )
    assert any(line.startswith("advice: torch cannot be imported") for line in lines)
    assert any(line.startswith("cpu.cores_allowed: ") for line in lines)


@pytest.fixture(scope="module")
def with_one_thread():
    """The command in a process of its own, because torch and OpenMP read the variables once."""
    return subprocess.run(
        [sys.executable, "-m", "nmt_cli", "doctor"], capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": ""},
    )  # fmt: skip


def test_one_thread_asked_for_is_seen(with_one_thread):
    lines = with_one_thread.stdout.splitlines()
    assert "torch.threads: 1" in lines
    assert "environment.OMP_NUM_THREADS: 1" in lines
    if len(os.sched_getaffinity(0)) > 1:
        assert any("because of OMP_NUM_THREADS" in line for line in lines)


def test_the_systems_files_are_read(tmp_path, monkeypatch):
    files = {
        "proc/cpuinfo": "processor : 0\nmodel name\t: A Good CPU\n",
        "proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\n",
        "sys/fs/cgroup/cpu.max": "250000 100000\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n",
        "sys/bus/pci/devices/0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0/class": "0x030200\n",
        "sys/bus/pci/devices/1/vendor": "0x10de\n",
        "sys/bus/pci/devices/1/class": "0x040300\n",  # the sound of a graphics card
        "sys/bus/pci/devices/2/vendor": "0x8086\n",
        "sys/bus/pci/devices/2/class": "0x030000\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    facts = system_facts(tmp_path)
    expected = {
        "cpu.name": "A Good CPU", "memory.total_gib": 8.0, "memory.available_gib": 1.0,
        "cpu.quota_cores": 2.5, "memory.huge_pages": "never", "gpu.driver": "580.95.05",
        "gpu.on_bus": 1, "environment.CUDA_VISIBLE_DEVICES": "", "disk.shared_memory_gib": None,
    }  # fmt: skip
    assert {name: facts[name] for name in expected} == expected


def test_a_folder_that_is_gone_and_no_temporary_place_are_survived(tmp_path, monkeypatch):
    def fail():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", fail)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    Path(tmp_path / "gone").rmdir()
    assert system_facts()["disk.temporary_gib"] is None


@pytest.mark.parametrize("facts", [HEALTHY, ON_GPU])
def test_a_healthy_machine_gets_no_advice(facts):
    assert advice_on(facts) == []


@pytest.mark.parametrize(
    ("base", "changes", "said"),
    [
        (HEALTHY, {"torch.debug_build": True}, "debug build of torch"),
        (HEALTHY, {"python.debug_build": True}, "debug build of python"),
        (HEALTHY, {"torch.threads": 1, "environment.OMP_NUM_THREADS": "1"},
         "1 thread on 16 cores because of OMP_NUM_THREADS; give --threads 16"),
        (HEALTHY, {"torch.threads": 4}, "4 threads on 16 cores; give"),
        (HEALTHY, {"torch.threads": 8}, None),  # two hardware threads a core
        (HEALTHY, {"cpu.cores_allowed": 4, "torch.threads": 4}, "4 of the machine's 16 cores"),
        (HEALTHY, {"cpu.quota_cores": 1.5, "torch.threads": 2}, "2 of the machine's 16 cores"),
        (HEALTHY, {"device.cpu.bf16_is_fast": False}, "neither AVX512_BF16 nor AMX"),
        (HEALTHY, {"torch.cpu_capability": "DEFAULT"}, "no vector instructions"),
        (HEALTHY, {"memory.huge_pages": "never"}, "no huge pages"),
        (HEALTHY, {"memory.allowed_gib": 2.0}, "2.0 GiB of memory"),
        (HEALTHY, {"disk.here_gib": 0.5}, "0.5 GiB are free on this disk"),
        (HEALTHY, {"disk.temporary_gib": 0.0}, "set TMPDIR"),
        (HEALTHY, {"disk.temporary_gib": None}, "no place for temporary files"),
        (HEALTHY, {"disk.shared_memory_gib": 0.06}, "--shm-size"),
        (HEALTHY, {"torch.cuda": "12.8"}, "GPU build, but there is no GPU"),
        (HEALTHY, {"gpu.on_bus": 1}, "install a CUDA build"),
        (ON_GPU, NO_GPU_SEEN | {"environment.CUDA_VISIBLE_DEVICES": ""}, "hides the GPUs"),
        (ON_GPU, NO_GPU_SEEN | {"gpu.driver": None}, "without a driver"),
        (ON_GPU, NO_GPU_SEEN | {"torch.gpu_problem": "driver is too old"}, "driver is too old"),
        (ON_GPU, NO_GPU_SEEN, "a container may hide it"),
        (ON_GPU, {"device.cuda.0.is_built_for": False}, "capability 9.0, for which"),
        (ON_GPU, {"device.cuda.0.bf16_is_fast": False}, "slow in bf16"),
        (ON_GPU, {"device.cuda.0.free_gib": 20.0}, "20.0 of 139.8 GiB free"),
        (ON_GPU, {"device.cuda.0.free_gib": None}, "cannot be used by this process"),
    ],
)  # fmt: skip
def test_advice(base, changes, said):
    facts = base | changes
    if "torch.gpus" in changes:
        facts = facts | {"device.cpu.bf16_is_fast": True}
    advice = advice_on(facts)
    assert [said in sentence for sentence in advice] == ([True] if said else [])


def test_threads_that_wait_for_one_another_are_reported():
    advice = advice_on(HEALTHY | {"cpu.quota_cores": 2.0})
    assert any("16 threads, which wait" in sentence for sentence in advice)


@pytest.mark.parametrize(
    ("capability", "architectures", "is_built"),
    [
        ((9, 0), ["sm_80", "sm_90"], True),
        ((8, 9), ["sm_80", "sm_90"], True),
        ((6, 1), ["sm_75", "sm_80"], False),
        ((8, 0), ["sm_86"], False),
        ((10, 3), ["sm_90", "sm_100"], True),
        ((12, 0), ["sm_90", "sm_100"], False),
        ((12, 0), ["sm_90", "compute_90"], True),
        ((9, 0), ["sm_90a"], True),
        ((9, 0), ["gfx942"], False),
        ((9, 0), [], False),
    ],
)
def test_a_build_for_architectures_runs_on(capability, architectures, is_built):
    assert is_built_for(capability, architectures) == is_built
