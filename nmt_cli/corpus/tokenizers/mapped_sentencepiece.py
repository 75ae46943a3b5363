"""Two SentencePiece models, one for each language, and a vocabulary with the ids of their pieces.

Marian's models are of this kind, and those of recipes with ``tokenizer.shared: false``. The pieces
of a model that the vocabulary lacks become ``<unk>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from nmt_cli.corpus.tokenizers.normalization import Normalizer, Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import (
    encoded_texts,
    load_processor,
    read_model,
)
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, pieces_in
from nmt_cli.files import file_names
from nmt_cli.files.text_files import read_content
from nmt_cli.messages.errors import DamagedError, NoTextError, UserError

UNKNOWN, START, END = CONTROL
TAG = re.compile(r"\s*(>>[^<>\s]+<<)")  # of the target language, in front of the source

Ids = Mapping[str, int]


class MappedSentencePieceTokenizer:
    """The models, and the vocabulary that both languages share, or one for each of them.

    If the vocabulary has tags such as ``>>deu<<``, one in front of a source is one piece. Raises
    DamagedError if a model cannot be loaded, UserError if a vocabulary lacks a mark. Errors call
    the folder ``name``.
    """

    def __init__(
        self,
        models: Mapping[Side, bytes],
        ids: Ids,
        normalizer: Normalizer,
        name: str,
        source_ids: Ids | None = None,
    ) -> None:
        self._models, self._normalizer = models, normalizer
        self._processors = {
            side: load_processor(model, f"{name}: the model of the {side}")
            for side, model in models.items()
        }
        self._ids: dict[Side, Ids] = {"source": source_ids or ids, "target": ids}
        self._pieces = {side: _by_id(of_side, name) for side, of_side in self._ids.items()}
        self.size, self.source_size = len(ids), None if source_ids is None else len(source_ids)
        for mark in (UNKNOWN, END):
            places = {of_side.get(mark) for of_side in self._ids.values()}
            if len(places) > 1 or None in places:
                text = f"has no piece {mark}, or not at one place in both languages"
                raise UserError(f"the vocabulary of {name} {text}.")
        self._has_tags = any(TAG.fullmatch(piece) for piece in self._ids["source"])
        self.unk_id, self.eos_id = ids[UNKNOWN], ids[END]
        self.bos_id = ids.get(START, self.eos_id)

    @classmethod
    def of_models(
        cls, models: Mapping[Side, bytes], normalizer: Normalizer, name: str
    ) -> MappedSentencePieceTokenizer:
        """Return a tokenizer whose vocabularies are those of the models."""
        ids = {}
        for side, model in models.items():
            processor = load_processor(model, f"{name}: the model of the {side}")
            pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
            ids[side] = {piece: token for token, piece in enumerate(pieces)}
        return cls(models, ids["target"], normalizer, name, ids["source"])

    def encode(self, text: str, side: Side = "source") -> list[int]:
        """Return the ids of the pieces of ``text``, without marks of start and end."""
        return self.encode_batch([text], side)[0]

    def encode_batch(self, texts: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Return the ids of the pieces of each text, in less time than one by one."""
        return self.encode_normalized(self.normalized(texts, side), side)

    def normalized(self, texts: Sequence[str], side: Side) -> list[str]:
        """Return the texts as they are cut into pieces; tags stay as they are."""
        ends = [0 if tag is None else tag.end() for tag in self._tags(texts, side)]
        return [
            text[:end] + self._normalizer(text[end:], side)
            for text, end in zip(texts, ends, strict=True)
        ]

    def encode_normalized(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Return the ids of the pieces of each text, which is ``normalized``."""
        tags = self._tags(texts, side)
        rests = [text[tag.end() if tag else 0 :] for text, tag in zip(texts, tags, strict=True)]
        encoded = encoded_texts(self._processors[side], rests, str)
        ids, unk_id = self._ids[side], self.unk_id
        return [
            [ids.get(piece, unk_id) for piece in ([tag[1], *pieces] if tag else pieces)]
            for tag, pieces in zip(tags, encoded, strict=True)
        ]

    def _tags(self, texts: Sequence[str], side: Side) -> list[re.Match[str] | None]:
        may_have_tags = self._has_tags and side == "source"
        return [TAG.match(text) if may_have_tags else None for text in texts]

    def decode(
        self, ids: Sequence[int], side: Side = "target", *, keep_pieces: bool = False
    ) -> str:
        """Return the text of ``ids``; it may contain any character, even a line feed.

        Raises NoTextError if an id has no text.
        """
        marks = (self.bos_id, self.eos_id)
        pieces = self.pieces([token for token in ids if token not in marks], side)
        if keep_pieces:
            return " ".join(pieces)
        try:
            return self._processors[side].decode(pieces)
        except UnicodeDecodeError:
            raise NoTextError(ids, self.size) from None

    def share_in_vocabulary(self, side: Side) -> float:
        """Return the share of a side's SentencePiece pieces that the vocabulary has."""
        processor, ids = self._processors[side], self._ids[side]
        pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
        return sum(piece in ids for piece in pieces) / len(pieces)

    def pieces(self, ids: Sequence[int], side: Side = "target") -> list[str]:
        """Return the pieces that ``ids`` stand for. Raises NoTextError if an id has none."""
        return pieces_in(self._pieces[side], ids)

    def save(self, directory: Path) -> None:
        """Write the two models, and the vocabulary of both languages or of each."""
        (directory / file_names.SOURCE_SENTENCEPIECE).write_bytes(self._models["source"])
        (directory / file_names.TARGET_SENTENCEPIECE).write_bytes(self._models["target"])
        names: dict[Side, str] = {"target": file_names.TARGET_PIECES}
        if self.source_size is not None:
            names["source"] = file_names.SOURCE_PIECES
        for side, name in names.items():
            ids = {piece: token for token, piece in enumerate(self._pieces[side])}
            text = json.dumps(ids, ensure_ascii=False, indent=0)
            (directory / name).write_bytes(text.encode())


def load_mapped(directory: Path, normalizer: Normalizer) -> MappedSentencePieceTokenizer:
    """Return the tokenizer that was saved in ``directory``.

    Raises UserError if a file cannot be read or the vocabulary lacks a mark, DamagedError if one is
    damaged.
    """
    models: dict[Side, bytes] = {
        "source": read_model(directory / file_names.SOURCE_SENTENCEPIECE),
        "target": read_model(directory / file_names.TARGET_SENTENCEPIECE),
    }
    of_source = directory / file_names.SOURCE_PIECES
    source_ids = read_ids(of_source) if of_source.exists() else None
    ids = read_ids(directory / file_names.TARGET_PIECES)
    return MappedSentencePieceTokenizer(models, ids, normalizer, str(directory), source_ids)


def read_ids(path: Path) -> dict[str, int]:
    """Return the ids of pieces from a JSON file ``{piece: id}``.

    Raises UserError if it cannot be read, DamagedError if it is something else.
    """
    content = read_content(path, "; is it a vocabulary?")
    try:
        ids = json.loads(content)
        "".join(ids).encode()  # a piece may hold half a character
    except (ValueError, TypeError, RecursionError):
        raise DamagedError(f"{path} is not a JSON file; it is damaged.") from None
    if not isinstance(ids, dict) or not all(type(token) is int for token in ids.values()):
        raise DamagedError(f"{path} is damaged: it is not a number for each piece.")
    return ids


def _by_id(ids: Ids, name: str) -> list[str]:
    """Return the pieces in the order of their ids."""
    if sorted(ids.values()) != list(range(len(ids))):
        raise DamagedError(
            f"{name}: the numbers of the pieces must be 0 to {len(ids) - 1:,}, each once; the "
            "vocabulary is damaged."
        )
    return sorted(ids, key=ids.__getitem__)
