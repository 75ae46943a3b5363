"""A process that has imported everything once and forks a child for each command asked for.

A fork that runs ``nmt-cli`` costs hundredths of a second, a fresh interpreter with torch seconds.
Each line of stdin is a request in JSON, each line of stdout its answer:

    {"arguments": [...], "stderr": FILE, "faults": [["module:function", {...}], ...]}    -> a pid
    {"wait": PID}    -> its exit status, the negative number of the signal that killed it
"""

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock, patch

import torch
from torch.autograd import Variable

from nmt_cli.hardware import fp32_products
from nmt_cli.hardware.system_facts import version_of
from nmt_cli.recipe.keys import recorded_keys_of_text
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe

PR_SET_PDEATHSIG = 1  # prctl.h
FAULT_FAILED = 99  # exit status of a child into which a fault could not be injected


def prepare_what_training_needs() -> None:
    """Import, compile and build also what is made when it is first used."""
    for name in (
        "encodings.utf_8_sig", "multiprocessing.synchronize", "numpy.ctypeslib",
        "torch.utils.serialization", "nmt_cli.cli", "nmt_cli.command_line.training",
        "nmt_cli.commands.train", "nmt_cli.training.session", "sacrebleu.tokenizers.tokenizer_13a",
        "sacrebleu.tokenizers.tokenizer_none", "nmt_cli.commands.average_checkpoints",
        "nmt_cli.commands.translate", "nmt_cli.search.torch_models",
        "nmt_cli.translating.outputs.attention_to_source", "tests.faults.faults",
    ):  # fmt: skip
        importlib.import_module(name)
    recipe = read_recipe("base").recipe
    dump_recipe(recipe)
    recorded_keys_of_text(**recipe.model_dump(mode="json", include={"data", "tokenizer"}))
    version_of("torch")
    with suppress(ImportError):  # TensorBoard is an extra
        importlib.import_module("nmt_cli.saved.tensorboard_log")
    weight = torch.nn.Parameter(torch.ones(1))
    # Set, because autograd's first backward pass asks CUDA for devices.
    weight.grad = torch.ones(1)
    torch.optim.Adam([weight], fused=True).step()


def be_the_command(arguments: list[str], stderr: str, faults: list[tuple[str, Any]]) -> NoReturn:
    """Run ``nmt-cli`` with ``faults`` in this child; never returns."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    streams = (
        os.open(os.devnull, os.O_RDWR),
        os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    )
    for descriptor, source in zip((0, 1, 2), (streams[0], streams[0], streams[1]), strict=True):
        os.dup2(source, descriptor)
    sys.stderr = Path(stderr).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 - to the end
    status = FAULT_FAILED
    try:
        for where, settings in faults:
            module, function = where.split(":")
            getattr(importlib.import_module(module), function)(**settings)
        from nmt_cli.cli import main

        status = 1
        main(arguments, prog_name="nmt-cli")
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # os._exit skips the interpreter's own traceback
        traceback.print_exc()
    os._exit(status)


def answer(request: dict[str, Any]) -> int:
    """Do what ``request`` asks for; return a pid, or an exit status."""
    if "wait" in request:
        return os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
    pid = os.fork()
    if pid == 0:
        be_the_command(**request)
    return pid


def serve() -> None:
    """Answer requests until stdin ends."""
    torch.set_num_threads(1)
    torch.cuda.is_available = lambda: False  # the GPUs are hidden from this process
    fp32_products.FASTER_BY_ONEDNN = frozenset()  # oneDNN compiles a program for each shape
    asked = Mock(side_effect=SystemExit("a build of torch for CUDA would ask for devices"))
    with (  # the threads that ask would be missing in every child
        patch("torch.backends.cuda.is_built", lambda: True),
        patch("torch.cuda.device_count", asked),
        patch.object(Variable, "_execution_engine", SimpleNamespace(run_backward=asked)),
    ):
        prepare_what_training_needs()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("other threads would be missing in every child")
    gc.disable()  # children end before garbage fills the memory
    gc.freeze()
    for line in sys.stdin:
        sys.stdout.write(f"{answer(json.loads(line))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
