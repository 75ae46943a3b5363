"""``nmt-cli translate``: translates lines of text; each line gives one line, in order."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from nmt_cli.commands.lines.line_windows import (
    FIRST_FOR_A_READER,
    FIRST_WINDOW,
    STALL_SECONDS,
    STEADY_WINDOW,
    windows,
)
from nmt_cli.commands.lines.opened_texts import (
    Stream,
    opened_output,
    opened_text,
    refuse_to_replace,
)
from nmt_cli.commands.lines.pipes import STANDARD_INPUT, standard_input
from nmt_cli.commands.lines.resumable_output import ResumableOutput
from nmt_cli.commands.lines.translation_formats import (
    Formatter,
    Reader,
    formatter,
    options_for,
    reader,
)
from nmt_cli.commands.lines.translation_processes import (
    Processes,
    TextTranslator,
    choose_processes,
    coming_from,
    opened_engine,
    processes_that_pay,
)
from nmt_cli.commands.lines.translation_record import (
    affecting,
    as_asked,
    is_finished,
    recorded_options,
    refuse_other,
    rounding,
)
from nmt_cli.corpus.text.shard_text import Shard, ShardText
from nmt_cli.files.lines import Line, read_lines
from nmt_cli.files.locks import UnwritableOutputError, claimed
from nmt_cli.files.output_streams import is_stream
from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.cpu import usable_cores
from nmt_cli.messages import logs
from nmt_cli.messages.errors import STATUS_SOME_LINES_FAILED, LinesFailedError, WrongUsageError
from nmt_cli.messages.figures import counted
from nmt_cli.translating.options import TranslatorOptions
from nmt_cli.translating.translation import Translation

if TYPE_CHECKING:
    from nmt_cli.translating.request import Request

SHOWN_NUMBERS = 10


def run(  # noqa: PLR0913 - the options of the command are its parameters
    model: Path,
    *,
    ensemble: Sequence[Path] = (),
    input_path: Path | None = None,
    shard: Shard | None = None,
    output_path: Path | None = None,
    force: bool = False,
    resume: bool = False,
    input_format: str = "text",
    output_format: str = "text",
    device: str = AUTO,
    threads: int | None = None,
    workers: int | None = None,
    devices: int | None = None,
    arguments: Sequence[str] | None = None,
    **keywords: Any,
) -> int:
    """Translate stdin or ``input_path`` to stdout or ``output_path``; return the exit status.

    The keywords are the fields of ``TranslatorOptions``. With ``shard``, only this part of
    ``input_path`` is translated. ``workers`` processes on the CPU or ``devices`` GPUs share the
    text; if ``workers`` is None, the length of the text decides, if nothing limits threads or
    memory. If it ends early and ``arguments`` are given, those of the command, the output file is
    kept for ``resume``. Raises UserError if the model, the input or an option is wrong, OutputError
    if the output cannot be written, and LinesFailedError for a bug.
    """
    options = options_for(output_format, TranslatorOptions(**keywords))
    input_path = None if input_path == STANDARD_INPUT else input_path
    refuse_to_replace([input_path] if input_path else [], output_path, is_resumable=True)
    if resume and (output_path is None or is_stream(output_path)):
        raise WrongUsageError("--resume continues a file; give its name with --output.")
    recorded = recorded_options(options, input_format, output_format, shard)
    counts = device, threads, workers, devices
    asked = as_asked(device, options)
    if resume and not force and output_path is not None and is_finished(output_path):
        with suppress(UnwritableOutputError), claimed(output_path, "--output"):
            pass  # removes the lock of a process that was killed after it had finished
        with _source(input_path, shard) as source:
            lines = read_lines(cast(BinaryIO, source), _num_lines_before(source))
            refuse_other(output_path, [model, *ensemble], recorded, asked, lines)
        return 0
    opened = opened_output(output_path, force=force, resume=resume, arguments=arguments)
    with _source(input_path, shard) as source, opened as output, ExitStack() as stack:
        options = _with_choices(options, output.made_with)
        together = {**vars(options), "ensemble": ensemble}
        engine = stack.enter_context(_engine(model, counts, together, source, output))
        if isinstance(output, ResumableOutput):
            made_with = {**recorded, **affecting(options), **engine.chosen}
            output.begin(made_with, rounding(options, engine.threads), asked)
        tally = _translate_all(engine, source, output, input_format, output_format)
    tally.report()
    return STATUS_SOME_LINES_FAILED if tally.num_failed else 0


def _engine(
    model: Path,
    counts: tuple[str, int | None, int | None, int | None],
    options: dict[str, Any],
    source: BinaryIO | ShardText,
    output: Stream | ResumableOutput,
) -> AbstractContextManager[TextTranslator]:
    """Return the engine of the processes that ``counts`` ask for.

    These are the device, the threads, the workers and the devices.
    """
    device, threads, workers, devices = counts
    limit = threads or options["max_tokens_per_device"]
    processes = _processes(device, workers, devices, limit, source, output)
    if not processes.are_workers:
        begun_with = output.machine.get("threads")  # maybe on a machine of more cores
        is_possible = begun_with is not None and begun_with <= usable_cores()
        threads = threads or (begun_with if is_possible else None)
    return opened_engine(model, processes, device, threads, options)


def _processes(
    device: str,
    workers: int | None,
    devices: int | None,
    limit: int | None,
    source: BinaryIO | ShardText,
    output: Stream | ResumableOutput,
) -> Processes:
    """Return the processes that the options ask for; without any, those that pay.

    ``limit`` is one of threads or memory that the user gave.
    """
    is_free = workers is None and devices is None and limit is None
    if is_free and output.machine.get("threads") in {None, 1}:
        return processes_that_pay(device, coming_from(source), is_steady=output.is_file)
    return choose_processes(device, workers or 1, devices)


def _translate_all(
    engine: TextTranslator,
    source: BinaryIO | ShardText,
    output: Stream | ResumableOutput,
    input_format: str,
    output_format: str,
) -> _Tally:
    """Write the translation of each line of ``source``; return what happened to the lines."""
    format_line = formatter(input_format, output_format)
    tally = _Tally(_num_lines_before(source))
    tally.restore(output.tally)
    with logs.progress(
        "Translating",
        "lines",
        initial=tally.num_lines,
        hidden=source.isatty() or output.reader == "terminal",
        in_lines=output.reader == "pipe",
    ) as counter:
        lines = windows(
            source,
            stall_seconds=0.0 if source.isatty() else STALL_SECONDS,
            first=FIRST_WINDOW if output.reader == "none" else FIRST_FOR_A_READER,
            steady=STEADY_WINDOW["cuda" if engine.on_gpu else "cpu"] if output.is_file else None,
            expect=counter.expect,
        )
        lines, read_line = output.without_finished(lines), reader(input_format, output_format)
        for window, outputs in _translated(engine, lines, read_line, format_line, tally):
            output.add(window, "".join(outputs).encode(), tally.state())
            counter.advance(len(outputs))
    return tally


@contextmanager
def _source(path: Path | None, shard: Shard | None) -> Iterator[BinaryIO | ShardText]:
    if path is None:
        if shard is not None:
            raise WrongUsageError(
                "--shard needs a file, whose length is known; give it with --input."
            )
        stream = standard_input()
        if stream.isatty():
            logs.info("Reading from the terminal; Ctrl-D ends.")
        yield stream
        return
    with opened_text(path, shard) as text:
        yield text


def _num_lines_before(source: BinaryIO | ShardText) -> int:
    return source.num_lines_before if isinstance(source, ShardText) else 0


def _with_choices(options: TranslatorOptions, made_with: Mapping[str, Any]) -> TranslatorOptions:
    """Return ``options`` in which "auto" means what it meant when the output was begun."""
    if options.precision != AUTO:
        return options
    return replace(options, precision=made_with.get("precision", AUTO))


def _translated(
    engine: TextTranslator,
    lines: Iterator[list[Line]],
    read_line: Reader,
    format_line: Formatter,
    tally: _Tally,
) -> Iterator[tuple[Sequence[Line], list[str]]]:
    """Yield windows of lines and of their output, with an entry for each line.

    For a bug, raises LinesFailedError after yielding the output of the lines before; its line
    numbers count from the beginning of the text.
    """

    def outputs(window: Sequence[Line], translations: Sequence[Translation]) -> Iterator[str]:
        for line, translation in zip(window, translations, strict=True):
            tally.count(line, translation)
            yield format_line(tally.line_number, line, translation)

    waiting: deque[list[Line]] = deque()  # the windows that are being translated

    def requests() -> Iterator[list[Request]]:
        number = tally.line_number
        for window in lines:
            waiting.append(window)
            yield [read_line(number + place, line) for place, line in enumerate(window, 1)]
            number += len(window)

    try:
        for translations in engine.translate(requests()):
            window = waiting.popleft()
            yield window, list(outputs(window, translations))
    except LinesFailedError as error:
        num_before = tally.line_number
        finished = waiting.popleft()[: error.first]
        yield finished, list(outputs(finished, error.finished))
        raise error.behind(num_before) from error.__cause__


class _Tally:
    """Counts what happened to the lines; its memory does not grow with their number."""

    _OF_THIS_RUN = ("_started", "_num_before", "_num_elsewhere")

    def __init__(self, num_elsewhere: int) -> None:
        """``num_elsewhere`` lines of the text, before those counted here, are not translated."""
        self._num_elsewhere = num_elsewhere
        self.num_lines = 0
        self.num_failed = 0
        self._in_parts = _Numbers()
        self._truncated = _Numbers()
        self._lacking = _Numbers()
        self._with_invisible = _Numbers()
        self._with_bad_bytes = _Numbers()
        self._num_replaced = 0  # byte sequences
        self._not_copied = _Numbers()
        self._repaired_trees = _Numbers()
        self._num_trees, self._repairs = 0, Counter[str]()
        self._started, self._num_before = time.monotonic(), 0

    @property
    def line_number(self) -> int:
        """The number, in the whole text, of the line that was counted last."""
        return self._num_elsewhere + self.num_lines

    def count(self, line: Line, translation: Translation) -> None:
        """Count the next line; warn at once if it failed."""
        self.num_lines += 1
        number = self.line_number
        if translation.error is not None:
            self.num_failed += 1
            logs.warning(f"line {number:,} could not be translated: {translation.error}.")
        for numbers, is_one in (
            (self._in_parts, translation.num_parts > 1),
            (self._truncated, translation.truncated),
            (self._lacking, translation.lacks_sentences),
            (self._with_invisible, translation.drops_invisible),
            (self._not_copied, translation.not_copied),
        ):
            if is_one:
                numbers.add(number)
        if translation.repairs is not None:
            self._num_trees += 1
            self._repairs.update(vars(translation.repairs))
            if translation.repairs.total():
                self._repaired_trees.add(number)
        if line.replaced:
            self._with_bad_bytes.add(number)
            self._num_replaced += line.replaced
        if line.byte_order_mark:
            logs.info("Cut a byte order mark before the first line.")

    def state(self) -> dict[str, Any]:
        """Return the counts as they can be written to a file."""
        counts = vars(self).items()
        return {name: _state_of(value) for name, value in counts if name not in self._OF_THIS_RUN}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on from the counts that ``state()`` returned; from none if that is None."""
        for name, value in (state or {}).items():
            if name in vars(self):
                kind = type(vars(self)[name])
                setattr(self, name, kind(**value) if isinstance(value, dict) else value)
        self._num_before = self.num_lines

    def report(self) -> None:
        """Log how many lines were translated, and warn about those in parts, cut or repaired."""
        if self._in_parts.count:
            logs.warning(f"too long for the model, translated in parts: {self._in_parts}.")
        if self._truncated.count:
            logs.warning(f"too long for the model, end cut off: {self._truncated}.")
        if self._lacking.count:
            logs.warning(
                f"most sentences have no translation: {self._lacking}; --split-sentences "
                "translates each sentence of a line by itself."
            )
        if self._not_copied.count:
            logs.warning(f"protected text not copied exactly once: {self._not_copied}.")
        if self._with_invisible.count:
            logs.info(f"Left out characters that nobody sees in {self._with_invisible}.")
        if self._with_bad_bytes.count:
            sequences = counted(self._num_replaced, "byte sequence")
            logs.warning(f"Bad UTF-8: {sequences} became U+FFFD in {self._with_bad_bytes}.")
        if self._num_trees:
            from nmt_cli.parsing.repair import Repairs  # only for models that parse

            repaired, repairs = self._repaired_trees, Repairs(**self._repairs)
            what = f" in {repaired}: {repairs.described()}" if repaired.count else ""
            trees = counted(self._num_trees, "tree")
            logs.info(f"Repaired {repaired.count:,} of {trees}{what}.")
        seconds = time.monotonic() - self._started
        in_all = f" ({self.num_lines:,} in all)" if self._num_before else ""
        lines = counted(self.num_lines - self._num_before, "line")
        logs.info(f"Translated {lines} in {seconds:.1f} s{in_all}.")


class _Numbers:
    """The count of some lines, and the line numbers of the first ones."""

    def __init__(self, count: int = 0, first: Sequence[int] = ()) -> None:
        self.count = count
        self.first = list(first)

    def add(self, number: int) -> None:
        self.count += 1
        if len(self.first) < SHOWN_NUMBERS:
            self.first.append(number)

    def __str__(self) -> str:
        shown = ", ".join(f"{number:,}" for number in self.first)
        if self.count == 1:
            return f"line {shown}"
        more = " ..." if self.count > SHOWN_NUMBERS else ""
        return f"{self.count:,} lines ({shown}{more})"


def _state_of(value: Any) -> Any:
    if isinstance(value, Counter):
        return dict(value)
    return dict(vars(value)) if isinstance(value, _Numbers) else value
