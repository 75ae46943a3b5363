"""The formats of documents, and the endings of their names.

A format is a function or class of a module of this folder that makes a ``Document`` of bytes, and
an entry in ``ENDINGS`` and in ``read_document``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

from nmt_cli.corpus.text.language_codes import spelled
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.launch.python_process import collecting_no_garbage
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE

if TYPE_CHECKING:
    from nmt_cli.documents.document import Document

ENDINGS: Mapping[str, tuple[str, ...]] = {
    "html": (".html", ".htm"),
    "xml": (".xml", ".xhtml", ".xhtm"),
    "markdown": (".md", ".markdown", ".mdx", ".qmd"),
    "docx": (".docx", ".docm", ".dotx", ".dotm"),
    "pptx": (".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm"),
    "odt": (".odt", ".ott"),
    "epub": (".epub",),
    "po": (".po", ".pot"),
    "xliff": (".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".mxliff"),
    "tmx": (".tmx",),
    "srt": (".srt",),
    "vtt": (".vtt",),
}
# The endings of documents that are not read, whose lines are no text, by one to save them with.
SAVED_AS: Mapping[str, tuple[str, ...]] = {
    ".docx": (".pdf", ".doc", ".rtf", ".xls", ".xlsx", ".ods", ".fods", ".pages", ".idml"),
    ".pptx": (".ppt", ".odp", ".fodp"),
    ".odt": (".fodt",),
    ".srt": (".ass", ".ssa", ".ttml", ".dfxp"),
    ".xlf": (".dita", ".resx", ".svg"),
}
NEED_LANGUAGES = ("tmx",)  # formats that may hold any number of languages
BILINGUAL = ("po", "xliff", "tmx")  # formats with the translations beside their sources
WITH_PLACEHOLDERS = (*BILINGUAL, "srt", "vtt")  # formats whose texts are protected
# Reading takes up to 150 times the memory of a text, and 700 times that of Markdown. Of archives,
# only the texts in them are limited further.
ARCHIVES = ("docx", "pptx", "odt", "epub")
NO_LINES = ("xml", *WITH_PLACEHOLDERS)  # formats other than archives that lines of text are not
MOST_BYTES, MOST_BYTES_OF = 1 << 27, {"markdown": 1 << 24, **dict.fromkeys(ARCHIVES, 1 << 30)}


def format_of(name: str | PurePath) -> str | None:
    """Return the format of a document of this name; None if its ending is that of no format."""
    ending = PurePath(name).suffix.lower()
    return next((each for each, endings in ENDINGS.items() if ending in endings), None)


def chosen_format(
    given: str | None, source: PurePath | None, output: PurePath | None, markup: str | None
) -> str:
    """Return the format of an input: as it is ``given``, or by the ending of ``source``.

    It is text if the lines are ``markup``. Raises WrongUsageError if ``output`` has the ending of
    another format, by which no program would open it.
    """
    is_by_name = given is None and markup is None
    form = given or "text"
    if is_by_name and source is not None:
        _refuse_unread(source)
        form = format_of(source) or "text"
    wanted = None if output is None else format_of(output)
    is_named_so = is_by_name or {form, wanted} != {"html", "xml"}  # XHTML is both
    name = "standard input" if source in {None, STANDARD_INPUT} else source
    if form not in ENDINGS and (wanted in ARCHIVES or (is_by_name and wanted in NO_LINES)):
        raise WrongUsageError(
            f"{name} has lines of text, and so has its translation, but the name {output} is "
            f"that of {wanted}; give another --output, or --input-format for a document."
        )
    if form in ENDINGS and wanted not in {None, form} and is_named_so:
        raise WrongUsageError(
            f"{name} is {form}, and so is its translation, but the name {output} is that of "
            f"{wanted}; give an --output that ends in {any_of(ENDINGS[form])}."
        )
    return form


def _refuse_unread(source: PurePath) -> None:
    """Raise WrongUsageError if ``source`` is a document of a format that is not read."""
    for ending, others in SAVED_AS.items():
        if source.suffix.lower() in others:
            raise WrongUsageError(
                f"{source}: documents of {source.suffix} cannot be translated; save it in another "
                f"format, such as {ending}, or add --input-format text if it has lines of text."
            )


def most_bytes(form: str) -> int:
    """Return how large a document of the format ``form`` may be."""
    return MOST_BYTES_OF.get(form, MOST_BYTES)


def read_document(
    data: bytes, form: str, *, again: bool = False, languages: tuple[str, str] | None = None
) -> Document:
    """Return the document of the format ``form`` in ``data``.

    With ``again``, also what it has translations of is translated. ``languages`` are those of the
    model; only formats of ``NEED_LANGUAGES`` need them, and others name the second one as theirs.
    Raises DocumentError if it is damaged.
    """
    # These imports take time; help texts and lines of text do not need them.
    from nmt_cli.documents import markdown, markup, office, po, subtitles, translators
    from nmt_cli.documents.document import DocumentError
    from nmt_cli.documents.layouts import ROOTS
    from nmt_cli.translating.interface.request import LineError

    if len(data) > (most := most_bytes(form)):
        raise DocumentError(f"it has more than {most >> 20:,} MB; divide it")
    language = spelled(languages[1]) if languages and languages[1] != UNKNOWN_LANGUAGE else None
    readers: Mapping[str, Callable[[bytes], Document]] = {
        "html": partial(markup.MarkupDocument, markup="html", language=language),
        "xml": partial(markup.MarkupDocument, markup="xml", language=language),
        "markdown": markdown.MarkdownDocument,
        **{each: partial(office.read_office, form=each, language=language) for each in ROOTS},
        "epub": partial(office.read_epub, language=language),
        "po": partial(po.PoDocument, again=again),
        "xliff": partial(translators.XliffDocument, again=again, languages=languages),
        "tmx": partial(translators.TmxDocument, again=again, languages=languages),
        "srt": partial(subtitles.SubtitleDocument, is_vtt=False, languages=languages),
        "vtt": partial(subtitles.SubtitleDocument, is_vtt=True),
    }
    try:
        with collecting_no_garbage():  # which would take a quarter of the time
            return readers[form](data)
    except LineError as error:
        raise DocumentError(str(error)) from None
