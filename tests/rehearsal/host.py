"""A process that believes in a GPU, and forks a child for each scenario that is asked for.

It loads the shim before torch, whose path is its argument. Each line of stdin is a request in JSON:
the keywords of ``rehearse`` and the file for its report. Each line of stdout is the exit status of
the child, which has written the report.
"""

import ctypes
import gc
import json
import os
import pickle
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn


def be_the_child(request: dict[str, Any]) -> NoReturn:
    """Rehearse the scenario, write its report, and end this process."""
    from tests.rehearsal.scenarios import Toy, rehearse

    status = 1
    try:
        toy = Toy(*map(Path, request.pop("toy")))
        run_dir, report_file = (Path(request.pop(name)) for name in ("run_dir", "report"))
        report = rehearse(toy=toy, run_dir=run_dir, **request)
        report_file.write_bytes(pickle.dumps(report))
        status = 0
    except BaseException:  # os._exit skips the interpreter's own traceback
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def _import_all() -> None:
    """Import once, for all children, also what torch imports when it is first used."""
    import torch
    import torch.nn.attention.varlen
    from torch._subclasses.fake_tensor import FakeTensorMode

    import tests.rehearsal.scenarios  # noqa: F401

    torch.set_num_threads(1)
    with FakeTensorMode():
        (torch.ones(2, 2) @ torch.ones(2, 2)).sum()


def serve(shim: str) -> None:
    """Answer requests until stdin ends."""
    ctypes.CDLL(shim)
    # Nothing finds Triton, whether it is installed or not; driver.py has a stand-in for it.
    sys.modules["triton"] = None  # type: ignore[assignment]
    _import_all()
    # A child lives for seconds. Its collector would look at all that was imported, and copy it.
    gc.disable()
    assert threading.active_count() == 1, "other threads would be missing in every child"
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            be_the_child(json.loads(line))
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
