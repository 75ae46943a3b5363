"""Faults: each function is called in the process of a training before it starts."""

import importlib
import json
import os
import pickle
import resource
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from tests.faults.file_operations import Operation, watch
from tests.faults.points import do_at, reach_points
from tests.faults.trainings import Fault


def fault(function: Callable[..., None], **settings: Any) -> Fault:
    """Return the call of ``function`` as text that can be sent to the child process."""
    return f"{function.__module__}:{function.__name__}", settings


def kill_at(run_dir: str, prepared: str, point: str, nth: int) -> None:
    """Send SIGKILL to this process at the point."""
    signal_at(run_dir, prepared, point, nth, [signal.SIGKILL])


def signal_at(run_dir: str, prepared: str, point: str, nth: int, numbers: Sequence[int]) -> None:
    """Send signals to this process at the point."""

    def receive() -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    reach_points(Path(run_dir), Path(prepared), do_at(point, nth, receive))


def fail_at(run_dir: str, prepared: str, point: str, nth: int, error: int) -> None:
    """Let the system call at the point fail."""

    def fail() -> None:
        raise OSError(error, os.strerror(error))

    reach_points(Path(run_dir), Path(prepared), do_at(point, nth, fail))


def list_points(run_dir: str, prepared: str, output: str) -> None:
    """Write the name of every point as it is reached, a line each."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    reach_points(
        Path(run_dir),
        Path(prepared),
        lambda name: _discard(os.write(descriptor, f"{name}\n".encode())),
    )


def record_operations(run_dir: str, output: str) -> None:
    """Write every file operation beside and in the run directory, one pickle after the other."""
    stream = Path(output).open("ab")  # noqa: SIM115 - to the end

    def observe(moment: str, operation: Operation) -> None:
        if moment != "before":
            pickle.dump(operation, stream)
            stream.flush()

    watch([Path(run_dir).parent], observe)


def limit_file_size(run_dir: str, limit: int, first: int, last: int | None, snapshot: str) -> None:
    """Let no file grow past ``limit`` bytes between two updates; then copy the run directory."""

    def set_limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def after_update(number: int) -> None:
        if number == first:
            set_limit(limit)
        if number == last:
            set_limit(resource.RLIM_INFINITY)
            shutil.copytree(run_dir, snapshot)

    _after_updates(after_update)


def spoil_gradients(batches: Sequence[int], value: float | str) -> None:
    """Put ``value`` into the gradient of these batches, counted from the start of the process."""
    seen = [0]
    hooked: list[torch.nn.Parameter] = []

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        number, seen[0] = seen[0], seen[0] + 1
        return gradient.clone().fill_(float(value)) if number in batches else gradient

    def registered(_: torch.nn.Module, __: str, parameter: torch.nn.Parameter) -> None:
        if not hooked:
            hooked.append(parameter)
            parameter.register_hook(spoil)

    register_module_parameter_registration_hook(registered)


def log_updates(output: str) -> None:
    """Write a hash of weights and moments before and after every update."""
    import hashlib

    stream = Path(output).open("a", encoding="utf-8")  # noqa: SIM115 - to the end
    before: list[str] = []

    def state_of(optimizer: torch.optim.Optimizer) -> str:
        digest = hashlib.sha256()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                digest.update(parameter.detach().numpy().tobytes())
                for name, moment in sorted(optimizer.state[parameter].items()):
                    digest.update(name.encode() + moment.numpy().tobytes())
        return digest.hexdigest()

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        stream.write(json.dumps([before.pop(), state_of(optimizer)]) + "\n")
        stream.flush()

    register_optimizer_step_pre_hook(lambda optimizer, *_: before.append(state_of(optimizer)))
    register_optimizer_step_post_hook(after)


def log_seeds(output: str) -> None:
    """Write every seed that is given to torch, or to its generator for the CPU, a line each."""
    stream = Path(output).open("a", encoding="utf-8")  # noqa: SIM115 - to the end

    def logging(manual_seed: Any) -> Any:
        def logged(seed: int) -> torch.Generator:
            stream.write(f"{seed}\n")
            stream.flush()
            return manual_seed(seed)

        return logged

    of_cpu: Any = SimpleNamespace(manual_seed=logging(torch.default_generator.manual_seed))
    torch.manual_seed, torch.default_generator = logging(torch.manual_seed), of_cpu


def jump_clock() -> None:
    """Make the wall clock jump a day forwards and backwards at each reading."""
    real, calls = time.time, [0]

    def jumping() -> float:
        calls[0] += 1
        return real() + (86_400 if calls[0] % 2 else -86_400)

    time.time = jumping


def _after_updates(action: Callable[[int], None]) -> None:
    count = [0]

    def after(*_: Any) -> None:
        count[0] += 1
        action(count[0])

    register_optimizer_step_post_hook(after)


def _discard(_: object) -> None:
    """Discard the value; for lambdas that must return None."""


def set_constant(where: str, value: Any) -> None:
    """Give the constant ``module:NAME`` another value."""
    module, name = where.split(":")
    setattr(importlib.import_module(module), name, value)


def set_items(where: str, items: dict[str, Any]) -> None:
    """Change entries of the dictionary ``module:NAME``."""
    module, name = where.split(":")
    getattr(importlib.import_module(module), name).update(items)


def save_in_thread() -> None:
    """Let a thread write the checkpoints while training goes on, as on a GPU."""
    from nmt_cli.training import saving

    saving.writes_in_thread = lambda machine: True
