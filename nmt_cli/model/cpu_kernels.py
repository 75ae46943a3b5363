"""Steps of the search between the products, compiled for this CPU by a C compiler: ``--compile``.

torch computes each of them in several passes over memory. The library is kept in the cache folder
and compiled again if its source, the compiler or the CPU change.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt_cli.files.folders import cache_folder
from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.messages.errors import UserError

Array = NDArray[Any]
SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")  # unless CC names another
FLAGS = (
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fopenmp-simd",
    "-shared",
    "-fPIC",
)
LANES, MOST_ENTRIES, MOST_WIDTH, MOST_CANDIDATES = 16, 4096, 1024, 256  # as in the source

# Of the functions in the source: p is a pointer, l a long, f a float.
PARAMETERS = {
    "sum_exponentials": "pllp",
    "round_rows": "pllfpp",
    "add_norm": "ppllppfp",
    "attend": "ppplpppplllllp",
    "best_continuations": "pppllllppp",
}
C_TYPES = {"p": ctypes.c_void_p, "l": ctypes.c_long, "f": ctypes.c_float}

_in_use: ContextVar["Kernels | None"] = ContextVar("kernels", default=None)


class Kernels:
    """The compiled functions, for fp32 tensors on the CPU. Each computes in one thread."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, parameters in PARAMETERS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = None, [C_TYPES[each] for each in parameters]
        self._library = library

    def sums_of_exponentials(self, logits: Tensor) -> Tensor:
        """Return the sum [R] of the exponentials of each row [R, V]; infinite if too large."""
        logits = logits.contiguous()
        sums = logits.new_empty(len(logits))
        self._library.sum_exponentials(logits.data_ptr(), *logits.shape, sums.data_ptr())
        return sums

    def rounded_rows(self, rows: Tensor, least: float) -> tuple[Tensor, Tensor]:
        """Return the scale [R, 1], at least ``least`` / 127, of each row, and the rows as int8."""
        rows = rows.contiguous()
        scales, whole = rows.new_empty(len(rows), 1), torch.empty_like(rows, dtype=torch.int8)
        self._library.round_rows(
            rows.data_ptr(), *rows.shape, least, scales.data_ptr(), whole.data_ptr()
        )
        return scales, whole

    def add_norm(self, rows: Tensor, branch: Tensor, norm: nn.LayerNorm) -> Tensor | None:
        """Return ``norm`` of a sum [R, I]; None if the kernel does not know how."""
        tensors = (rows, branch, norm.weight, norm.bias)
        is_known = rows.shape[1] % LANES == 0 and all(
            each.dtype is torch.float32 and each.is_contiguous() for each in tensors
        )
        if not is_known:
            return None
        output = torch.empty_like(rows)
        weights = norm.weight.data_ptr(), norm.bias.data_ptr()
        self._library.add_norm(
            *(rows.data_ptr(), branch.data_ptr(), *rows.shape),
            *(*weights, norm.eps, output.data_ptr()),
        )
        return output

    def attend(
        self,
        queries: Tensor,
        parts: Sequence[tuple[Tensor, Tensor]],
        masks: Sequence[Tensor],
        new: tuple[Tensor, Tensor] | None = None,
        places: Sequence[Tensor] = (),
    ) -> Tensor:
        """Return what ``attend`` of the attention caches does, if it ``can_attend``.

        ``new`` keys and values [S*K, H*D], which lie in memory like the queries, are written at
        ``places`` [S, K] of each part first.
        """
        _, num_heads, d_k, _ = parts[0][0].shape
        output = queries.new_empty(len(queries), num_heads * d_k)
        rows = [each.data_ptr() for each in (queries, *(new or (queries, queries)))]
        written, stride, size = output.data_ptr(), queries.stride(0), queries.element_size()
        for number, ((keys, values), mask) in enumerate(zip(parts, masks, strict=True)):
            num_slots, beam_size = len(keys), mask.shape[1]
            # Copies, if any, live until the call has ended.
            where = places[number].contiguous() if new else None
            mask = mask.contiguous()
            self._library.attend(
                *(*rows, stride, where.data_ptr() if where is not None else None),
                *(keys.data_ptr(), values.data_ptr(), mask.data_ptr()),
                *(num_slots, beam_size, num_heads, d_k, keys.shape[3], written),
            )
            num_rows = num_slots * beam_size
            rows = [each + num_rows * stride * size for each in rows]
            written += num_rows * num_heads * d_k * size
        return output

    def best_continuations(
        self, logits: Tensor, normalizers: Tensor, scores: Array, number: int
    ) -> tuple[Array, Array, Array]:
        """Return what ``BestCandidates`` returns for fp32 ``logits`` [R, V], C = ``number``."""
        num_slots, num_hypotheses = scores.shape
        found = (
            np.empty((num_slots, number), np.float32),
            np.empty((num_slots, number), np.int64),
            np.empty((num_slots, number), np.int64),
        )
        self._library.best_continuations(
            *(logits.data_ptr(), normalizers.data_ptr(), np.ascontiguousarray(scores).ctypes.data),
            *(num_slots, num_hypotheses, logits.shape[1], number),
            *(each.ctypes.data for each in found),
        )
        return found


