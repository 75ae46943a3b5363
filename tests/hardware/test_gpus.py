import ctypes
import subprocess
import sys

import pytest

from nmt_cli.hardware.gpus import may_have_gpu

WITHOUT_A_DRIVER = """
import sys
from nmt_cli.hardware import gpus
gpus.may_have_gpu = lambda: False
print(gpus.device_name("auto"), gpus.device_name("cpu"), gpus.visible_gpus())
try:
    gpus.device_name("cuda:1")
except gpus.UserError as error:
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
