"""``nmt-cli translate``: translates lines of text; each line gives one line, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from nmt_cli.commands.lines import line_windows, opened_texts
from nmt_cli.commands.lines import translation_formats as formats
from nmt_cli.commands.lines import translation_processes as processes
from nmt_cli.commands.lines import translation_record as records
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.commands.lines.tally import Tally
from nmt_cli.corpus.text.shard_text import Shard, ShardText
from nmt_cli.documents.formats import ARCHIVES, BILINGUAL, ENDINGS, chosen_format
from nmt_cli.files.lines import Line, read_lines
from nmt_cli.files.locks import UnwritableOutputError, claimed
from nmt_cli.files.output_streams import STANDARD_INPUT, STANDARD_OUTPUT, is_stream
from nmt_cli.files.text_files import standard_input
from nmt_cli.files.text_forms import why_whole_rows
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.messages import logs
from nmt_cli.messages.errors import STATUS_SOME_LINES_FAILED, LinesFailedError, WrongUsageError
from nmt_cli.translating.interface.options import TranslatorOptions
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation

if TYPE_CHECKING:
    from nmt_cli.commands.lines.document_text import DocumentText
    from nmt_cli.commands.lines.resumable_output import ResumableOutput


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
    _refuse_on_terminal(form, output_path)
    if keywords.get("split_sentences") is None and form in ENDINGS:
        keywords["split_sentences"] = True  # a paragraph holds several
    options = formats.options_for(form, output_format, TranslatorOptions(**keywords))
    input_path = None if input_path == STANDARD_INPUT else input_path
    opened_texts.refuse_to_replace(
        [input_path] if input_path else [], output_path, is_resumable=True
    )
    if resume and (output_path is None or is_stream(output_path)):
        raise WrongUsageError("--resume continues a file; give its name with --output.")
    with ExitStack() as stack:
        languages = None
        if form in ENDINGS or _asked(options) != NO_PAIR:  # most documents name their languages
            model, languages = _with_languages(model, options, form)
        source = stack.enter_context(_source(input_path, shard, form, retranslate, languages))
        document = cast("DocumentText", source) if form in ENDINGS else None
        text = records.TextSoFar(document.sha256 if document else "")
        others = {"format": output_format, "input_format": form, "retranslate": retranslate}
        hashed = records.hash_of(options, {**others, "shard": shard})
        made = records.MadeWith("", hashed, device.partition(":")[0], options.precision)
        if resume and not force and output_path is not None and records.is_finished(output_path):
            with suppress(UnwritableOutputError), claimed(output_path, "--output"):
                pass  # removes the lock of a process that was killed after it had finished
            lines = read_lines(cast(BinaryIO, source), _num_lines_before(source))
            models = [model, *ensemble]
            num_failed = records.num_failed_of(output_path, made, models, text, lines)
            return STATUS_SOME_LINES_FAILED if num_failed else 0
        output = stack.enter_context(
            opened_texts.opened_output(
                output_path,
                force=force,
                resume=resume,
                arguments=arguments,
                compose=None if document is None else document.composed,
            )
        )
        # "auto" means what it meant when the output was begun.
        made = made.meant_by(output.record.made)
        device = made.device if device == AUTO else device
        options = replace(options, precision=made.precision)
        counts = device, threads, workers, devices
        together = {**vars(options), "ensemble": ensemble}
        engine = stack.enter_context(_engine(model, counts, together, source))
        output.begin(made._replace(**engine.chosen), text)
        read_line = formats.reader(form, output_format, options.choose)
        format_line = formats.formatter(form, output_format)
        tally = _translate_all(engine, source, output, read_line, format_line)
    tally.report()
    num_failed = tally.num_failed if document is None else document.num_failed
    return STATUS_SOME_LINES_FAILED if num_failed else 0


def _refuse_on_terminal(form: str, output: Path | None) -> None:
    """Raise WrongUsageError if ``output`` is a terminal that cannot show the format ``form``."""
    if form not in ARCHIVES or output not in {None, STANDARD_OUTPUT}:
        return
    if StandardOutput().reader == "terminal":
        raise WrongUsageError(
            f"the translation is {form}, which a terminal cannot show; add --output FILE.{form}."
        )


def _engine(
    model: Path,
    counts: tuple[str, int | None, int | None, int | None],
    options: dict[str, Any],
    source: BinaryIO | ShardText,
) -> AbstractContextManager[processes.TextTranslator]:
    """Return the engine of the processes that ``counts`` ask for; without any, of those that pay.

    The counts are the device, the threads, the workers and the devices.
    """
    device, threads, workers, devices = counts
    limits = (workers, devices, threads or options["max_tokens_per_device"])
    if limits == (None, None, None):
        chosen = processes.processes_that_pay(device, processes.bytes_of(source))
    else:
        chosen = processes.choose_processes(device, workers or 1, devices)
    return processes.opened_engine(model, chosen, device, threads, options)


def _translate_all(
    engine: processes.TextTranslator,
    source: BinaryIO | ShardText,
    output: opened_texts.Stream | ResumableOutput,
    read_line: formats.Reader,
    format_line: formats.Formatter,
) -> Tally:
    """Write the translation of each line of ``source``; return what happened to the lines."""
    unit = getattr(source, "unit", "line")
    begun = output.record
    tally = Tally(_num_lines_before(source) + begun.num_lines, begun.num_failed, unit)
    with logs.progress(
        "Translating",
        f"{unit}s",
        initial=begun.num_lines,
        hidden=source.isatty() or output.reader == "terminal",
        in_lines=output.reader == "pipe",
    ) as counter:
        lines = line_windows.windows(
            source,
            is_for_a_reader=output.reader != "none",
            most=line_windows.MOST_LINES["cuda" if engine.on_gpu else "cpu"],
            is_steady=output.is_file,
            expect=counter.expect,
        )
        lines = output.without_finished(lines)
        for window, outputs in _translated(engine, lines, read_line, format_line, tally):
            output.add(window, "".join(outputs).encode(), tally.num_failed)
            counter.advance(len(outputs))
    return tally


NO_PAIR = (None, None, None)


def _asked(options: TranslatorOptions) -> tuple[str | None, str | None, str | None]:
    return options.tag, options.source_language, options.target_language


def _with_languages(
    path: Path, options: TranslatorOptions, form: str
) -> tuple[Path, tuple[str, str]]:
    """Return the directory of the model that ``path`` means, and the languages of the text.

    Raises UserError if the model has no such pair, if a document needs a tag, or if the source
    language has no effect: the model has no pairs, and no line is split.
    """
    # These imports take time, and few texts need them here.
    from nmt_cli.recipe.model_settings import languages_of
    from nmt_cli.saved.model_directory import use_model
    from nmt_cli.translating.encoding.language_tags import for_pair, why_a_tag_is_needed

    found, settings = use_model(path, lambda model: (model.path, model.settings))
    is_split = options.split_sentences
    is_split = settings.is_of_single_sentences if is_split is None else is_split
    may_split = is_split or form == "jsonl"  # a line may ask for it
    if options.source_language is not None and not (settings.pairs or may_split):
        raise WrongUsageError(
            "--source-language has an effect only with --split-sentences, because this model names "
            "no pairs of languages; add --split-sentences or omit it."
        )
    of_pair, tag = for_pair(settings, *_asked(options))
    if tag is None and form in ENDINGS and settings.pairs and all(p.tag for p in settings.pairs):
        raise WrongUsageError(
            f"the document cannot be translated: {why_a_tag_is_needed(settings.pairs)}."
        )
    return found, languages_of(of_pair.text)


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
        from nmt_cli.commands.lines.document_text import read_document_text  # it takes time

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
    with opened_texts.opened_text(path, shard) as text:
        if input_format == "text" and (problem := why_whole_rows(path)) is not None:
            logs.warning(problem)
        yield text


def _num_lines_before(source: BinaryIO | ShardText) -> int:
    return source.num_lines_before if isinstance(source, ShardText) else 0


def _translated(
    engine: processes.TextTranslator,
    lines: Iterator[list[Line]],
    read_line: formats.Reader,
    format_line: formats.Formatter,
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
