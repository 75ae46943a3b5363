"""A translation memory: segments with translations, which answers equal ones without the model."""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.corpus.text.memories import pairs_in
from nmt_cli.files.atomic_files import sha256
from nmt_cli.files.lines import is_blank
from nmt_cli.files.text_files import open_text
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.interface.translation import EQUAL, MemoryMatch

LONGEST_COMPARED = 2000  # characters; a longer segment takes long to compare and is hardly similar


class TranslationMemory:
    """The pairs of TMX, XLIFF or PO files, and their lines; of equal sources, the last one counts.

    Segments are equal if they differ in white space and Unicode composition (NFC) alone.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        languages: tuple[str, str] | None = None,
        similar_from: int | None = None,
    ) -> None:
        """``languages`` are those of the pairs; None: those of the model.

        Pairs that are not equal are only found with a similarity ``similar_from`` so many per cent.
        Raises UserError if a file cannot be read.
        """
        self._paths, self._languages, self._similar_from = paths, languages, similar_from
        self._hashes = [_sha256(path) for path in paths]
        self._pairs = dict[str, tuple[str, str]]()  # by what is compared of the source
        self._by_length, self._lengths = list[str](), list[int]()

    def __str__(self) -> str:
        """Return checksums and options, which show whether the memory has changed."""
        shown = [f"sha256 {digest[:12]}" for digest in self._hashes]
        return " ".join([*shown, *(self._languages or ()), str(self._similar_from or "")]).strip()

    def for_model(self, languages: tuple[str, str]) -> TranslationMemory:
        """Return the memory with the pairs of its files in its own or these ``languages``.

        Raises UserError if a file is damaged or has no such pair with text, or if no language is
        known.
        """
        chosen = self._languages or languages
        if UNKNOWN_LANGUAGE in chosen:
            raise UserError(
                "--memory: this model does not name its languages; give those of the memory with "
                "--memory-languages."
            )
        opened = TranslationMemory(self._paths, languages=chosen, similar_from=self._similar_from)
        of_lines = dict[str, tuple[str, str]]()
        for path in self._paths:
            found = dict[str, tuple[str, str]]()
            with open_text(path) as stream:
                for pair in pairs_in(path, stream, chosen):
                    found |= _by_key([pair])
                    of_lines |= _by_key(_lines_of(*pair))
            if not found:
                raise UserError(f"every source or target in {path} is empty; give another file.")
            opened._pairs |= found
        opened._pairs = of_lines | opened._pairs
        opened._by_length = sorted(opened._pairs, key=len)
        opened._lengths = list(map(len, opened._by_length))
        return opened

    def equal(self, segment: str) -> MemoryMatch | None:
        """Return the pair whose source is ``segment``, if there is one."""
        pair = self._pairs.get(compared(segment))
        return None if pair is None else MemoryMatch(*pair, EQUAL)

    def similar(self, segment: str) -> MemoryMatch | None:
        """Return the pair with the most similar source, if it is similar enough.

        The similarity is 1 - d / n, with the edit distance d and the characters n of the longer.
        """
        key = compared(segment)
        if self._similar_from is None or not 0 < len(key) <= LONGEST_COMPARED:
            return None
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein

        least = self._similar_from / 100
        # The distance is at least the difference of the lengths.
        begin = bisect_left(self._lengths, math.floor(least * len(key)))
        end = bisect_right(self._lengths, math.ceil(len(key) / least))
        found: Any = process.extractOne(
            key,
            self._by_length[begin:end],
            processor=None,
            scorer=Levenshtein.normalized_similarity,
            score_cutoff=least,
        )
        if found is None:
            return None
        return MemoryMatch(*self._pairs[found[0]], min(EQUAL - 1, int(100 * found[1])))


def compared(text: str) -> str:
    """Return what two texts have in common if they are equal for a memory."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _by_key(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return pairs that have text by what is compared of their sources."""
    return {
        key: (source.strip(), target.strip())
        for source, target in pairs
        if (key := compared(source)) and target.strip()
    }


def _lines_of(source: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a pair, which are segments of PO, if both texts have as many."""
    sources, targets = source.split("\n"), target.split("\n")
    if "\n" in source and list(map(is_blank, sources)) == list(map(is_blank, targets)):
        yield from zip(sources, targets, strict=True)


def _sha256(path: Path) -> str:
    with open_text(path):  # raises an error that names the file
        return sha256(path)
