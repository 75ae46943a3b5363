"""``nmt-cli translate``: translates lines of text; each line gives one line, in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from nmt_cli import logs
from nmt_cli.atomic_files import file_appearing_whole, keep_unfinished, refuse_file
from nmt_cli.commands.format_options import options_for
from nmt_cli.commands.line_windows import STALL_SECONDS, windows
from nmt_cli.commands.pipes import StandardOutput, standard_input
from nmt_cli.commands.text_warnings import on_encoding
from nmt_cli.commands.translation_formats import FORMATS, Formatter
from nmt_cli.corpus.lines import Line
from nmt_cli.corpus.text_files import SUFFIXES, compressed, open_text
from nmt_cli.decoding.translation import LinesFailedError, Translation
from nmt_cli.decoding.translator import Translator, TranslatorOptions
from nmt_cli.errors import UserError
from nmt_cli.hardware.busy_machine import LoadMeter, warn_if_busy
from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.device import choose_device, set_num_threads, useful_threads
from nmt_cli.locks import claimed
from nmt_cli.output_streams import is_stream
from nmt_cli.temporary_names import shortened
from nmt_cli.trees.repair import Repairs

if TYPE_CHECKING:
    from typing_extensions import Unpack

STATUS_SOME_LINES_FAILED = 3
SHOWN_NUMBERS = 10

Write = Callable[[bytes], object]


def run(
    model: Path,
    *,
    input_path: Path | None = None,
    output_path: Path | None = None,
    force: bool = False,
    output_format: str = "text",
    device: str = AUTO,
    threads: int | None = None,
    **options: Unpack[TranslatorOptions],
) -> int:
    """Translate stdin or ``input_path`` to stdout or ``output_path``; return the exit status.

    Raises UserError if the model, the input or an option is wrong, OutputError if the output cannot
    be written, and LinesFailedError for a bug.
    """
    options = options_for(output_format, options)
    _refuse_same_file(input_path, output_path)
    if threads is not None:
        set_num_threads(threads)
    with _source(input_path) as source, _sink(output_path, force=force) as write:
        meter = LoadMeter()
        translator = Translator.load(model, device=device, **options)
        warn_if_busy(meter, useful_threads(choose_device(device)))
        if source.isatty():
            logs.info("Reading from the terminal; Ctrl-D ends.")
        tally = _Tally()
        hidden = source.isatty() or (output_path is None and sys.stdout.isatty())
        with logs.progress("Translating", "lines", hidden=hidden) as counter:
            for outputs in _translated(
                translator, source, FORMATS[output_format], tally, counter.expect
            ):
                write("".join(outputs).encode())
                counter.advance(len(outputs))
    tally.report()
    return STATUS_SOME_LINES_FAILED if tally.num_failed else 0


def _refuse_same_file(input_path: Path | None, output_path: Path | None) -> None:
    if input_path is None or output_path is None or not output_path.is_file():
        return
    if input_path.exists() and output_path.samefile(input_path):
        raise UserError(
            f"--input {input_path} and --output {output_path} are the same file; "
            "choose another --output."
        )


@contextmanager
def _source(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield standard_input()
        return
    if (warning := on_encoding(path)) is not None:
        logs.warning(warning)
    with open_text(path) as stream:
        yield stream


@contextmanager
def _sink(path: Path | None, *, force: bool) -> Iterator[Write]:
    if path is None:
        yield StandardOutput().write
        return
    refuse_file(path, replace=force)
    with claimed(path, "--output"), file_appearing_whole(path, replace=force) as stream:
        try:
            with compressed(stream, path) as packed:
                yield partial(_write_at_once, stream) if packed is stream else packed.write
        except LinesFailedError as error:
            if not is_stream(path):
                error.args = (f"{error}; {_keep(stream, path, error.first)}",)
            raise


def _keep(stream: BinaryIO, path: Path, num_lines: int) -> str:
    """Keep the output of the first lines beside ``path``, and return the message about it."""
    name = f"{shortened(path.stem)}.unfinished{path.suffix}" if path.suffix in SUFFIXES else None
    unfinished = path.with_name(name or f"{shortened(path.name)}.unfinished")
    lines = "the line" if num_lines == 1 else f"the {num_lines:,} lines"
    try:
        keep_unfinished(stream, unfinished)
    except OSError as error:
        return f"the output of {lines} before could not be kept in {unfinished}: {error.strerror}"
    return f"the output of {lines} before is kept in {unfinished}"


def _write_at_once(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
    stream.flush()  # the reader of a pipe is waiting for these lines


def _translated(
    translator: Translator,
    source: BinaryIO,
    format_line: Formatter,
    tally: _Tally,
    expect: Callable[[int, bool], None],
) -> Iterator[list[str]]:
    """Yield windows of output, with an entry for each line.

    For a bug, raises LinesFailedError after yielding the output of the lines before; its line
    numbers count from the beginning of the text.
    """

    def outputs(window: Sequence[Line], translations: Sequence[Translation]) -> Iterator[str]:
        for line, translation in zip(window, translations, strict=True):
            tally.count(line, translation)
            yield format_line(tally.num_lines, line, translation)

    stall_seconds = 0.0 if source.isatty() else STALL_SECONDS
    for window in windows(source, stall_seconds=stall_seconds, expect=expect):
        num_before = tally.num_lines
        try:
            translations = translator.translate_window([line.text for line in window])
        except LinesFailedError as error:
            yield list(outputs(window[: error.first], error.finished))
            raise error.behind(num_before) from error.__cause__
        yield list(outputs(window, translations))


class _Tally:
    """Counts what happened to the lines; its memory does not grow with their number."""

    def __init__(self) -> None:
        self.num_lines = 0
        self.num_failed = 0
        self._in_parts = _Numbers()
        self._truncated = _Numbers()
        self._with_bad_bytes = _Numbers()
        self._num_replaced = 0  # byte sequences
        self._repaired_trees = _Numbers()
        self._num_trees, self._repairs = 0, Repairs()
        self._started = time.monotonic()

    def count(self, line: Line, translation: Translation) -> None:
        """Count the next line; warn at once if it failed."""
        self.num_lines += 1
        if translation.error is not None:
            self.num_failed += 1
            logs.warning(f"line {self.num_lines:,} could not be translated: {translation.error}.")
        if translation.num_parts > 1:
            self._in_parts.add(self.num_lines)
        if translation.truncated:
            self._truncated.add(self.num_lines)
        if translation.repairs is not None:
            self._num_trees += 1
            self._repairs += translation.repairs
            if translation.repairs.total():
                self._repaired_trees.add(self.num_lines)
        if line.replaced:
            self._with_bad_bytes.add(self.num_lines)
            self._num_replaced += line.replaced
        if line.byte_order_mark:
            logs.info("Cut a byte order mark before the first line.")

    def report(self) -> None:
        """Log how many lines were translated, and warn about those in parts, cut or repaired."""
        if self._in_parts.count:
            logs.warning(f"too long for the model, translated in parts: {self._in_parts}.")
        if self._truncated.count:
            logs.warning(f"too long for the model, end cut off: {self._truncated}.")
        if self._with_bad_bytes.count:
            logs.warning(
                f"{self._num_replaced:,} byte sequences that are not UTF-8 became U+FFFD "
                f"in {self._with_bad_bytes}."
            )
        if self._num_trees:
            repaired = self._repaired_trees
            what = f" in {repaired}: {self._repairs.as_text()}" if repaired.count else ""
            logs.info(f"Repaired {repaired.count:,} of {self._num_trees:,} trees{what}.")
        seconds = time.monotonic() - self._started
        logs.info(f"Translated {self.num_lines:,} lines in {seconds:.1f} s.")


class _Numbers:
    """The count of some lines, and the line numbers of the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[int] = []

    def add(self, number: int) -> None:
        self.count += 1
        if len(self._first) < SHOWN_NUMBERS:
            self._first.append(number)

    def __str__(self) -> str:
        shown = ", ".join(f"{number:,}" for number in self._first)
        if self.count == 1:
            return f"line {shown}"
        more = " ..." if self.count > SHOWN_NUMBERS else ""
        return f"{self.count:,} lines ({shown}{more})"
