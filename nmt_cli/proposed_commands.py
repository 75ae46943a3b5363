"""Commands that messages propose: they work when pasted, and overwrite no file of the user."""

import shlex
from itertools import count
from pathlib import Path


def as_argument(path: Path | str) -> str:
    """Return ``path`` so that no program reads it as an option: ``./-name`` for ``-name``."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def command(*words: str | Path) -> str:
    """Return the words of a command, quoted for a shell; a path among them is never an option."""
    return shlex.join(as_argument(word) if isinstance(word, Path) else word for word in words)


def unused_name(path: Path) -> Path:
    """Return ``path`` if it does not exist, else an unused path beside it."""
    candidate = path
    for number in count(2):
        if not candidate.exists() and not candidate.is_symlink():
            break
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate
