"""A tokenizer for text that is already in pieces, with white space between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.corpus.tokenizers.normalization import Normalizer, Side
from nmt_cli.files.file_names import SOURCE_VOCABULARY, VOCABULARY
from nmt_cli.files.text_files import decoded, read_content
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, NoTextError, UserError

if TYPE_CHECKING:
    from nmt_cli.recipe.sections.tokenizer import TokenizerConfig

CONTROL = ("<unk>", "<s>", "</s>")  # ids 0, 1 and 2
MANY_PIECES = 100_000


class WhitespaceTokenizer:
    """A vocabulary as a list; the id of a piece is its index.

    A piece of the text that is spelt like a control piece has an id of its own. The source may have
    a vocabulary of its own, with the same control pieces.
    """

    unk_id, bos_id, eos_id = range(len(CONTROL))
    source_size: int | None

    def __init__(
        self,
        vocabulary: Sequence[str],
        normalizer: Normalizer,
        joiner: str | None,
        source_vocabulary: Sequence[str] | None = None,
    ) -> None:
        self._normalizer, self._joiner = normalizer, joiner
        self._vocabularies = {"source": source_vocabulary or vocabulary, "target": vocabulary}
        self.size, self.source_size = len(vocabulary), None
        ids = _ids_of(vocabulary)
        self._ids = {"source": ids, "target": ids}
        if source_vocabulary is not None:
            self.source_size = len(source_vocabulary)
            self._ids["source"] = _ids_of(source_vocabulary)

    def encode(self, text: str, side: Side = "source") -> list[int]:
        """Return the ids of the pieces of ``text``, without marks of start and end."""
        return self.encode_batch([text], side)[0]

    def split(self, text: str, side: Side = "source") -> list[str]:
        """Return the pieces of ``text``, also those that are not in the vocabulary."""
        return self._normalizer(text, side).split()

    def encode_batch(self, texts: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Return the ids of the pieces of each text, without marks of start and end."""
        return self.encode_normalized(self.normalized(texts, side), side)

    def normalized(self, texts: Sequence[str], side: Side) -> list[str]:
        """Return the texts as they are cut into pieces."""
        return [self._normalizer(text, side) for text in texts]

    def encode_normalized(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Return the ids of the pieces of each text, which is ``normalized``."""
        ids, unk_id = self._ids[side], self.unk_id
        return [[ids.get(piece, unk_id) for piece in text.split()] for text in texts]

    def decode(
        self, ids: Sequence[int], side: Side = "target", *, keep_pieces: bool = False
    ) -> str:
        """Return the pieces separated by spaces, or joined if the recipe gives a joiner.

        Raises NoTextError if an id has no text.
        """
        marks = (self.bos_id, self.eos_id)
        text = " ".join(self.pieces([token for token in ids if token not in marks], side))
        return text if keep_pieces else joined_pieces(text, self._joiner)

    def pieces(self, ids: Sequence[int], side: Side = "target") -> list[str]:
        """Return the pieces that ``ids`` stand for. Raises NoTextError if an id has none."""
        return pieces_in(self._vocabularies[side], ids)

    def save(self, directory: Path) -> None:
        """Write ``vocabulary.txt``: one piece per line, in the order of their ids.

        ``source_vocabulary.txt`` is the same for the source, if it has a vocabulary of its own.
        """
        names = {"target": VOCABULARY}
        if self.source_size is not None:
            names["source"] = SOURCE_VOCABULARY
        for side, name in names.items():
            text = "".join(f"{piece}\n" for piece in self._vocabularies[side])
            (directory / name).write_bytes(text.encode())


def pieces_in(vocabulary: Sequence[str], ids: Sequence[int]) -> list[str]:
    """Return the pieces that ``ids`` stand for. Raises NoTextError if an id has none."""
    try:
        return [vocabulary[token] for token in ids]
    except IndexError:
        raise NoTextError(ids, len(vocabulary)) from None


def joined_pieces(text: str, joiner: str | None) -> str:
    """Return ``text`` with its pieces joined at ``joiner``, or unchanged if that is None."""
    if joiner is None:
        return text
    pieces = " ".join(text.split())
    return f"{pieces} ".replace(f"{joiner} ", "").removesuffix(" ")


def _ids_of(vocabulary: Sequence[str]) -> dict[str, int]:
    first = len(CONTROL)
    return {piece: first + place for place, piece in enumerate(vocabulary[first:])}


def make_vocabulary(counts: Counter[str], config: TokenizerConfig) -> list[str]:
    """Return control pieces, declared symbols, then the pieces of the text, most frequent first.

    ``counts`` are those of the pieces; those of declared symbols are removed from it.

    Raises UserError if the text is blank, or if vocabulary_size leaves no room for pieces.
    """
    if not counts:
        raise UserError("there is no text to make a vocabulary of; every line is blank.")
    symbols, size = config.user_defined_symbols, config.vocabulary_size
    if size is not None and size <= len(CONTROL) + len(symbols):
        raise UserError(
            f"tokenizer.vocabulary_size {size:,} leaves no room for pieces beside {len(CONTROL)} "
            f"control pieces and {len(symbols):,} user_defined_symbols; raise it."
        )
    for symbol in symbols:
        counts.pop(symbol, None)
    ordered = sorted(counts, key=lambda piece: (-counts[piece], piece))
    vocabulary = [*CONTROL, *symbols, *ordered][:size]
    if len(vocabulary) > MANY_PIECES:
        logs.warning(
            f"the vocabulary has {len(vocabulary):,} pieces; if this text is not in pieces yet, "
            "use type sentencepiece, or set tokenizer.vocabulary_size."
        )
    return vocabulary


def read_vocabulary(path: Path) -> list[str]:
    """Return the pieces of a vocabulary file.

    Raises UserError if it cannot be read, DamagedError if it is not a vocabulary.
    """
    lines = decoded(read_content(path, "; is it a vocabulary?"), path).split("\n")
    pieces = lines[len(CONTROL) : -1]
    if lines[-1] or tuple(lines[: len(CONTROL)]) != CONTROL:
        raise DamagedError(
            f"{path} is damaged: a vocabulary has one piece per line, the first three {CONTROL}."
        )
    for number, piece in enumerate(pieces, start=len(CONTROL) + 1):
        if piece.split() != [piece]:
            raise DamagedError(f"{path} is damaged: line {number:,} is not one piece.")
    if len(set(pieces)) != len(pieces):
        raise DamagedError(f"{path} is damaged: it contains a piece twice.")
    return lines[:-1]
