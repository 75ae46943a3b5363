"""The texts that a command reads: opened with a warning where needed, and never replaced."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from nmt_cli import logs
from nmt_cli.commands.text_warnings import on_encoding
from nmt_cli.corpus.shard_text import ShardText, open_shard
from nmt_cli.corpus.text_files import open_text
from nmt_cli.errors import UserError
from nmt_cli.shard import Shard


@contextmanager
def opened_text(path: Path, shard: Shard | None = None) -> Iterator[BinaryIO | ShardText]:
    """Yield the text of ``path``, or this part of it; warn if it is not UTF-8.

    Raises UserError if it cannot be read.
    """
    if (warning := on_encoding(path)) is not None:
        logs.warning(warning)
    opened: AbstractContextManager[BinaryIO | ShardText]
    opened = open_text(path) if shard is None else open_shard(path, shard)
    with opened as stream:
        yield stream


def refuse_to_replace(texts: Sequence[Path], output: Path | None) -> None:
    """Raise UserError if ``output`` is the file of one of ``texts``, also under another name."""
    if output is None or not output.is_file():
        return
    for path in texts:
        if path.exists() and output.samefile(path):
            raise UserError(
                f"the text {path} and --output {output} are the same file; choose another --output."
            )
