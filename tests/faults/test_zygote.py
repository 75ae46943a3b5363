"""The process that forks the commands starts no threads, which would be missing in its children."""

import os
import subprocess
import sys

from tests.faults.trainings import ONE_THREAD, ROOT

# A build for CUDA asks for devices where this one, for the CPU alone, may not.
AS_BUILT_FOR_CUDA = """
from types import SimpleNamespace
import torch
from torch.autograd import Variable

def ask(*_, **__):
    raise SystemExit("CUDA was asked for devices")

torch.backends.cuda.is_built = lambda: True
torch.cuda.is_available = torch.cuda.device_count = ask
Variable._execution_engine = SimpleNamespace(run_backward=ask)

from tests.faults import zygote
zygote.serve()
"""


def test_cuda_is_not_asked_for_devices_before_the_fork():
    ended = subprocess.run(
        [sys.executable, "-c", AS_BUILT_FOR_CUDA],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
