"""A simulated disk: what may be left of recorded operations after a power loss (as in ALICE).

Without fsync nothing is promised. Of a file, any part of what was written since its last fsync
may be missing, cut off or zero; of a directory, names change in their order, but how many of the
changes since its last fsync were made is open. Directories do not wait for each other.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from tests.faults.file_operations import Operation

Content = dict[str, bytes]  # of every file, by its path below the root


class File:
    """A file: its content, and the part of it that an fsync has made safe."""

    def __init__(self) -> None:
        self.content = self.safe = b""
        self.writes: list[tuple[int, bytes]] = []  # since the last fsync

    def write(self, offset: int, data: bytes) -> None:
        self.content = written(self.content, offset, data)
        self.writes.append((offset, data))

    def sync(self) -> None:
        self.safe, self.writes = self.content, []

    def after_loss(self, chance: random.Random) -> bytes:
        """Return one of the contents that a power loss may leave."""
        fate = chance.choice(["nothing", "all", "cut", "zeros", "some"])
        if fate == "nothing" or not self.writes:
            return self.safe
        if fate == "all":
            return self.content
        if fate == "cut":
            return self.content[: chance.randrange(len(self.content) + 1)]
        if fate == "zeros":  # the length arrived, the bytes did not
            return self.safe + bytes(len(self.content) - len(self.safe))
        left = self.safe
        for offset, data in self.writes:
            if chance.random() < 0.5:
                left = written(left, offset, data)
        return left


class Directory:
    """A directory: its names now, its safe names, and the changes between them."""

    def __init__(self) -> None:
        self.names: dict[str, File | Directory] = {}
        self.safe: dict[str, File | Directory] = {}
        self.changes: list[dict[str, File | Directory | None]] = []  # None: the name goes

    def change(self, names: "dict[str, File | Directory | None]") -> None:
        self.names = changed(self.names, names)
        self.changes.append(names)

    def sync(self) -> None:
        self.safe, self.changes = self.names, []

    def after_loss(self, chance: random.Random) -> "dict[str, File | Directory]":
        """Return one of the sets of names that a power loss may leave."""
        left = self.safe
        for names in self.changes[: chance.randint(0, len(self.changes))]:
            left = changed(left, names)
        return left


class Disk:
    """The tree below ``root``, to which recorded operations are applied."""

    def __init__(self, root: Path) -> None:
        self._path, self._root = root, Directory()

    def apply(self, operation: Operation) -> None:
        """Apply one operation of the process."""
        folder, name = self._folder_of(operation.path), operation.path.name
        if operation.kind == "mkdir":
            folder.change({name: Directory()})
        elif operation.kind in {"create", "append"}:
            if operation.kind == "create" or name not in folder.names:
                folder.change({name: File()})
        elif operation.kind == "write":
            self._file(operation.path).write(operation.offset, operation.data)
        elif operation.kind == "fsync":
            self._found(operation.path).sync()
        elif operation.kind == "rename":
            assert operation.target is not None
            assert operation.target.parent == operation.path.parent
            moved = folder.names[name]
            folder.change({name: None, operation.target.name: moved})
        elif operation.kind in {"unlink", "rmdir"}:
            folder.change({name: None})

    def after_loss(self, chance: random.Random) -> Content:
        """Return one of the trees that a power loss may leave now."""
        return dict(_contents(self._root.after_loss(chance), "", chance))

    def _folder_of(self, path: Path) -> Directory:
        folder = self._found(path.parent) if path != self._path else self._root
        assert isinstance(folder, Directory)
        return folder

    def _file(self, path: Path) -> File:
        file = self._found(path)
        assert isinstance(file, File)
        return file

    def _found(self, path: Path) -> File | Directory:
        found: File | Directory = self._root
        for part in path.relative_to(self._path).parts:
            assert isinstance(found, Directory)
            found = found.names[part]
        return found


def written(content: bytes, offset: int, data: bytes) -> bytes:
    """Return ``content`` with ``data`` at ``offset``; a gap is zeros."""
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


def changed(
    names: "dict[str, File | Directory]", changes: "dict[str, File | Directory | None]"
) -> "dict[str, File | Directory]":
    """Return ``names`` after ``changes``."""
    merged = {**names, **changes}
    return {name: entry for name, entry in merged.items() if entry is not None}


def _contents(
    names: "dict[str, File | Directory]", prefix: str, chance: random.Random
) -> Sequence[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for name, entry in names.items():
        if isinstance(entry, File):
            found.append((prefix + name, entry.after_loss(chance)))
        else:
            found += _contents(entry.after_loss(chance), f"{prefix}{name}/", chance)
    return found
