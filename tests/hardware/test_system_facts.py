"""How much memory is free and whether there may be a GPU are known without torch."""

import ctypes

import pytest

from nmt_cli.hardware.system_facts import free_memory, may_have_gpu


def test_free_memory_is_what_the_kernel_and_the_control_group_allow(tmp_path):
    assert free_memory(tmp_path) == 0  # unknown
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8000 kB\nMemAvailable: 5000 kB\n")
    assert free_memory(tmp_path) == 5000 * 1024
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1000\n")
    assert free_memory(tmp_path) == 1000


@pytest.mark.parametrize("driver", [True, False])
def test_a_gpu_needs_a_driver(tmp_path, monkeypatch, driver):
    def load(name):
        assert name == "libcuda.so.1"
        if not driver:
            raise OSError

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert may_have_gpu(tmp_path) == driver
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()  # AMD's
    assert may_have_gpu(tmp_path)
