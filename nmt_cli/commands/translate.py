"""``nmt-cli translate``: translates lines of text; each line gives one line, in order."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from nmt_cli.commands.lines.document_text import DocumentText, read_document_text
from nmt_cli.commands.lines.line_windows import (
    FIRST_FOR_A_READER,
    FIRST_WINDOW,
    MOST_LINES,
    STALL_SECONDS,
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
from nmt_cli.commands.lines.tally import Tally
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
from nmt_cli.documents.formats import BILINGUAL, ENDINGS, NEED_LANGUAGES, chosen_format
from nmt_cli.files.lines import Line, read_lines
from nmt_cli.files.locks import UnwritableOutputError, claimed
from nmt_cli.files.output_streams import is_stream
from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.cpu import usable_cores
from nmt_cli.messages import logs
from nmt_cli.messages.errors import STATUS_SOME_LINES_FAILED, LinesFailedError, WrongUsageError
from nmt_cli.translating.options import TranslatorOptions
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation


def run(  # noqa: PLR0913 - the options of the command are its parameters
    model: Path,
    *,
    ensemble: Sequence[Path] = (),
    input_path: Path | None = None,
    shard: Shard | None = None,
    output_path: Path | None = None,
    force: bool = False,
    resume: bool = False,
    input_format: str | None = None,
    retranslate: bool = False,
    output_format: str = "text",
    device: str = AUTO,
    threads: int | None = None,
    workers: int | None = None,
    devices: int | None = None,
    arguments: Sequence[str] | None = None,
    **keywords: Any,
) -> int:
    """Translate stdin or ``input_path`` to stdout or ``output_path``; return the exit status.

    Without ``input_format``, the ending of ``input_path`` decides whether it is a document. The
    keywords are the fields of ``TranslatorOptions``. With ``shard``, only this part of
    ``input_path`` is translated. ``workers`` processes on the CPU or ``devices`` GPUs share the
    text; if ``workers`` is None, the length of the text decides, if nothing limits threads or
    memory. If it ends early and ``arguments`` are given, those of the command, the output file is
    kept for ``resume``. Raises UserError if the model, the input or an option is wrong, OutputError
    if the output cannot be written, and LinesFailedError for a bug.
    """
    form = chosen_format(input_format, input_path, output_path, keywords.get("markup"))
    if keywords.get("split_sentences") is None:  # a line is a sentence; a paragraph holds several
        keywords["split_sentences"] = form in ENDINGS
    options = options_for(form, output_format, TranslatorOptions(**keywords))
    input_path = None if input_path == STANDARD_INPUT else input_path
    refuse_to_replace([input_path] if input_path else [], output_path, is_resumable=True)
    if resume and (output_path is None or is_stream(output_path)):
        raise WrongUsageError("--resume continues a file; give its name with --output.")
    counts = device, threads, workers, devices
    asked = as_asked(device, options)
    with ExitStack() as stack:
        languages = None
        if form in NEED_LANGUAGES:
            model, languages = _with_languages(model)
        source = stack.enter_context(_source(input_path, shard, form, retranslate, languages))
        document = source if isinstance(source, DocumentText) else None
        recorded = recorded_options(options, form, output_format, shard)
        recorded["retranslate"] = retranslate
        recorded["document"] = None if document is None else document.sha256
        if resume and not force and output_path is not None and is_finished(output_path):
            with suppress(UnwritableOutputError), claimed(output_path, "--output"):
                pass  # removes the lock of a process that was killed after it had finished
            lines = read_lines(cast(BinaryIO, source), _num_lines_before(source))
            refuse_other(output_path, [model, *ensemble], recorded, asked, lines)
            return 0
        output = stack.enter_context(
            opened_output(
                output_path,
                force=force,
                resume=resume,
                arguments=arguments,
                compose=None if document is None else document.composed,
            )
        )
        options = _with_choices(options, output.made_with)
        together = {**vars(options), "ensemble": ensemble}
        engine = stack.enter_context(_engine(model, counts, together, source, output))
        if isinstance(output, ResumableOutput):
            made_with = {**recorded, **affecting(options), **engine.chosen}
            output.begin(made_with, rounding(options, engine.threads), asked)
        read_line = reader(form, output_format, options.choose)
        tally = _translate_all(engine, source, output, read_line, formatter(form, output_format))
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
    read_line: Reader,
    format_line: Formatter,
) -> Tally:
    """Write the translation of each line of ``source``; return what happened to the lines."""
    unit = "segment" if isinstance(source, DocumentText) else "line"
    tally = Tally(_num_lines_before(source), unit)
    tally.restore(output.tally)
    with logs.progress(
        "Translating",
        f"{unit}s",
        initial=tally.num_lines,
        hidden=source.isatty() or output.reader == "terminal",
        in_lines=output.reader == "pipe",
    ) as counter:
        lines = windows(
            source,
            stall_seconds=0.0 if source.isatty() else STALL_SECONDS,
            first=FIRST_WINDOW if output.reader == "none" else FIRST_FOR_A_READER,
            most=MOST_LINES["cuda" if engine.on_gpu else "cpu"],
            is_steady=output.is_file,
            expect=counter.expect,
        )
        lines = output.without_finished(lines)
        for window, outputs in _translated(engine, lines, read_line, format_line, tally):
            output.add(window, "".join(outputs).encode(), tally.state())
            counter.advance(len(outputs))
    return tally


def _with_languages(path: Path) -> tuple[Path, tuple[str, str]]:
    """Return the directory of the model that ``path`` means, and its languages."""
    from nmt_cli.model_directory import use_model  # imports numpy, which few formats need here

    found, text = use_model(path, lambda model: (model.path, model.settings.text))
    return found, (text.source_language, text.target_language)


@contextmanager
def _source(
    path: Path | None,
    shard: Shard | None,
    input_format: str,
    again: bool,
    languages: tuple[str, str] | None,
) -> Iterator[BinaryIO | ShardText]:
    if again and input_format not in BILINGUAL:
        raise WrongUsageError(
            f"--retranslate is for documents that have translations ({', '.join(BILINGUAL)}); omit "
            "it."
        )
    if input_format in ENDINGS:
        if shard is not None:
            raise WrongUsageError("--shard cuts texts of lines; a document has none.")
        yield read_document_text(path, input_format, again=again, languages=languages)
        return
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
    tally: Tally,
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
