"""The memory in which one of a machine's ranks plans an epoch for all of them.

It has no name in any folder: the kernel frees it once no process uses it any more, however the
processes have ended.
"""

import errno
import fcntl
import mmap
import os
import struct
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What the board holds: number + 1 of the epoch in the file (0: there is none), process and
# descriptor of the file, its inode, the pairs and the batches of the epoch.
BOARD = struct.Struct("<6q")
NO_EPOCH = BOARD.pack(0, 0, 0, 0, 0, 0)
NAME = "nmt-cli-epoch"  # in /proc/PID/maps

Order = NDArray[np.uint32]
Numbers = NDArray[np.int64]
Arrays = tuple[Order, Numbers, Numbers]  # order, bounds and shuffled of an epoch
Plan = Callable[[Callable[[int], Order]], Arrays]  # from a function that makes an empty order


class BoardAddress(NamedTuple):
    """Where other processes find the board of one process."""

    machine: tuple[str, int, int]  # the same for processes that can open each other's files
    path: str


class NodeMemory:
    """Epochs that processes of one machine share; the first that needs an epoch plans it.

    A process first has a board of its own. Those that ``join`` the board of one of them share
    epochs from then on. A lock on the board, which the kernel drops when its holder ends, lets one
    process plan while the others wait. If the process whose file the board names has ended, the
    next one plans again. Only one thread of each process may use it at a time.
    """

    def __init__(self) -> None:
        """Make a board. Raises OSError if Python or the kernel lacks what that needs."""
        if not hasattr(os, "memfd_create"):  # Python was built with an old C library
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "memfd_create")
        self._board = _Descriptor(os.memfd_create(f"{NAME}-board"))
        with self._locked():
            os.pwrite(self._board.number, NO_EPOCH, 0)
        self._file: _Descriptor | None = None  # the epoch that this process has planned for all

    def offer(self) -> BoardAddress:
        """Return where other processes find the board of this one. Raises OSError without /proc."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        return BoardAddress(
            (boot, namespace, os.getuid()), f"/proc/{os.getpid()}/fd/{self._board.number}"
        )

    def join(self, offer: BoardAddress) -> None:
        """Share epochs with the process that made ``offer``. Raises OSError if it cannot."""
        if offer != self.offer():  # the others need the own board, which stays open
            self._board = _Descriptor(os.open(offer.path, os.O_RDWR))

    def epoch(self, number: int, plan: Plan) -> Arrays:
        """Return the arrays of an epoch, by ``plan`` if no other process offers them.

        ``plan`` gets a function that makes the order, empty and of the number of pairs that it is
        given; the order which that returns lies in the shared memory.
        """
        with self._locked():
            found = self._found(number)
            self._give_up()
            return found if found is not None else self._planned(number, plan)

    def give_up(self) -> None:
        """Stop offering the epoch that this process has planned; arrays in use stay as they are."""
        if self._file is not None:
            with self._locked():
                self._give_up()

    def _found(self, number: int) -> Arrays | None:
        stored, process, descriptor, inode, *sizes = BOARD.unpack(
            os.pread(self._board.number, BOARD.size, 0)
        )
        if stored != number + 1:
            return None
        try:
            path = f"/proc/{process}/fd/{descriptor}"
            file = _Descriptor(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            return None  # the process has ended
        return _mapped(file, *sizes) if os.fstat(file.number).st_ino == inode else None

    def _planned(self, number: int, plan: Plan) -> Arrays:
        file = _Descriptor(os.memfd_create(NAME))
        order, bounds, shuffled = plan(lambda size: _empty_order(file, size))
        os.pwrite(file.number, bounds.tobytes() + shuffled.tobytes(), _bytes_of_order(len(order)))
        sizes, inode = (len(order), len(shuffled)), os.fstat(file.number).st_ino
        board = BOARD.pack(number + 1, os.getpid(), file.number, inode, *sizes)
        os.pwrite(self._board.number, board, 0)
        self._file = file
        return _mapped(file, *sizes)

    def _give_up(self) -> None:
        if self._file is not None:
            process, descriptor = BOARD.unpack(os.pread(self._board.number, BOARD.size, 0))[1:3]
            if (process, descriptor) == (os.getpid(), self._file.number):
                os.pwrite(self._board.number, NO_EPOCH, 0)
            self._file = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._board.number, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._board.number, fcntl.LOCK_UN)


class _Descriptor:
    """An open file, which is closed when this object is given up."""

    def __init__(self, number: int) -> None:
        self.number = number
        weakref.finalize(self, os.close, number)


def _bytes_of_order(num_pairs: int) -> int:
    return -(-4 * num_pairs // 8) * 8  # 8-byte numbers follow


def _empty_order(file: _Descriptor, num_pairs: int) -> Order:
    os.ftruncate(file.number, _bytes_of_order(num_pairs))
    return np.frombuffer(mmap.mmap(file.number, 0), np.uint32, num_pairs)


def _mapped(file: _Descriptor, num_pairs: int, num_batches: int) -> Arrays:
    memory = mmap.mmap(file.number, 0, prot=mmap.PROT_READ)
    bounds = _bytes_of_order(num_pairs)
    return (
        np.frombuffer(memory, np.uint32, num_pairs),
        np.frombuffer(memory, np.int64, num_batches + 1, bounds),
        np.frombuffer(memory, np.int64, num_batches, bounds + 8 * (num_batches + 1)),
    )
