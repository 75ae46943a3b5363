"""How much memory is free is known without torch."""

from nmt_cli.hardware.system_facts import free_memory


def test_free_memory_is_what_the_kernel_and_the_control_group_allow(tmp_path):
    assert free_memory(tmp_path) == 0  # unknown
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8000 kB\nMemAvailable: 5000 kB\n")
    assert free_memory(tmp_path) == 5000 * 1024
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1000\n")
    assert free_memory(tmp_path) == 1000
