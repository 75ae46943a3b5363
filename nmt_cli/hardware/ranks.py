"""The processes that train one model together, and what they exchange.

All ranks take the same decisions, because they exchange the numbers that they decide by. A single
process is a group of one, whose exchanges change nothing.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from nmt_cli.launch.worker import Worker
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.messages.proposals import any_of

TIMEOUT_SECONDS = 600.0  # how long a rank waits for another, which may still save or validate
POLL_SECONDS = 0.0001
# Of the differences of two ranks, and of the characters of a value: hashes have 64.
MOST_NAMED, LONGEST_SHOWN = 3, 60

Item = TypeVar("Item")


class PeerLostError(UserError):
    """Another rank has ended or does not answer; the log of that rank has the reason."""


class RanksDifferError(UserError):
    """The ranks differ in what must be the same; all of them raise this, with the same text."""


class Ranks:
    """This process's place among those that train together.

    Several ranks exchange values only once ``connected_ranks`` has connected them.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_main(self) -> bool:
        """Whether this rank writes files and logs for all."""
        return self.rank == 0

    def own(self, items: Sequence[Item]) -> Iterator[tuple[int, Item]]:
        """Yield this rank's items, each with its number among all: rank, rank + size, ..."""
        for number in range(self.rank, len(items), self.size):
            yield number, items[number]

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums of all ranks' values, the same bits on every rank."""
        if self.size == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        self._exchange(lambda: dist.all_reduce(sums))
        return sums.tolist()

    def add_up(self, tensor: Tensor) -> None:
        """Add up ``tensor`` over all ranks, in place; where a GPU adds it up, the CPU goes on."""
        self._exchange(lambda: dist.all_reduce(tensor, async_op=True).wait())

    def wait_for(self, has_come: Callable[[], bool], timeout: Callable[[], float]) -> None:
        """Return once ``has_come``; several ranks raise PeerLostError after ``timeout()`` seconds.

        NCCL waits forever when another rank has died, so the CPU must not wait for the result of an
        exchange on GPUs in any other way. ``timeout`` may change meanwhile.
        """
        if self.size == 1:
            return
        started = time.monotonic()
        while not has_come():
            if time.monotonic() - started > timeout():
                raise PeerLostError(
                    f"rank {self.rank} lost another rank and ends: gradients were not exchanged "
                    f"within {timeout():g} seconds"
                )
            time.sleep(POLL_SECONDS)

    def from_main(self, value: Item) -> Item:
        """Return the main rank's ``value``."""
        if self.size == 1:
            return value
        values = [value]
        self._exchange(lambda: dist.broadcast_object_list(values, src=0, device=_CPU))
        return values[0]

    def wait_for_main(self) -> None:
        """Return once the main rank has made this call too."""
        self.from_main(None)

    def copy_from_main(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite ``tensors``, which have the same shapes on all ranks, by the main rank's."""
        if self.size == 1:
            return
        for tensor in tensors:
            self._exchange(partial(dist.broadcast, tensor.detach(), src=0))

    def gather(self, value: Item) -> list[Item]:
        """Return every rank's ``value``, in the order of ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self._exchange(lambda: dist.all_gather_object(values, value))
        return values

    def require_same(self, values: Mapping[str, str]) -> None:
        """Raise RanksDifferError if one of the named ``values`` is not the same on all ranks."""
        _refuse_differences(self.gather(values))

    def _exchange(self, collective: Callable[[], Any]) -> Any:
        try:
            return collective()
        except RuntimeError as error:  # gloo and NCCL name no narrower one
            reason = str(error).partition("\n")[0]
            raise PeerLostError(f"rank {self.rank} lost another rank and ends: {reason}") from error


def _refuse_differences(of_ranks: Sequence[Mapping[str, str]]) -> None:
    """Raise RanksDifferError, which names what differs, if a rank has other values than rank 0."""
    main = of_ranks[0]
    for rank, other in enumerate(of_ranks):
        names = [name for name in {**main, **other} if main.get(name) != other.get(name)]
        if names:
            named = [f"{name}{_shown(main, other, name)}" for name in names[:MOST_NAMED]]
            if len(names) > MOST_NAMED:
                named.append(f"{len(names) - MOST_NAMED} more")
            raise RanksDifferError(
                f"rank 0 and rank {rank} differ in {any_of(named, 'and')}; make them the same on "
                "all nodes, and start again."
            )


def _shown(main: Mapping[str, str], other: Mapping[str, str], name: str) -> str:
    shown = [values.get(name, "not given") for values in (main, other)]
    is_short = max(map(len, shown)) <= LONGEST_SHOWN
    return f" ({shown[0]} and {shown[1]})" if is_short else ""


ALONE = Ranks()
_CPU = torch.device("cpu")


@contextmanager
def connected_ranks(
    worker: Worker | None, device: torch.device, timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[None]:
    """Connect this process with the other ranks while the block runs.

    A process that torchrun did not start trains alone. Tensors on a GPU are exchanged by NCCL,
    everything else by gloo, which waits at most ``timeout_seconds`` for another rank. Raises
    RanksDifferError if some are on GPUs and others are not, and PeerLostError if the ranks cannot
    connect.
    """
    if worker is None:
        yield
        return
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    # torch would end the process, unsaved, when an exchange has failed: ``wait_for`` notices that.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    timeout = timedelta(seconds=timeout_seconds)
    try:
        store, *_ = next(rendezvous("env://", worker.rank, worker.size, timeout=timeout))
        store.set_timeout(timeout)
        # NCCL would wait for a rank without it.
        store.set(f"device/{worker.rank}", device.type)
        of_ranks = [store.get(f"device/{rank}").decode() for rank in range(worker.size)]
        _refuse_differences([{"--device": each} for each in of_ranks])
        dist.init_process_group(
            backend,
            store=store,
            rank=worker.rank,
            world_size=worker.size,
            timeout=timeout,
            device_id=device if device.type == "cuda" else None,
        )
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise PeerLostError(f"rank {worker.rank} did not find the others: {reason}") from error
    try:
        yield
    except InterruptedTrainingError:
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()  # after another error it would wait for ranks that have ended
