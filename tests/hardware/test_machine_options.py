import ctypes
import subprocess
import sys

import pytest

from nmt_cli.hardware.machine_options import choose_decoding_precision, may_have_gpu
from nmt_cli.messages.errors import UserError


@pytest.mark.parametrize(
    ("name", "device", "has_bf16", "expected"),
    [
        ("auto", "cpu", True, "bf16"),
        ("auto", "cpu", False, "fp32"),
        ("auto", "cuda", True, "bf16"),
        ("fp32", "cpu", True, "fp32"),
        ("int8", "cpu", True, "int8"),
        ("bf16", "cuda", False, "bf16"),
    ],
)
def test_int8_is_chosen_only_by_name_and_bf16_where_there_are_instructions(
    name, device, has_bf16, expected, caplog
):
    assert choose_decoding_precision(name, device, has_bf16=has_bf16) == expected
    assert not caplog.records


def test_bf16_is_fp32_on_a_cpu_without_instructions_and_that_is_said(caplog):
    assert choose_decoding_precision("bf16", "cpu", has_bf16=False) == "fp32"
    assert "bf16 is computed in fp32: this CPU has no instructions for it." in caplog.text


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("int8", "cuda:1", "--precision int8 is for CPUs, the device is cuda:1"),
        ("int4", "cpu", "must be auto, fp32, bf16 or int8, but is int4"),
    ],
)
def test_what_a_device_cannot_do_is_refused(name, device, message):
    with pytest.raises(UserError, match=message):
        choose_decoding_precision(name, device, has_bf16=True)


WITHOUT_A_DRIVER = """
import sys
from nmt_cli.hardware import machine_options as options
options.may_have_gpu = lambda: False
print(options.device_name("auto"), options.device_name("cpu"), options.visible_gpus())
try:
    options.device_name("cuda:1")
except options.UserError as error:
    print(error)
print("torch" in sys.modules)
"""


def test_without_the_driver_of_a_gpu_no_torch_is_asked_for_one():
    command = [sys.executable, "-c", WITHOUT_A_DRIVER]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = ["cpu cpu 0", "--device cuda:1 asked for, 0 GPUs are visible.", "False"]
    assert found.stdout.splitlines() == lines


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