def can_attend(parts: Sequence[tuple[Tensor, Tensor]]) -> bool:
    """Return whether kernels know how to attend to these keys [S, H, D, E] and values."""
    keys, values = parts[0]
    d_k = keys.shape[2]
    is_known = d_k % (2 * LANES) == 0 and d_k <= MOST_WIDTH and d_k == values.shape[3]
    return (
        is_known
        and keys.dtype is torch.float32
        and all(
            keys.shape[3] <= MOST_ENTRIES and keys.is_contiguous() and values.is_contiguous()
            for keys, values in parts
        )
    )


def can_choose(logits: Tensor, number: int) -> bool:
    """Return whether kernels know how to choose so many continuations by ``logits``."""
    is_known = logits.dtype is torch.float32 and logits.is_contiguous()
    return is_known and number <= MOST_CANDIDATES


def kernels_in_use() -> Kernels | None:
    """Return the kernels of the block that is being executed; None without one."""
    return _in_use.get()


@contextmanager
def use_kernels(kernels: Kernels | None) -> Iterator[None]:
    """Compute with ``kernels``, if there are any, in this block and this thread."""
    before = _in_use.get()
    _in_use.set(kernels)
    try:
        yield
    finally:
        _in_use.set(before)  # ``reset`` would fail in another thread, where a generator may end


@functools.cache
def load_kernels() -> Kernels:
    """Return the kernels, which are compiled first if this CPU has none.

    Raises UserError if there is no compiler or if it fails.
    """
    given = os.environ.get("CC")
    compiler = shlex.split(given) if given else [*filter(None, map(shutil.which, COMPILERS))][:1]
    if not compiler:
        raise UserError(
            f"--compile needs a C compiler, and none of {', '.join(COMPILERS)} was found: install "
            "one (Debian: apt install gcc), name it in CC, or leave --compile out."
        )
    source, cpu = SOURCE.read_bytes(), sorted(read_cpu().flags)
    made_from = repr((source, compiler, FLAGS, cpu, platform.machine()))
    name = hashlib.sha256(made_from.encode()).hexdigest()[:32]
    library = cache_folder() / "kernels" / f"{name}.so"
    if not library.exists():
        _compile(compiler, library)
    return Kernels(ctypes.CDLL(str(library)))


def _compile(compiler: Sequence[str], library: Path) -> None:
    """Compile the library, which appears whole; several processes may do that at a time."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=library.parent), library.name)
    except OSError as error:
        raise UserError(f"--compile cannot write {library}: {error.strerror}.") from error
    try:
        words = [*compiler, *FLAGS, str(SOURCE), "-o", str(made), "-lm"]
        subprocess.run(words, check=True, capture_output=True, text=True)
        made.replace(library)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        raise UserError(f"--compile: {shlex.join(compiler)} failed: {lines[0]}") from error
    except OSError as error:
        raise UserError(f"{shlex.join(compiler)} cannot be run: {error.strerror}.") from error
    finally:
        shutil.rmtree(made.parent, ignore_errors=True)
