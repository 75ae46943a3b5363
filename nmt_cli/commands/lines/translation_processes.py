"""How many processes translate, and the interface of the command to one or to many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.cpu import LoadMeter, warn_if_busy
from nmt_cli.hardware.device import (
    choose_device,
    set_num_threads,
    useful_threads,
    visible_gpus,
)
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.hardware.thread_waiting import following_load
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers.messages import WorkerModel
from nmt_cli.translating.workers.pool import WorkerPool
from nmt_cli.translating.workers.process import Starter


class Processes(NamedTuple):
    """The processes that share the text."""

    number: int
    are_workers: bool  # processes beside that of the command
    on_gpus: bool  # a GPU for each


class Engine(NamedTuple):
    """What translates, and what its options became."""

    translate: Callable[[Iterator[Sequence[Request]]], Iterator[list[Translation]]]
    chosen: Mapping[str, str]  # of its translators
    threads: int  # of each process


def choose_processes(device: str, workers: int, devices: int | None) -> Processes:
    """Return the processes that the options ask for. Raises UserError if they do not fit."""
    on_gpus = choose_device(device).type == "cuda"
    if devices is None:
        if workers > 1 and on_gpus:
            raise UserError(
                f"--workers {workers} are processes on the CPU; add --device cpu, or share the "
                "text over GPUs with --devices."
            )
        return Processes(workers, workers > 1, False)
    if workers > 1:
        raise UserError("--workers are processes on the CPU, --devices GPUs; give one of them.")
    if device not in {AUTO, "cuda"}:
        raise UserError(f"--devices counts GPUs; leave --device {device} out.")
    if not on_gpus or devices > visible_gpus():
        raise UserError(
            f"--devices {devices} asked for, {visible_gpus()} GPUs are visible. --workers shares "
            "the text over processes on the CPU."
        )
    return Processes(devices, devices > 1, True)


@contextmanager
def opened_engine(
    model: Path,
    processes: Processes,
    device: str,
    threads: int | None,
    options: Mapping[str, Any],
) -> Iterator[Engine]:
    """Yield what translates with ``model`` in this process, or in workers that end with the block.

    Raises UserError if the model, the device or an option is wrong.
    """
    keep_freed_memory()
    if not processes.are_workers:
        if threads is not None:
            set_num_threads(threads)
        translator = Translator.load(model, device=device, **options)
        num_threads = useful_threads(choose_device(device))
        chosen = getattr(translator, "chosen", {})
        with following_load(num_threads):
            yield Engine(
                lambda windows: map(translator.translate_window, windows), chosen, num_threads
            )
        return
    threads = threads or 1
    if not processes.on_gpus:  # measured before they start, for they would count as others
        warn_if_busy(LoadMeter(), threads, processes.number, option="--workers")
    options = {**options, "device": device}
    starter = Starter(
        WorkerModel(model, options, threads, processes.on_gpus, quiet=logs.are_quiet())
    )
    pool = WorkerPool(starter, processes.number)
    try:
        pool.open()
        yield Engine(pool.translate_windows, pool.chosen, threads)
    finally:
        pool.close()
