"""CTranslate2 with an exported folder, to verify it."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import TAG
from nmt_cli.files.file_names import SOURCE_SENTENCEPIECE
from nmt_cli.interchange.ctranslate2.exporter import EXPORTED_SENTENCEPIECE, renamed_pieces
from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.messages.extras import importing

NO_LIMIT = 0


class CTranslate2Engine:
    """An ``Engine`` that reads everything from the exported folder.

    Raises UserError if ctranslate2 is not installed.
    """

    def __init__(self, folder: Path, model: ExportedModel) -> None:
        with importing("ctranslate2", "exports to CTranslate2 are verified"):
            import ctranslate2
        # No warning where this CPU computes in another type than the weights have: ``name`` has it.
        ctranslate2.set_log_level(logging.ERROR)
        self._translator: Any = ctranslate2.Translator(
            str(folder), device="cpu", inter_threads=1, intra_threads=torch.get_num_threads()
        )
        computed_in = self._translator.compute_type
        self.name = f"ctranslate2 {ctranslate2.__version__} in {computed_in}"
        self._source_pieces = _vocabulary(folder, "source")
        self._target_pieces = _vocabulary(folder, "target")
        self._source_ids, self._target_ids = (
            {piece: number for number, piece in enumerate(pieces)}
            for pieces in (self._source_pieces, self._target_pieces)
        )
        self._model = model
        self._split = _splitter(folder, model)

    def source_ids(self, text: str) -> list[int]:
        """Return the ids of the pieces of a normalized text, cut by what is in the folder."""
        return [self._source_ids.get(piece, self._model.unk_id) for piece in self._split(text)]

    def token_scores(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """Return the log-probability of each token of ``target``, and at last of ``</s>``."""
        (result,) = self._translator.score_batch(
            [[self._source_pieces[token] for token in source]],
            [[self._target_pieces[token] for token in target]],
            max_input_length=NO_LIMIT,
        )
        return list(result.log_probs)

    def greedy(self, source: Sequence[int], longest: int) -> list[int]:
        """Return the tokens that follow each other with the highest probability."""
        never = [[self._target_pieces[self._model.start_id]]]
        if self._model.start_id == self._model.eos_id:
            never = []
        (result,) = self._translator.translate_batch(
            [[self._source_pieces[token] for token in source]],
            beam_size=1,
            max_input_length=NO_LIMIT,
            max_decoding_length=longest,
            min_decoding_length=0,
            suppress_sequences=never,
        )
        return [self._target_ids[piece] for piece in result.hypotheses[0]]


def _vocabulary(folder: Path, side: str) -> list[str]:
    path = folder / f"{side}_vocabulary.json"
    pieces: list[str] = json.loads(
        (path if path.exists() else folder / "shared_vocabulary.json").read_bytes()
    )
    return pieces


def _splitter(folder: Path, model: ExportedModel) -> Callable[[str], list[str]]:
    """Return what cuts a normalized text into the pieces of the exported vocabulary."""
    text = model.settings.text
    if text.type == "whitespace":
        renamed = renamed_pieces(model.source_pieces)
        return lambda line: [renamed.get(piece, piece) for piece in line.split()]
    import sentencepiece

    name = SOURCE_SENTENCEPIECE if model.has_two_spms else EXPORTED_SENTENCEPIECE
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / name))

    def pieces_of(line: str) -> list[str]:
        tag = TAG.match(line) if model.has_two_spms else None
        pieces: list[str] = processor.encode(line[tag.end() :] if tag else line, out_type=str)
        return [tag[1], *pieces] if tag else pieces

    return pieces_of
