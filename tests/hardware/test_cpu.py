import pytest

from nmt_cli.hardware.cpu import Cpu, read_cpu

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


@pytest.mark.parametrize("text", [None, "", ARM, "vendor_id : \ncpu family : unknown\n"])
def test_what_is_not_stated_is_not_known(tmp_path, text):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    cpu = read_cpu(path)
    assert not cpu.vendor
    assert cpu.family is None
    assert cpu.flags == frozenset()
