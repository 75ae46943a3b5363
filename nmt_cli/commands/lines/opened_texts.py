"""The texts that commands read, and where they write: files, stdin and stdout, devices, pipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from nmt_cli.commands.lines import translation_record as records
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.corpus.text.shard_text import Shard, ShardText, open_shard
from nmt_cli.files.atomic_files import file_appearing_whole, refuse_file, refuse_nameless
from nmt_cli.files.lines import Line
from nmt_cli.files.locks import claimed
from nmt_cli.files.output_streams import (
    STANDARD_INPUT,
    STANDARD_OUTPUT,
    OutputReader,
    is_stream,
    reader_of,
)
from nmt_cli.files.text_files import compressed, open_text, other_encoding, standard_input
from nmt_cli.files.text_forms import wrong_lines
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

if TYPE_CHECKING:
    from nmt_cli.commands.lines.resumable_output import Composer, ResumableOutput


@contextmanager
def opened_text(path: Path, shard: Shard | None = None) -> Iterator[BinaryIO | ShardText]:
    """Yield the text of ``path``, which may be stdin, or this part of it.

    Warns if its line ends are wrong. Raises UserError if it cannot be read, or is in another
    encoding of Unicode than UTF-8.
    """
    if path == STANDARD_INPUT:
        yield standard_input()
        return
    if (problem := wrong_lines(path)) is not None:
        if other_encoding(path) is not None:
            raise UserError(problem)
        logs.warning(problem)
    opened: AbstractContextManager[BinaryIO | ShardText]
    opened = open_text(path) if shard is None else open_shard(path, shard)
    with opened as stream:
        yield stream


def refuse_to_replace(
    texts: Sequence[Path], output: Path | None, *, is_resumable: bool = False
) -> None:
    """Raise UserError if a file of ``output`` is one of ``texts``, also under another name.

    An output that ``is_resumable`` has further files beside it, so it must have a name.
    """
    if output is None:
        return
    of_output = [output]
    if is_resumable:
        refuse_nameless(output)
        of_output += [records.partial_of(output), records.record_path(output)]
    written = [path for path in of_output if path.is_file()]
    for path in texts:
        if path.exists() and any(path.samefile(file) for file in written):
            raise UserError(
                f"the text {path} is a file that --output {output} would replace; "
                "choose another --output."
            )


class Stream:
    """What writes an output that cannot be continued, such as a device or a pipe.

    It has what ``translate`` uses of a ``ResumableOutput``.
    """

    record = records.Record()

    def __init__(
        self, write: Callable[[bytes], object], reader: OutputReader, *, is_file: bool = False
    ) -> None:
        """``write`` writes all bytes that it gets; ``reader`` reads them meanwhile."""
        self.write, self.reader, self.is_file = write, reader, is_file
        self.is_empty = True

    def begin(self, made: records.MadeWith, text: records.TextSoFar) -> None:
        """Nothing is recorded."""

    def without_finished(self, windows: Iterator[list[Line]]) -> Iterator[list[Line]]:
        """Return all windows: none of them is finished."""
        return windows

    def add(self, lines: Sequence[Line], data: bytes, num_failed: int) -> None:
        """Write the output of a whole window."""
        self.is_empty = False
        self.write(data)


@contextmanager
def opened_stream(path: Path | None, *, force: bool) -> Iterator[Stream]:
    """Yield what writes to ``path``, a file that appears whole or a stream; None is stdout.

    Raises UserError if the file exists without ``force``, OutputError if it cannot be written.
    """
    if path is None or path == STANDARD_OUTPUT:
        standard = StandardOutput()
        yield Stream(standard.write, standard.reader)
        return
    refuse_file(path, replace=force)
    with (
        claimed(path, "--output"),
        file_appearing_whole(path, replace=force) as stream,
        compressed(stream, path) as packed,
    ):

        def write(data: bytes) -> None:
            packed.write(data)
            stream.flush()  # the reader of a pipe is waiting for these lines

        yield Stream(write, reader_of(stream.fileno()), is_file=not is_stream(path))


@contextmanager
def opened_output(
    path: Path | None,
    *,
    force: bool,
    resume: bool,
    arguments: Sequence[str] | None,
    compose: Composer | None = None,
) -> Iterator[Stream | ResumableOutput]:
    """Yield what writes to ``path`` or, if that is None, to stdout.

    A file can be continued by a command with these ``arguments``, if they are given. With
    ``compose``, what it makes of all that was written is the output. Raises OutputError if it
    cannot be written, and UserError if the command is stopped before anything was written.
    """
    if path is not None and not is_stream(path) and arguments is not None:
        from nmt_cli.commands.lines.resumable_output import resumable_output  # only for files

        with resumable_output(
            path, replace=force, resume=resume, arguments=arguments, compose=compose
        ) as resumable:
            yield resumable
        return
    with opened_stream(path, force=force) as stream:
        try:
            if compose is None:
                yield stream
            else:
                written = list[bytes]()
                yield Stream(written.append, "none")
                stream.write(compose(b"".join(written))[0])
        except (KeyboardInterrupt, SystemExit) as stop:
            if not stream.is_empty:
                raise
            raise records.stopped(stop, "Nothing was written: no line was finished.") from None
