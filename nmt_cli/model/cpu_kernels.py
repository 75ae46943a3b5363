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

import torch
from torch import Tensor, nn

from nmt_cli.files.folders import cache_folder
from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.messages.errors import UserError

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")  # unless CC names another
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC")
LANES, MOST_ENTRIES = 16, 4096  # as in the source

# Of the functions in the source: p is a pointer, l a long, f a float.
PARAMETERS = {
    "sum_exponentials": "pllp",
    "round_rows": "pllfpp",
    "add_norm": "ppllppfp",
    "attend": "plppplllllp",
    "append": "pplplllllpp",
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
        self, queries: Tensor, parts: Sequence[tuple[Tensor, Tensor]], masks: Sequence[Tensor]
    ) -> Tensor:
        """Return what ``attend`` of the attention caches does, if it ``can_attend``."""
        _, num_heads, d_k, _ = parts[0][0].shape
        output = queries.new_empty(len(queries), num_heads * d_k)
        sizes = [len(keys) * mask.shape[1] for (keys, _), mask in zip(parts, masks, strict=True)]
        for of_part, (keys, values), mask, out in zip(
            queries.split(sizes), parts, masks, output.split(sizes), strict=True
        ):
            # Of one slot, it is the same memory for all heads.
            mask = mask.contiguous()
            self._library.attend(
                *(of_part.data_ptr(), of_part.stride(0), keys.data_ptr(), values.data_ptr()),
                *(mask.data_ptr(), len(keys), mask.shape[1], num_heads, d_k, keys.shape[3]),
                out.data_ptr(),
            )
        return output

    def append(
        self, new: tuple[Tensor, Tensor], places: Tensor, keys: Tensor, values: Tensor
    ) -> None:
        """Write ``new`` keys and values [S*K, H*D] into those of a cache at ``places`` [S, K]."""
        num_slots, num_heads, d_k, room = keys.shape
        places = places.contiguous()
        self._library.append(
            *(new[0].data_ptr(), new[1].data_ptr(), new[0].stride(0), places.data_ptr()),
            *(num_slots, places.shape[1], num_heads, d_k, room),
            *(keys.data_ptr(), values.data_ptr()),
        )


def can_attend(keys: Tensor, values: Tensor) -> bool:
    """Return whether kernels know how to attend to these keys [S, H, D, E] and values."""
    _, _, d_k, room = keys.shape
    is_known = d_k % LANES == 0 and d_k == values.shape[3] and room <= MOST_ENTRIES
    is_stored_in_order = keys.is_contiguous() and values.is_contiguous()
    return is_known and is_stored_in_order and keys.dtype is torch.float32


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
