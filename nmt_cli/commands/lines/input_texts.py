"""The texts that a command reads: opened with a warning where needed, and never replaced."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from nmt_cli.commands.lines.job_record import finished_record_of, partial_of, side_file_of
from nmt_cli.commands.lines.text_warnings import on_encoding
from nmt_cli.corpus.text.shard_text import Shard, ShardText, open_shard
from nmt_cli.files.text_files import open_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError


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


def refuse_to_replace(
    texts: Sequence[Path], output: Path | None, *, is_resumable: bool = False
) -> None:
    """Raise UserError if a file of ``output`` is one of ``texts``, also under another name.

    An output that ``is_resumable`` has further files beside it.
    """
    if output is None:
        return
    of_output = [output]
    if is_resumable:
        of_output += [partial_of(output), side_file_of(output), finished_record_of(output)]
    written = [path for path in of_output if path.is_file()]
    for path in texts:
        if path.exists() and any(path.samefile(file) for file in written):
            raise UserError(
                f"the text {path} is a file that --output {output} would replace; "
                "choose another --output."
            )
