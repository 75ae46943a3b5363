"""What messages propose: near names, commands to run, where a missing file may be."""

import glob
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, count, islice
from pathlib import Path

LONGEST_NAME = 40
LETTERS_PER_EDIT = 8  # names of three letters may have one edit, and one more per this many letters
SHORTEST_BEGINNING = 3
MOST_PROPOSED = 2  # if more names are equally near, none is proposed


def plain(name: str) -> str:
    """Return ``name`` without its dashes in front, in lower case, its words joined by ``_``."""
    return name.strip().lstrip("-").lower().replace("-", "_").replace(" ", "_")


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the one or two ``known`` names that ``name`` misspells, or else shortens; or none."""
    candidates = list(known)
    return slips(name, candidates) or parts(name, candidates)


def any_of(names: Sequence[str], conjunction: str = "or") -> str:
    """Return ``names`` as text: a, b or c."""
    *others, last = names
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def slips(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that differ in few letters: wrong, missing, additional or swapped."""
    return _best(name, known, _edits_if_few)


def parts(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that contain every word of ``name``, or else begin with ``name``."""
    return _best(name, known, _left_out)


def _best(name: str, known: Iterable[str], rank: Callable[[str, str], int | None]) -> list[str]:
    written = plain(name)
    if not written or len(written) > LONGEST_NAME:
        return []
    ranks = {candidate: rank(written, plain(candidate)) for candidate in known}
    least = min((found for found in ranks.values() if found is not None), default=None)
    best = [candidate for candidate, found in ranks.items() if found is not None and found == least]
    return best if len(best) <= MOST_PROPOSED else []


def _edits_if_few(written: str, known: str) -> int | None:
    most = 0 if len(written) < 3 else 1 + len(written) // LETTERS_PER_EDIT
    if abs(len(written) - len(known)) > most:
        return None
    edits = _edits(written, known)
    return edits if edits <= most else None


def _left_out(written: str, known: str) -> int | None:
    """Return how many words of ``known`` are missing; more if only its beginning was written."""
    words, all_words = set(written.split("_")), set(known.split("_"))
    if words <= all_words:
        return len(all_words - words)
    is_beginning = len(written) >= SHORTEST_BEGINNING and known.startswith(written)
    return LONGEST_NAME + len(known) - len(written) if is_beginning else None


def _edits(one: str, other: str) -> int:
    """Return the edit distance: letters to replace, insert, remove or swap with a neighbour.

    difflib's measure does not know swaps. By it, shwo is less like show (0.75) than bpe_dropout
    is like dropout (0.78), which is another name.
    """
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        two_before, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, two_before[j - 2] + 1)
            row.append(cost)
    return row[-1]


def as_argument(path: Path | str) -> str:
    """Return ``path`` so that no program reads it as an option: ``./-name`` for ``-name``."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def command(*words: str | Path) -> str:
    """Return the words of a command, quoted for a shell; a path among them is never an option."""
    return shlex.join(as_argument(word) if isinstance(word, Path) else word for word in words)


def unused_name(path: Path) -> Path:
    """Return ``path`` if it does not exist, else an unused path beside it."""
    others = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(each for each in chain([path], others) if not os.path.lexists(each))


FOLDER = Path("data")  # the folder of all data, as the shipped recipes name it
TREEBANK = "wsj"
NAMES = ("wmt14-en-de", "wmt14-en-fr", TREEBANK)
OPUS = "opus:"  # how names of its corpora begin: opus:CORPUS/en-de is data/opus/CORPUS/en-de
# Treebanks of shipped recipes that no command writes, and where they are.
ELSEWHERE = {
    FOLDER / "treebank/gum": "GUM is in https://github.com/amir-zeldes/gum, folder const/",
    FOLDER / "treebank/wsj-sample": "NLTK distributes this sample of the Penn Treebank: "
    "nltk.download('treebank'), folder combined/",
}


def data_get_hint(path: Path) -> str:
    """Return "; nmt-cli data get NAME writes it" if ``path`` is in its missing folder.

    For treebanks that no command writes, return where they are, otherwise "". Messages insert the
    text before their full stop.
    """
    if (place := ELSEWHERE.get(path.parent)) is not None and not path.parent.exists():
        return f"; {place}; write the trees one after the other into this file"
    name = path.parent.name
    if path.parent.parts[:-2] == (FOLDER / OPUS[:-1]).parts and not path.parent.exists():
        return f"; nmt-cli data get {OPUS}{path.parent.parent.name}/{name} writes it"
    if name not in NAMES or path.parent != FOLDER / name or path.parent.exists():
        return ""
    if name == TREEBANK:
        return (
            f"; nmt-cli data get {name} --treebank FOLDER writes it from your copy of the "
            "Penn Treebank"
        )
    return f"; nmt-cli data get {name} writes it"


MATCHES_SHOWN = 3
MATCHES_LOOKED_AT = 1000  # a pattern may match a whole disk


def missing_hint(path: Path) -> str:
    """Return "; ..." with advice on the missing ``path``, or "" if there is none.

    There is advice on ``~`` and ``*``, which only a shell expands, and on files of ``data get``.
    Messages insert the text before their full stop.
    """
    text = str(path)
    home = next((i for i, part in enumerate(path.parts) if part.startswith("~")), None)
    if home is not None:
        try:
            return f"; ~ is not expanded, write {Path(*path.parts[home:]).expanduser()}"
        except RuntimeError:  # ~user of a user who does not exist
            return "; ~ is not expanded, write the whole path"
    if "*" not in text:
        return data_get_hint(path)
    matches = sorted(islice(glob.iglob(text), MATCHES_LOOKED_AT))  # noqa: PTH207 - also absolute
    if not matches:
        return "; * is not expanded and nothing matches, write the name of each file"
    named = ", ".join(matches[:MATCHES_SHOWN])
    more = f" and {len(matches) - MATCHES_SHOWN:,} more" if len(matches) > MATCHES_SHOWN else ""
    return f"; * is not expanded, write the name of each file: {named}{more}"


def where_missing(path: Path) -> str:
    """Return "; ..." with the advice of ``missing_hint``, or what a relative path is relative to.

    Messages insert the text before their full stop.
    """
    hint = missing_hint(path)
    if hint or path.is_absolute():
        return hint
    with suppress(OSError):  # the current folder was removed
        return f"; the path is relative to {Path.cwd()}"
    return ""
