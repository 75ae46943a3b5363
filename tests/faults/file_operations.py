"""What a process does to files: every operation under a directory, reported as it happens.

The functions of ``os`` and ``open`` are wrapped in the process that is watched, from outside the
product, so that the product needs no hooks for its tests.
"""

import builtins
import io
import os
import pathlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Operation(NamedTuple):
    """One operation; ``data`` and ``offset`` are those of a write."""

    kind: str  # create, append, write, close, read, fsync, rename, mkdir, unlink, rmdir
    path: Path
    target: Path | None = None  # of a rename
    data: bytes = b""
    offset: int = 0


# Called with "before" and "after" each operation; a write has only a "middle", half written.
Observer = Callable[[str, Operation], None]


class WatchedStream:
    """A stream whose writes reach the disk in two halves."""

    def __init__(self, stream: Any, path: Path, observer: Observer) -> None:
        self._stream, self._path, self._observer = stream, path, observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> "WatchedStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: Any) -> int:
        offset = self._stream.tell()
        half = len(data) // 2
        self._stream.write(data[:half])
        self._stream.flush()
        content = data.encode() if isinstance(data, str) else bytes(data)
        self._observer("middle", Operation("write", self._path, None, content, offset))
        self._stream.write(data[half:])
        return len(data)

    def close(self) -> None:
        was_open = not self._stream.closed
        self._stream.close()
        if was_open:
            self._observer("after", Operation("close", self._path))


def watch(roots: list[Path], observer: Observer) -> None:
    """Report every operation on paths under ``roots`` from now on."""

    def is_watched(path: Path) -> bool:
        return any(path == root or root in path.parents for root in roots)

    def wrap(kind: str, names: list[str], has_target: bool = False) -> None:
        for name in names:
            original = getattr(os, name)

            def wrapped(*args: Any, original: Any = original, **settings: Any) -> Any:
                path = _path_of(args[0], settings.get("dir_fd"))
                if not is_watched(path):
                    return original(*args, **settings)
                operation = Operation(kind, path, _path_of(args[1]) if has_target else None)
                observer("before", operation)
                result = original(*args, **settings)
                observer("after", operation)
                return result

            _replace(name, wrapped)

    wrap("fsync", ["fsync", "fdatasync"])
    wrap("rename", ["rename", "replace"], has_target=True)
    wrap("mkdir", ["mkdir"])
    wrap("unlink", ["unlink", "remove"])
    wrap("rmdir", ["rmdir"])
    _wrap_open(is_watched, observer)


def _wrap_open(is_watched: Callable[[Path], bool], observer: Observer) -> None:
    original, original_descriptor = io.open, os.open

    def opened(file: Any, mode: str = "r", *args: Any, **settings: Any) -> Any:
        path = _path_of(file) if not isinstance(file, int) else Path("/")
        if not is_watched(path):
            return original(file, mode, *args, **settings)
        if not set(mode) & set("wax+"):
            observer("before", Operation("read", path))
            return original(file, mode, *args, **settings)
        stream = original(file, mode, *args, **settings)
        observer("after", Operation("append" if "a" in mode else "create", path))
        return WatchedStream(stream, path, observer)

    def opened_descriptor(file: Any, flags: int, *args: Any, **settings: Any) -> int:
        descriptor = original_descriptor(file, flags, *args, **settings)
        path = _path_of(file, settings.get("dir_fd"))
        if flags & os.O_CREAT and is_watched(path):
            observer("after", Operation("append", path))
        return descriptor

    _replace("open", opened_descriptor)
    io.open = opened
    builtins.open = opened
    accessor = getattr(pathlib, "_NormalAccessor", None)
    if accessor is not None:
        accessor.open = staticmethod(opened)


def _replace(name: str, function: Any) -> None:
    setattr(os, name, function)
    accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps copies there
    if accessor is not None and name != "open" and hasattr(accessor, name):
        setattr(accessor, name, staticmethod(function))


def _path_of(file: Any, dir_fd: int | None = None) -> Path:
    descriptor = file if isinstance(file, int) else dir_fd
    if descriptor is None:
        return Path(file).absolute()
    folder = Path(f"/proc/self/fd/{descriptor}").readlink()
    return folder if isinstance(file, int) else folder / file
