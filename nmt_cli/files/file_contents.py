"""Reads small files whole; a file that is far too large is refused."""

from pathlib import Path

from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.proposals import missing_hint

LARGEST_FILE = 50 << 20  # bytes


def read_content(path: Path, question: str = "") -> bytes:
    """Return the bytes of a file.

    Raises UserError if it cannot be read or is larger than ``LARGEST_FILE``; then the message ends
    with ``question``, such as "; is it a vocabulary?".
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise UserError(f"{path} not found{missing_hint(path)}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if len(content) > LARGEST_FILE:
        raise UserError(f"{path} is larger than {LARGEST_FILE >> 20} MB{question or '.'}")
    return content


def decoded(content: bytes, path: Path) -> str:
    """Return the content of ``path`` as text; raises DamagedError if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise DamagedError(f"{path} is not UTF-8 text; it is damaged.") from None


def read_text(path: Path) -> str:
    """Return the text of a file; raises as ``read_content`` and ``decoded`` do."""
    return decoded(read_content(path), path)
