"""Files that are not lines of UTF-8 with a sentence in each, and the commands that convert them."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.files.text_files import is_read_again, open_text, other_encoding
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import command, unused_name

UNPACK = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
SAMPLE = 1 << 16  # bytes
GETTEXT = (b"\xde\x12\x04\x95", b"\x95\x04\x12\xde")  # of .mo, in both orders of bytes
TAR, TAR_PLACE = b"ustar", 257  # in the header of the first member
LEAST_ROWS = 2  # a single line may hold a tab by chance
LEAST_TEXT = 0.5  # of the cells in a column of text; numbers and codes have few letters
# Keys of rows that are pairs of sentences, beside the codes of languages.
KEYS_OF_SIDES = (("source", "target"), ("src", "tgt"))
KEYS_OF_TEXT = frozenset({"text", "sentence", *KEYS_OF_SIDES[0], *KEYS_OF_SIDES[1]})
PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN_IN_YAML = re.compile(r"[A-Za-z_./][\w./-]*")
# An entity for white space, such as a line feed, becomes a space, so that lines stay lines.
UNESCAPE = (
    r'import html, re, sys; sys.stdout.writelines(re.sub("&#?\w+;", '
    r'lambda entity: html.unescape(entity[0]).strip() or " ", line) for line in sys.stdin)'
)
TRANSLATION = "translation"  # data sets of Hugging Face hold the pair in an object with this key


def wrong_lines(path: Path) -> str | None:
    """Return what is wrong with the encoding or the line ends of a file, and how to convert it.

    Archives of tar and catalogues of gettext have no lines at all. Returns None if nothing is
    wrong, and for pipes and files that cannot be read.
    """
    encoding = other_encoding(path) if is_read_again(path) else None
    if encoding is not None:
        return why_not_utf8(path, encoding)
    sample = _sample(path)
    if sample.startswith(GETTEXT):
        convert = command("msgunfmt", "-o", unused_name(path.with_suffix(".po")), path)
        return f"{path} is a compiled catalogue of gettext. Convert it to PO: {convert}"
    if sample[TAR_PLACE:].startswith(TAR):
        return f"{path} is a tar archive; unpack it: {command('tar', '-xf', path)}"
    if b"\n" not in sample and b"\r" in sample[:-1]:
        convert = r"tr '\r' '\n'"
        return (
            f"{path} has the line ends of old Macs (CR alone), so it is read as one line. "
            f"Convert it: {_converted(path, convert, 'lines')}"
        )
    return None


def why_not_utf8(text: Path | str, encoding: str) -> str:
    """Return that a file, or a text of this name, is in ``encoding``, and how to convert it."""
    convert = command("iconv", "-f", encoding, "-t", "UTF-8")
    if isinstance(text, Path):
        convert = _converted(text, convert, "utf8")
    return f"{text} is {encoding} text. Convert it to UTF-8: {convert}"


def how_to_unescape(path: Path) -> str:
    """Return the command that replaces the HTML entities in the text ``path``."""
    return _converted(path, command("python3", "-X", "utf8", "-c", UNESCAPE), "unescaped")


def refuse_wrong_lines(path: Path) -> None:
    """Raise UserError if the encoding or the line ends of ``path`` are wrong."""
    if (problem := wrong_lines(path)) is not None:
        raise UserError(problem)


def refuse_array(path: Path) -> None:
    """Raise UserError if a file of JSON is one array, and has no object in each line."""
    if _sample(path).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        new = command(unused_name(path.with_name(f"{path.name.partition('.')[0]}.jsonl")))
        convert = _piped(path, command("jq", "-c", ".[]"))
        raise UserError(
            f"{path} is a JSON array; write each of its objects into a line: {convert} > {new}"
        )


def _converted(path: Path, convert: str, kind: str) -> str:
    """Return the command that converts ``path`` into a new file, compressed as the old one."""
    new = command(unused_name(path.with_name(f"{kind}-{path.name}")))
    program = UNPACK.get(path.suffix)
    pack = f" | {command(program, '-c')}" if program else ""
    return f"{_piped(path, convert)}{pack} > {new}"


def _piped(path: Path, convert: str) -> str:
    """Return a command that passes the text of ``path`` to the command ``convert``."""
    if program := UNPACK.get(path.suffix):
        return f"{command(program, '-dc', path)} | {convert}"
    # These take no names of files.
    redirection = "< " if convert.startswith(("tr ", "python3 ")) else ""
    return f"{convert} {redirection}{command(path)}"


def _sample(path: Path) -> bytes:
    """Return the first bytes of the text of a plain file; none if it cannot be read."""
    try:
        if is_read_again(path):
            with open_text(path) as stream:
                return stream.read(SAMPLE)
    except UserError:
        pass  # the function that reads it next raises the error
    return b""


class Rows(NamedTuple):
    """A file whose lines are rows of a table or JSON objects, and where their texts are."""

    kind: str  # tsv or jsonl, the key of a recipe for it
    num_columns: int
    texts: list[str]  # numbers of columns or keys; at most two, the source first


def rows_in(path: Path, languages: tuple[str, str]) -> Rows | None:
    """Return what a file of rows holds; None if it holds one sentence per line.

    ``languages`` are those of the source and the target.
    """
    sample = _sample(path)
    lines = sample.split(b"\n")
    if len(sample) == SAMPLE:
        lines.pop()  # it may be cut
    rows = [line for line in lines if line.strip()]
    if not rows:
        return None
    if all(line.lstrip().startswith(b"{") for line in rows):
        return _json_rows(rows, languages)
    widths = {line.count(b"\t") for line in rows}
    if len(rows) < LEAST_ROWS or len(widths) > 1 or 0 in widths:
        return None
    cells = [line.decode(errors="replace").split("\t") for line in rows]
    if sum(any(map(str.strip, column)) for column in zip(*cells, strict=True)) < 2:
        return None  # the tabs indent text or are at its ends
    texts = [
        str(number)
        for number, column in enumerate(zip(*cells, strict=True), 1)
        if sum(any(map(str.isalpha, cell)) for cell in column) > LEAST_TEXT * len(cells)
    ]
    return Rows("tsv", len(cells[0]), texts[:2]) if texts else None


def _json_rows(rows: Sequence[bytes], languages: tuple[str, str]) -> Rows | None:
    found: Counter[str] = Counter()
    for row in rows:
        try:
            value = json.loads(row)
        except (ValueError, RecursionError):
            return None
        found.update(keys_of_text(value))
    known = {*KEYS_OF_TEXT, *languages, *(re.split("[-_]", code)[0] for code in languages)}
    texts = [key for key in found if key.rpartition(".")[2] in known]
    if not texts:
        return None  # other objects may be the text itself
    for pair in (languages, *KEYS_OF_SIDES):
        both = [key for name in pair for key in texts if key.rpartition(".")[2] == name]
        if len(both) > 1:
            texts = both
            break
    return Rows("jsonl", len(found), texts[:2])


def keys_of_text(value: Any) -> list[str]:
    """Return the keys whose values are texts, also those in the object ``translation``."""
    if not isinstance(value, dict):
        return []
    inner = value.get(TRANSLATION)
    below = [f"{TRANSLATION}.{key}" for key in keys_of_text(inner)]
    return [*(key for key, text in value.items() if isinstance(text, str)), *below]


def why_rows(path: Path, side: int, languages: tuple[str, str]) -> str | None:
    """Return what to do about a text file of one ``side`` (0 or 1) that is a file of rows.

    Returns None if it is not one.
    """
    rows = rows_in(path, languages)
    if rows is None:
        return None
    place = rows.texts[min(side, len(rows.texts) - 1)]
    if rows.kind == "tsv":
        found, take = f"{rows.num_columns:,} columns with tabs between them", "cut out a column"
        convert = command("cut", f"-f{place}")
    else:
        found, take = "JSON objects", "take out the value of a key"
        convert = command("jq", "-r", "".join(map(_jq_step, place.split("."))))
    new = _text_beside(path, languages[side])
    remedy = f"{take}: {_piped(path, convert)} > {command(new)}"
    if len(rows.texts) > 1:
        columns = ", ".join(map(in_yaml, rows.texts))
        corpus = f"{{{rows.kind}: {in_yaml(str(path))}, columns: [{columns}]}}"
        remedy = f"give the file as a corpus, {corpus}, or {remedy}"
    if rows.kind == "tsv":
        remedy += "; if the tabs are part of the text, replace them by spaces"
    return f"{path} holds {found}, not one sentence per line; {remedy}"


def why_whole_rows(path: Path) -> str | None:
    """Return that the lines of ``path`` are rows, and how to translate one of their texts.

    Returns None if they are none.
    """
    rows = rows_in(path, ("", ""))
    if rows is None:
        return None
    if rows.kind == "tsv":
        found = f"{rows.num_columns:,} columns with tabs between them, which are translated as one"
        convert = command("cut", f"-f{rows.texts[0]}")
    else:
        found = "JSON objects, and their keys are translated like text"
        convert = command("jq", "-r", "".join(map(_jq_step, rows.texts[0].split("."))))
    remedy = (
        f"to translate only one text of each line: {_piped(path, convert)} | nmt-cli translate ..."
    )
    if rows.texts[0] == "text":
        remedy = "to translate only the values of text, add --input-format jsonl"
    return f"{path} holds {found}; {remedy}"


def _jq_step(key: str) -> str:
    return f".{key if PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)}"


def _text_beside(path: Path, language: str) -> Path:
    """Return an unused path for the text of one language out of ``path``."""
    name = path.stem if path.suffix in UNPACK else path.name
    stem = Path(name).stem.removesuffix(f".{language}")
    return unused_name(path.with_name(f"{stem}.{language}"))


def in_yaml(text: str) -> str:
    """Return ``text`` as an item of a list in YAML."""
    is_plain = PLAIN_IN_YAML.fullmatch(text) or text.isdecimal()
    return text if is_plain else json.dumps(text, ensure_ascii=False)
