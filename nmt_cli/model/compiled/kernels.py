"""Functions of translating that a C compiler builds for this CPU (``--compile``).

torch takes several passes over memory where one of these takes one, and a call for each operation
where one of these computes a whole stack of layers. The library is kept in the cache folder. There
is one for each source, command of the compiler, and set of features of a CPU.
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
from torch import Tensor

from nmt_cli.files.atomic_files import publish_file
from nmt_cli.files.file_names import CACHE_VARIABLE, cache_folder
from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

SOURCES = tuple(sorted(Path(__file__).parent.glob("*.c")))
HEADERS = tuple(sorted(Path(__file__).parent.glob("*.h")))
COMPILERS = ("cc", "gcc", "clang")  # unless CC names another
MOST_CANDIDATES = 256  # of a sentence
FLAGS = (
    "-O3",
    "-march=native",  # the library is for this CPU only
    "-ffp-contract=fast",  # multiplications and additions in one instruction, also by clang
    "-fno-math-errno",  # square roots in one instruction
    # Not -ffast-math: it would drop NaN and the additions that round.
    *("-shared", "-fPIC"),
    f"-DMOST_CANDIDATES={MOST_CANDIDATES}",
)
# GCC's OpenMP is the library that torch has loaded, so both use one pool of threads; that of Clang
# is another one. Without either, only pragmas of vectors count.
OPENMP, ONE_THREAD = "-fopenmp", "-fopenmp-simd"
OTHER_COMPILER = "Name another compiler in CC"


class NoKernelsError(UserError):
    """There is no library; ``reason`` and ``remedy`` do not name options."""

    def __init__(self, reason: str, remedy: str = OTHER_COMPILER) -> None:
        super().__init__(f"--compile is not possible: {reason}. {remedy}, or leave --compile out.")
        self.reason, self.remedy = reason, remedy


class _Pointer:
    """How ctypes passes a tensor: as its address."""

    @staticmethod
    def from_param(tensor: Tensor) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensor.data_ptr())


# The parameters of each function in the sources: p is a tensor, s the address of a structure or of
# an array of numpy, l a long.
PARAMETERS = {
    "log_sum_exponentials": "pllp",
    "best_continuations": "pppllllppp",
    "find_candidates": "slllpsss",
    "find_ends": "sss",
    "advance_beams": "sss",
    "find_places": "spp",
    "inherit": "sppls",
    "has_threads": "",
    "has_type": "l",
    "workspace_size": "sll",
    "rounded_size": "ll",
    "size_of_blocks": "lll",
    "pack": "plllpp",
    "multiply": "splppl",
    "write_entries": "spppllpp",
    "encode": "sspplllpp",
    "make_step": "sssslppp",
}
# They keep Python's lock: to get it back takes longer than they do if another thread computes.
SHORT = {"find_ends", "advance_beams", "find_places", "inherit"}
RETURN_LONG = {
    "find_candidates",
    "find_ends",
    "advance_beams",
    "find_places",
    "has_threads",
    "has_type",
    "workspace_size",
    "rounded_size",
    "size_of_blocks",
}
C_TYPES = {"p": _Pointer, "s": ctypes.c_void_p, "l": ctypes.c_long}

# Of a context: what uses them for logits is called deep in a search, which knows no options.
_in_use: ContextVar["Kernels | None"] = ContextVar("kernels", default=None)


class Kernels:
    """The compiled functions for tensors on the CPU.

    Those for layers, beams and caches are called by the classes that prepare their structures.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, parameters in PARAMETERS.items():
            function = getattr(library, name)
            function.restype = ctypes.c_long if name in RETURN_LONG else None
            function.argtypes = [C_TYPES[each] for each in parameters]
        self.functions = library

    def log_normalizers(self, logits: Tensor) -> Tensor:
        """Return the logarithm [R] of the sum of the exponentials of each row [R, V] in fp32."""
        logits = logits.contiguous()
        sums = logits.new_empty(len(logits))
        self.functions.log_sum_exponentials(logits, *logits.shape, sums)
        return sums

    def can_choose(self, logits: Tensor, number: int) -> bool:
        """Return whether ``best_continuations`` finds so many by such ``logits``."""
        is_plain = logits.dtype is torch.float32 and logits.is_contiguous()
        return is_plain and number <= MOST_CANDIDATES

    def best_continuations(
        self, logits: Tensor, normalizers: Tensor, scores: Tensor, number: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the fields of the ``Candidates`` of ``BestCandidates``: so many of each slot."""
        num_slots, num_hypotheses = scores.shape
        totals = logits.new_empty(num_slots, number)
        parents, tokens = torch.empty(2, num_slots, number, dtype=torch.int64)
        self.functions.best_continuations(
            *(logits, normalizers, scores.contiguous()),
            *(num_slots, num_hypotheses, logits.shape[1], number),
            *(totals, parents, tokens),
        )
        return totals, parents, tokens


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

    Raises NoKernelsError if there is no compiler or if it fails.
    """
    compiler = _compiler()
    features, machine = sorted(read_cpu().flags), platform.machine()
    sources = [each.read_bytes() for each in (*SOURCES, *HEADERS)]
    made_from = repr((sources, compiler, FLAGS, machine, features))
    name = hashlib.sha256(made_from.encode()).hexdigest()[:32]
    try:
        library = cache_folder() / "kernels" / f"{name}.so"
    except UserError as error:
        raise NoKernelsError(
            "this user has no home folder", f"Let {CACHE_VARIABLE} name a folder"
        ) from error
    try:
        kernels = _loaded(library)
    except (OSError, AttributeError):  # there is none, or it is damaged
        _compile(compiler, library)
        kernels = _loaded(library)
    if not kernels.functions.has_threads():
        logs.warning(
            f"Compiled layers use one thread, because {shlex.join(compiler)} had no OpenMP when "
            f"it made {library}. Once it has (Debian: libgomp1, libomp-dev for Clang), delete that."
        )
    return kernels


def _loaded(library: Path) -> Kernels:
    functions, short = ctypes.CDLL(str(library)), ctypes.PyDLL(str(library))
    for name in SHORT:
        setattr(functions, name, getattr(short, name))
    return Kernels(functions)


def _compiler() -> list[str]:
    given = os.environ.get("CC", "").strip()
    try:
        compiler = shlex.split(given) or [*filter(None, map(shutil.which, COMPILERS))][:1]
    except ValueError as error:
        raise NoKernelsError(f"CC is {given}, which is no command: {error}") from error
    if not compiler:
        raise NoKernelsError(
            f"no C compiler was found ({', '.join(COMPILERS)})",
            "Install one (Debian: apt install gcc libc6-dev), name it in CC",
        )
    return compiler


def _compile(compiler: Sequence[str], library: Path) -> None:
    """Write the library, which appears whole: several processes may do this at the same time."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder, library.name)
            try:
                _make(compiler, OPENMP, made)
            except NoKernelsError:
                _make(compiler, ONE_THREAD, made)
            # On the disk first: loading a file that lost its end would kill the process.
            with made.open("rb") as stream:
                publish_file(stream, library, replace=True)
    except OSError as error:
        raise NoKernelsError(
            f"cannot write {library}: {error.strerror}",
            f"Let {CACHE_VARIABLE} name a folder that you may write",
        ) from error


def _make(compiler: Sequence[str], openmp_flag: str, library: Path) -> None:
    """Write a library and load it; raises NoKernelsError if either fails."""
    words = shlex.join(compiler)
    _run([*compiler, *FLAGS, openmp_flag, *map(str, SOURCES), "-o", str(library), "-lm"])
    try:
        _loaded(library)
    except (OSError, AttributeError) as error:
        raise NoKernelsError(
            f"what {words} made cannot be loaded: {error}",
            f"{OTHER_COMPILER}, or let {CACHE_VARIABLE} name a folder to load libraries from",
        ) from error


def _run(words: Sequence[str]) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True)
    except OSError as error:
        raise NoKernelsError(f"cannot run {words[0]}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        first = next((line for line in lines if "error" in line), lines[0])
        raise NoKernelsError(f"{words[0]} failed: {first}") from error
