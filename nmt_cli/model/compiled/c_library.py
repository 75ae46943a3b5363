"""The library in C that translates on a CPU, which is compiled when nmt-cli is installed.

torch takes several passes over memory where one of its functions takes one, and a call for each
operation where one of these computes a whole stack of layers. ``setup.py`` compiles it once for
each level of CPU in ``LEVELS``.
"""

import ctypes
import functools
import hashlib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "library.so"
INSTALL_AGAIN = (
    "Install a C compiler (Debian: apt install gcc libc6-dev), then nmt-cli again, with pip's "
    "options --force-reinstall --no-deps"
)
V3 = frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# The levels of CPU, the fastest first, and the features of each, by Linux's names. cpu.c asks the
# CPU for them; setup.py has the flags of the compiler.
LEVELS = {
    "v4_amx": V4 | {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"},
    "v4_vnni_bf16": V4 | {"avx512_vnni", "avx512_bf16"},
    "v4_vnni": V4 | {"avx512_vnni"},
    "v4": V4,
    "v3_vnni": V3 | {"avx_vnni"},
    "v3": V3,
    "arm_dot": frozenset({"asimd", "asimddp"}),
}

Array = NDArray[Any]


class NoLibraryError(UserError):
    """There is no library for this CPU."""


class _Pointer:
    """How ctypes passes an array of some type: as its address."""

    def __init__(self, dtype: type) -> None:
        self._dtype = np.dtype(dtype)

    def from_param(self, array: Array) -> ctypes.c_void_p:
        """Return the address. Raises TypeError if C would read other numbers, or past the end."""
        if array.dtype != self._dtype or not array.flags.c_contiguous:
            raise TypeError(f"{array.dtype} {array.strides}, not contiguous {self._dtype}")
        return ctypes.c_void_p(array.ctypes.data)


FLOATS, DOUBLES, INTEGERS = map(_Pointer, (np.float32, np.float64, np.int64))
# The parameters of each function in the sources and, behind >, what it returns: f is an array of
# fp32, d of fp64, i of int64, s the address of a structure or of memory of any type, l a long.
SIGNATURES = {
    "log_sum_exponentials": "fllf",
    "best_continuations": "fffllllfiif",
    "add_probabilities": "ffffll",
    "draw": "fllsdidfi",
    "spread_listed": "sflllff",
    "gather_listed": "sflllf",
    "advance_beams": "sss>l",
    "make_steps": "sll>l",
    "new_past": "ll>s",
    "free_past": "s",
    "start_past": "ssiil>l",
    "advance_past": "ssii>l",
    "keep_past": "ssil>l",
    "has_bf16": ">l",
    "is_usable": ">l",
    "workspace_size": "sll>l",
    "rounded_size": "ll>l",
    "size_of_blocks": "lll>l",
    "pack": "flllsss",
    "size_of_weights": "ll>l",
    "unpack": "ss",
    "multiply": "sflffl",
    "multiply_lists": "sssfllffl",
    "write_entries": "sflil",
    "compute_rows": "sssff",
    "score_tokens": "sfillfflf",
    "make_step": "ssslff",
}
# They keep Python's lock: to get it back takes longer than they do if another thread computes.
SHORT = {"advance_beams", "new_past", "free_past", "start_past", "advance_past"}
C_TYPES: dict[str, Any] = {
    **{"f": FLOATS, "d": DOUBLES, "i": INTEGERS},
    **{"s": ctypes.c_void_p, "l": ctypes.c_long},
}


def fields(addresses: str, numbers: str = "") -> list[tuple[str, Any]]:
    """Return the fields of a structure: ``addresses`` of arrays, then ``numbers`` of type long."""
    pointers = [(name, ctypes.c_void_p) for name in addresses.split()]
    return [*pointers, *((name, ctypes.c_long) for name in numbers.split())]


class Library:
    """The compiled functions.

    Those for layers, beams and caches are called by the classes that prepare their structures.
    """

    def __init__(self, level: str) -> None:
        """Take the functions for a CPU of ``level`` from the library."""
        self.level = level
        self.functions = SimpleNamespace()
        libraries = ctypes.CDLL(str(LIBRARY)), ctypes.PyDLL(str(LIBRARY))
        for name, signature in SIGNATURES.items():
            parameters, _, result = signature.partition(">")
            function = getattr(libraries[name in SHORT], f"{level}_{name}")
            function.argtypes = [C_TYPES[each] for each in parameters]
            function.restype = C_TYPES.get(result)
            setattr(self.functions, name, function)
        self.has_bf16 = bool(self.functions.has_bf16())  # whether the CPU has instructions for it


@functools.cache
def load_library() -> Library:
    """Return the functions for this CPU.

    Raises NoLibraryError if there is no library, or none for this CPU, and UserError if it was
    compiled from other sources than those beside it, as after an update of a checkout.
    """
    if not LIBRARY.exists():
        raise NoLibraryError(f"{LIBRARY} was not built when nmt-cli was installed. {INSTALL_AGAIN}")
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        compiled_from = loaded.sources_of_library
    except (OSError, AttributeError) as error:
        raise NoLibraryError(f"{LIBRARY} cannot be loaded: {error}. {INSTALL_AGAIN}") from error
    compiled_from.restype = ctypes.c_char_p
    if hash_of_sources() not in (None, compiled_from().decode()):
        raise UserError(
            f"{LIBRARY} was built from other sources than those beside it: build it again with "
            "make setup, or pip install --editable . in the checkout."
        )
    for level, needed in LEVELS.items():
        if hasattr(loaded, f"{level}_compute_rows") and cpu_has(loaded, needed):
            library = Library(level)
            if library.functions.is_usable():
                return library
    raise NoLibraryError("nmt-cli has no compiled layers for this kind of CPU")


def cpu_has(library: ctypes.CDLL, flags: Iterable[str]) -> bool:
    """Return whether this CPU has all these features, and Linux lets programs use them."""
    return all(library.cpu_has(flag.encode()) for flag in flags)


_warned_of = set[str]()  # why there is no library


def library_for(device: str) -> Library | None:
    """Return the library for CPUs; None on a GPU. If it is missing, warn once and return None.

    Raises UserError if it was built from other sources, or if there is no torch in its place.
    """
    if device != "cpu":
        return None
    try:
        return load_library()
    except NoLibraryError as error:
        if find_spec("torch") is None:
            raise
        if str(error) not in _warned_of:
            _warned_of.add(str(error))
            logs.warning(f"torch translates, several times as slowly, because {error}")
        return None


def hash_of_sources() -> str | None:
    """Return what ``setup.py`` compiles in; None without sources, as in a wheel."""
    sources = sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")])
    texts = [path.read_bytes() for path in sources]
    return hashlib.sha256(b"\0".join(texts)).hexdigest() if texts else None
