"""Operations between matrix products, compiled for this CPU by a C compiler (``--compile``).

torch computes each of them in several passes over memory. The library is kept in the cache folder.
There is one for each source, command of the compiler, and set of features of a CPU.
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

from nmt_cli.files.atomic_files import publish_file
from nmt_cli.files.file_names import CACHE_VARIABLE, cache_folder
from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.messages.errors import UserError

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")  # unless CC names another
LIMITS = {"MOST_HEAD_WIDTH": 1024, "MOST_CANDIDATES": 256}
MOST_LANES, QUERIES_AT_ONCE = 16, 4  # as in the source
FLAGS = (
    "-O3",
    "-march=native",  # the library is for this CPU only
    "-ffp-contract=fast",  # multiplications and additions in one instruction, also by clang
    "-fno-math-errno",  # square roots in one instruction
    "-fopenmp-simd",  # the pragmas of the source; no threads
    # Not -ffast-math: it would drop NaN and the additions that round.
    *("-shared", "-fPIC"),
    *(f"-D{name}={value}" for name, value in LIMITS.items()),
)
REMEDY = "Name another compiler in CC, or leave --compile out."


class _Pointer:
    """How ctypes passes a tensor: as its address."""

    @staticmethod
    def from_param(tensor: Tensor) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensor.data_ptr())


# The parameters of each function in the source: p is a pointer, l a long, f a float.
PARAMETERS = {
    "sum_exponentials": "pllp",
    "round_rows": "pllfpp",
    "add_norm": "ppllppfp",
    "attend": "plppplllllplp",
    "append": "pplppplllll",
    "best_continuations": "pppllllppp",
}
C_TYPES = {"p": _Pointer, "l": ctypes.c_long, "f": ctypes.c_float}

# Not an attribute of the model: translators with and without --compile may share one.
_in_use: ContextVar["Kernels | None"] = ContextVar("kernels", default=None)


class Kernels:
    """The compiled functions, for fp32 tensors on the CPU. Each computes in one thread.

    Those that do not know how to compute everything have a method that says whether they do.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, parameters in PARAMETERS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = None, [C_TYPES[each] for each in parameters]
        self._library = library

    def sums_of_exponentials(self, logits: Tensor) -> Tensor:
        """Return the sum [R] of the exponentials of each row [R, V]; infinite if too large."""
        logits = logits.contiguous()
        sums = logits.new_empty(len(logits))
        self._library.sum_exponentials(logits, *logits.shape, sums)
        return sums

    def rounded_rows(self, rows: Tensor, least: float) -> tuple[Tensor, Tensor]:
        """Return the scale [R, 1], at least ``least`` / 127, of each row, and the rows as int8."""
        rows = rows.contiguous()
        scales, integers = rows.new_empty(len(rows), 1), torch.empty_like(rows, dtype=torch.int8)
        self._library.round_rows(rows, *rows.shape, least, scales, integers)
        return scales, integers

    def can_add_norm(self, rows: Tensor, branch: Tensor, norm: nn.LayerNorm) -> bool:
        """Return whether ``add_norm`` knows how to normalize these rows [R, I]."""
        tensors = (rows, branch, norm.weight, norm.bias)
        return rows.shape[1] % MOST_LANES == 0 and all(map(_is_plain, tensors))

    def add_norm(self, rows: Tensor, branch: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return ``norm`` of the sum [R, I] of ``rows`` and ``branch``."""
        output = torch.empty_like(rows)
        self._library.add_norm(rows, branch, *rows.shape, norm.weight, norm.bias, norm.eps, output)
        return output

    def can_attend(self, parts: Sequence[tuple[Tensor, Tensor]]) -> bool:
        """Return whether the next two know these keys [S, H, D, E] and values [S, H, E, D]."""
        d_k, d_v = parts[0][0].shape[2], parts[0][1].shape[3]
        return (
            d_k == d_v
            and d_k % (2 * MOST_LANES) == 0
            and d_k <= LIMITS["MOST_HEAD_WIDTH"]
            and all(_is_plain(each) for part in parts for each in part)
        )

    def attend(
        self, queries: Tensor, parts: Sequence[tuple[Tensor, Tensor]], masks: Sequence[Tensor]
    ) -> Tensor:
        """Return what ``attend`` of the attention caches does."""
        _, num_heads, d_k, _ = parts[0][0].shape
        output = queries.new_empty(len(queries), num_heads * d_k)
        sizes = [len(keys) * mask.shape[1] for (keys, _), mask in zip(parts, masks, strict=True)]
        for (keys, values), mask, of_part, out in zip(
            parts, masks, queries.split(sizes), output.split(sizes), strict=True
        ):
            # The mask of a single slot is the same memory for all heads.
            room = keys.shape[3] + MOST_LANES
            self._library.attend(
                *(of_part, of_part.stride(0), keys, values, mask.contiguous()),
                *(len(keys), mask.shape[1], num_heads, d_k, keys.shape[3]),
                *(queries.new_empty(QUERIES_AT_ONCE * room), room, out),
            )
        return output

    def append(
        self, new_keys: Tensor, new_values: Tensor, places: Tensor, part: tuple[Tensor, Tensor]
    ) -> None:
        """Write keys and values [S*K, H*D], of one stride, into ``part`` at ``places`` [S, K]."""
        num_slots, num_heads, d_k, room = part[0].shape
        self._library.append(
            *(new_keys, new_values, new_keys.stride(0), places.contiguous(), *part),
            *(num_slots, places.shape[1], num_heads, d_k, room),
        )

    def can_choose(self, logits: Tensor, number: int) -> bool:
        """Return whether ``best_continuations`` finds so many by such ``logits``."""
        return _is_plain(logits) and number <= LIMITS["MOST_CANDIDATES"]

    def best_continuations(
        self, logits: Tensor, normalizers: Tensor, scores: Tensor, number: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the fields of the ``Candidates`` of ``BestCandidates``: so many of each slot."""
        num_slots, num_hypotheses = scores.shape
        totals = logits.new_empty(num_slots, number)
        parents, tokens = torch.empty(2, num_slots, number, dtype=torch.int64)
        self._library.best_continuations(
            *(logits, normalizers, scores.contiguous()),
            *(num_slots, num_hypotheses, logits.shape[1], number),
            *(totals, parents, tokens),
        )
        return totals, parents, tokens


def _is_plain(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype is torch.float32 and tensor.is_contiguous()


def kernels_in_use() -> Kernels | None:
    """Return the kernels of the block that is being executed; None without one."""
    return _in_use.get()


@contextmanager
def use_kernels(kernels: Kernels | None) -> Iterator[None]:
    """Compute with ``kernels``, if there are any, in this block and this thread."""
    token = _in_use.set(kernels)
    try:
        yield
    finally:
        _in_use.reset(token)


@functools.cache
def load_kernels() -> Kernels:
    """Return the kernels, which are compiled first if this CPU has none.

    Raises UserError if there is no compiler or if it fails.
    """
    compiler = _compiler()
    features, machine = sorted(read_cpu().flags), platform.machine()
    made_from = repr((SOURCE.read_bytes(), compiler, FLAGS, machine, features))
    name = hashlib.sha256(made_from.encode()).hexdigest()[:32]
    library = cache_folder() / "kernels" / f"{name}.so"
    try:
        return _loaded(library)
    except (OSError, AttributeError):  # there is none, or it is damaged
        _compile(compiler, library)
        return _loaded(library)


def _loaded(library: Path) -> Kernels:
    return Kernels(ctypes.CDLL(str(library)))


def _compiler() -> list[str]:
    given = os.environ.get("CC", "").strip()
    try:
        compiler = shlex.split(given) or [*filter(None, map(shutil.which, COMPILERS))][:1]
    except ValueError as error:
        raise UserError(f"CC is {given}, which is no command: {error}. {REMEDY}") from error
    if not compiler:
        raise UserError(
            f"--compile needs a C compiler, and none of {', '.join(COMPILERS)} was found: install "
            "one (Debian: apt install gcc libc6-dev), name it in CC, or leave --compile out."
        )
    return compiler


def _compile(compiler: Sequence[str], library: Path) -> None:
    """Write the library, which appears whole: several processes may do this at the same time."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder, library.name)
            _run([*compiler, *FLAGS, str(SOURCE), "-o", str(made), "-lm"])
            try:
                _loaded(made)
            except (OSError, AttributeError) as error:
                words = shlex.join(compiler)
                raise UserError(
                    f"--compile: what {words} made cannot be loaded: {error}. {REMEDY}"
                ) from error
            # On the disk first: loading a file that lost its end would kill the process.
            with made.open("rb") as stream:
                publish_file(stream, library, replace=True)
    except OSError as error:
        raise UserError(
            f"--compile cannot write {library}: {error.strerror}. Let {CACHE_VARIABLE} name a "
            "folder that you may write, or leave --compile out."
        ) from error


def _run(words: Sequence[str]) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True)
    except OSError as error:
        raise UserError(f"--compile cannot run {words[0]}: {error.strerror}. {REMEDY}") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        first = next((line for line in lines if "error" in line), lines[0])
        raise UserError(f"--compile: {words[0]} failed: {first}. {REMEDY}") from error
