"""How many processes translate, and the interface of the command to one or to many of them.

A command whose workers translate imports no torch: the process that starts them does, meanwhile.
"""

import fcntl
import os
import select
import stat
import struct
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmt_cli.corpus.text.shard_text import ShardText
from nmt_cli.files.text_files import SUFFIXES
from nmt_cli.hardware import cpu
from nmt_cli.hardware.machine_options import AUTO, device_name, visible_gpus
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.hardware.system_facts import free_memory
from nmt_cli.launch.python_process import without_collections, without_threads_of_numpy
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation

# Two threads of a process wait for each other at each step, which takes a quarter more CPU time
# than one thread does for the same lines. A process that gets 16 KiB, some 250 captions, saves more
# than its start takes.
BYTES_FOR_A_PROCESS = 1 << 14
PACKED_TEXT = 4  # bytes of text in a byte of a compressed file, about
# Bytes beside the weights, which processes share. With base a worker took 0.4 GB; larger models,
# ensembles and long lines take more.
MEMORY_OF_A_PROCESS = 1 << 30


class Processes(NamedTuple):
    """The processes that share the text."""

    number: int  # several are beside that of the command
    on_gpus: bool = False  # a GPU for each
    is_automatic: bool = False  # no option says how many


class TextTranslator(NamedTuple):
    """What translates, and what its options became."""

    translate: Callable[[Iterator[Sequence[Request]]], Iterator[list[Translation]]]
    chosen: Mapping[str, str]  # of its translators
    on_gpu: bool


def choose_processes(device: str, workers: int, devices: int | None) -> Processes:
    """Return the processes that the options ask for. Raises UserError if they do not fit."""
    if devices is None:
        if workers > 1 and num_gpus(device):
            raise UserError(
                f"--workers {workers} are processes on the CPU; add --device cpu, or share the "
                "text over GPUs with --devices."
            )
        return Processes(workers)
    if workers > 1:
        raise WrongUsageError(
            "--workers are processes on the CPU, --devices GPUs; give one of them."
        )
    if device not in {AUTO, "cuda"}:
        raise WrongUsageError(f"--devices counts GPUs; leave --device {device} out.")
    if devices > (visible := num_gpus(device)):
        raise UserError(
            f"--devices {devices} asked for, {visible} GPUs are visible. --workers shares "
            "the text over processes on the CPU."
        )
    return Processes(devices, on_gpus=True)


def processes_that_pay(device: str, num_bytes: int | None) -> Processes:
    """Return the processes that share a text of so many bytes if no option gives their number."""
    number = min(cpu.usable_cores(), free_memory() // MEMORY_OF_A_PROCESS)
    if num_bytes is not None:
        number = min(number, num_bytes // BYTES_FOR_A_PROCESS)
    if number < 2 or num_gpus(device):
        return Processes(1)
    return Processes(number, is_automatic=True)


def num_gpus(device: str) -> int:
    """Return how many GPUs are visible if ``device`` means one, else 0.

    Raises UserError if there is no such device. Imports torch only if there may be a GPU.
    """
    return 0 if device_name(device) == "cpu" else visible_gpus()


def bytes_of(source: BinaryIO | ShardText) -> int | None:
    """Return the bytes of a text that is not read yet, about; None if more may follow."""
    if hasattr(source, "expected"):  # a part of a file, or a document
        expected: int = source.expected()
        return expected
    name = getattr(source, "name", None)  # the number of a descriptor if it is stdin
    if name is None or source.isatty():
        return 0  # one who types, or a test
    status = os.stat(name)  # noqa: PTH116 - or a descriptor
    if stat.S_ISREG(status.st_mode):
        is_compressed = Path(str(name)).suffix in SUFFIXES
        return status.st_size * (PACKED_TEXT if is_compressed else 1)
    if stat.S_ISCHR(status.st_mode):
        return 0  # /dev/null
    pipe = select.poll()
    if isinstance(name, int):
        pipe.register(name, 0)
    if not any(event & select.POLLHUP for _, event in pipe.poll(0)):
        return None
    waiting: int = struct.unpack("i", fcntl.ioctl(name, termios.FIONREAD, bytes(4)))[0]
    return waiting


def opened_engine(
    model: Path, processes: Processes, device: str, threads: int | None, options: Mapping[str, Any]
) -> AbstractContextManager[TextTranslator]:
    """Return what translates with ``model`` in this process, or in workers that end with the block.

    Entering the block raises UserError if the model, the device or an option is wrong.
    """
    if processes.number > 1:
        return _opened_workers(model, processes, device, threads or 1, options)
    return _opened_translator(model, device, threads, options)


@contextmanager
def _opened_translator(
    model: Path, device: str, threads: int | None, options: Mapping[str, Any]
) -> Iterator[TextTranslator]:
    if (chosen_device := device_name(device)) != "cpu":
        keep_freed_memory()
    cpu.set_num_threads(threads)
    with without_collections(), without_threads_of_numpy():  # of all that it imports
        # Before what imports it: deeper in the stack, Python 3.11 maps and unmaps a block of frames
        # a thousand times while numpy is imported, which takes 4 % of the CPU time of one line.
        import numpy  # noqa: F401

        from nmt_cli.translating.translator import Translator

        translator = Translator.load(model, device=chosen_device, **options)
    yield TextTranslator(
        lambda windows: map(translator.translate_window, windows),
        translator.chosen,
        chosen_device != "cpu",
    )


@contextmanager
def _opened_workers(
    model: Path, processes: Processes, device: str, threads: int, options: Mapping[str, Any]
) -> Iterator[TextTranslator]:
    # One process needs none of it.
    from nmt_cli.translating.workers.messages import WorkerModel
    from nmt_cli.translating.workers.starter import Starter
    from nmt_cli.translating.workers.text_workers import TextWorkers

    number, on_gpus, is_automatic = processes
    with closing(Starter()) as starter:
        options = {**options, "device": device if on_gpus else "cpu"}
        starter.load(WorkerModel(model, options, threads, on_gpus, quiet=logs.are_quiet()))
        starter.wait_until_loaded()
        if is_automatic:
            logs.info(f"{number} processes of one thread each share the text (see --workers).")
        with closing(TextWorkers(starter, number)) as workers:
            workers.open()
            yield TextTranslator(workers.translate_windows, workers.chosen, on_gpus)
