"""SentencePiece: any text can be encoded, with byte fallback losslessly, never as a control id."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import sentencepiece

from nmt_cli.corpus.tokenizers.normalization import Normalizer, Side
from nmt_cli.corpus.tokenizers.subword_sampling import ALGORITHMS, Piece, SubwordSampling
from nmt_cli.files.file_names import SENTENCEPIECE_MODEL
from nmt_cli.files.text_files import read_content
from nmt_cli.launch.python_process import python_command
from nmt_cli.messages.errors import DamagedError, NoTextError, UserError

if TYPE_CHECKING:
    from nmt_cli.recipe.sections.tokenizer import TokenizerConfig

# Longer lines are cut for training: SentencePiece would skip them and report that only in its log.
LONGEST_TRAINING_TEXT = 1000  # characters, at most 4 bytes each; SentencePiece takes 4192 bytes
# The same on every machine: it is stored in the model, and it affects how sums are rounded.
NUM_THREADS = 16
MANY_SENTENCES = 5_000_000  # above this, counts of unigram training may exceed 32 bits
# SentencePiece marks unknown characters with this one, and skips training lines that contain it.
SKIPPED_BY_TRAINER = "\u2585"
SPACE_IN_PIECES = "\u2581"
BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")  # for one byte of a character
LONGEST_PIECE = 16  # characters; SentencePiece's default
TOO_LARGE = re.compile(r"Vocabulary size too high.*<= (\d+)")
TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")
REPEATED = re.compile(r"INTERNAL: (.*) is already defined")
TRIAL_SECONDS = 120
TRIAL = """
import sys, sentencepiece
processor = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
for text in ("", "a word, ein Wort", "\\u4e2d\\u6587 \\0 \\U0001f600", "x" * 10000):
    processor.decode(processor.encode(text))
processor.id_to_piece(list(range(processor.get_piece_size())))
"""
PieceType = TypeVar("PieceType", int, str)


class SentencePieceTokenizer:
    """A trained model, and the normalization that is applied before it.

    Raises DamagedError if ``model`` cannot be loaded, UserError if it has no ``</s>``. Errors call
    the model ``name``.
    """

    source_size: int | None = None

    def __init__(self, model: bytes, normalizer: Normalizer, name: str) -> None:
        self._model, self._normalizer = model, normalizer
        self._processor = load_processor(model, name)
        self.size = int(self._processor.get_piece_size())
        self.unk_id = int(self._processor.unk_id())
        self.eos_id = int(self._processor.eos_id())
        bos_id = int(self._processor.bos_id())
        self.bos_id = bos_id if bos_id >= 0 else self.eos_id
        if self.eos_id < 0:
            raise UserError(f"{name} has no piece for the end of a sentence (</s>); train another.")

    def encode(self, text: str, side: Side = "source") -> list[int]:
        """Return the ids of the pieces of ``text``, without marks of start and end."""
        return self.encode_batch([text], side)[0]

    def encode_batch(self, texts: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Return the ids of the pieces of each text, in a third of the time of one by one."""
        return self.encode_normalized(self.normalized(texts, side), side)

    def normalized(self, texts: Sequence[str], side: Side) -> list[str]:
        """Return the texts as they are cut into pieces."""
        return [self._normalizer(text, side) for text in texts]

    def encode_normalized(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Return the ids of the pieces of each text, which is ``normalized``."""
        del side
        return encoded_texts(self._processor, texts, int)

    def subword_sampling(self, strength: float, name: str) -> SubwordSampling:
        """Return what draws the pieces of plain text, with the strength of the randomness.

        Control ids, bytes, ``<unk>``, unused pieces and user-defined symbols are no plain text.
        Raises UserError, which calls the model ``name``, if nothing can draw pieces of its type.
        """
        kind = ALGORITHMS.get(algorithm_of(self._model))
        if kind is None:
            raise UserError(
                f"{name} is neither a bpe nor a unigram model, and tokenizer.sampling needs one of "
                "them; give another model, or tokenizer.sampling: null."
            )
        processor, symbols = self._processor, symbol_ids(self._model)
        others = (
            processor.is_control,
            processor.is_byte,
            processor.is_unknown,
            processor.is_unused,
        )
        pieces = {
            processor.id_to_piece(i): Piece(i, processor.get_score(i))
            for i in range(self.size)
            if i not in symbols and not any(is_other(i) for is_other in others)
        }
        return kind(pieces, strength)

    def decode(
        self, ids: Sequence[int], side: Side = "target", *, keep_pieces: bool = False
    ) -> str:
        """Return the text of ``ids``; it may contain any character, even a line feed.

        Raises NoTextError if an id has no text.
        """
        del side
        if keep_pieces:
            return " ".join(self.pieces(ids))
        try:
            return self._processor.decode(list(map(int, ids)))
        except (IndexError, UnicodeDecodeError):
            raise NoTextError(ids, self.size) from None

    def pieces(self, ids: Sequence[int], side: Side = "target") -> list[str]:
        """Return the pieces that ``ids`` stand for. Raises NoTextError if an id has none."""
        del side
        try:
            return self._processor.id_to_piece(list(map(int, ids)))
        except (IndexError, UnicodeDecodeError):
            raise NoTextError(ids, self.size) from None

    def save(self, directory: Path) -> None:
        """Write ``tokenizer.model``."""
        (directory / SENTENCEPIECE_MODEL).write_bytes(self._model)


def piece_of_word(word: str) -> str:
    """Return the piece that stands for a whole word after a space."""
    return SPACE_IN_PIECES + word


def read_model(path: Path) -> bytes:
    """Return the bytes of a model file. Raises UserError if it cannot be read or is too large."""
    return read_content(path, "; is it a tokenizer?")


def existing_tokenizer(
    config: TokenizerConfig, normalizer: Normalizer, path: Path
) -> SentencePieceTokenizer:
    """Return the tokenizer of a file from elsewhere, after trying it out in another process.

    Raises UserError if the file cannot be read, lacks a piece that the recipe declares or cannot
    sample as the recipe asks for, and DamagedError if it is not a usable model.
    """
    tokenizer = SentencePieceTokenizer(read_usable_model(path), normalizer, str(path))
    if config.sampling is not None:
        tokenizer.subword_sampling(config.sampling, str(path))
    known = set(tokenizer.pieces(range(tokenizer.size)))
    for symbol in config.user_defined_symbols:
        if symbol not in known:
            raise UserError(
                f"{path} has no piece {symbol}, which tokenizer.user_defined_symbols names; "
                "remove it there or train a model with it."
            )
    return tokenizer


def read_usable_model(path: Path) -> bytes:
    """Return the bytes of a model file from elsewhere, after trying it out in another process.

    Raises UserError if the file cannot be read, DamagedError if it is not a usable model.
    """
    import subprocess  # for models of other programs only

    model, command = read_model(path), python_command(TRIAL, str(path))
    try:  # a malicious model can crash its process
        subprocess.run(command, capture_output=True, check=True, timeout=TRIAL_SECONDS)
    except subprocess.SubprocessError:
        raise _damaged(str(path)) from None
    return model


def train_model(
    sentences: Iterable[str], config: TokenizerConfig, num_sentences: int, seed: int
) -> bytes:
    """Return the bytes of a model trained on ``sentences``; equal input gives equal bytes.

    Raises UserError if SentencePiece cannot train on this text with this recipe.
    """
    reader, model = _TrainingText(sentences), io.BytesIO()
    sentencepiece.set_random_generator_seed(seed % 2**32)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(reader),
            model_writer=model,
            model_type=config.algorithm,
            vocab_size=config.vocabulary_size,
            character_coverage=config.character_coverage,
            user_defined_symbols=list(config.user_defined_symbols),
            byte_fallback=config.byte_fallback,
            split_digits=config.split_digits,
            # Normalizer ran before; SentencePiece's default, NFKC, would change the target text.
            normalization_rule_name="identity",
            unk_id=0,
            bos_id=1,
            eos_id=2,
            pad_id=-1,
            num_threads=NUM_THREADS,
            train_extremely_large_corpus=(
                config.algorithm == "unigram" and num_sentences > MANY_SENTENCES
            ),
            minloglevel=2,
        )
    except RuntimeError as error:
        if reader.error is not None:
            raise reader.error from None
        raise _in_human_words(error, config) from None
    return model.getvalue()


def most_pieces(sentences: Iterable[str], config: TokenizerConfig) -> int | None:
    """Return a number of pieces that no model trained on ``sentences`` can exceed.

    Returns None as soon as it is seen that ``config.vocabulary_size`` does not exceed it.
    """
    words, characters = set[str](), {SPACE_IN_PIECES}
    most = config.num_without_text
    for text in _TrainingText(sentences):
        for word in text.split():
            if word in words:
                continue
            words.add(word)
            characters.update(word)
            length = len(SPACE_IN_PIECES + word)
            if config.algorithm == "bpe":
                # The neighbours in a word, and two new pairs of neighbours after each merge.
                most += 3 * (length - 1)
            else:  # all parts of the word
                most += sum(length - part + 1 for part in range(1, min(length, LONGEST_PIECE) + 1))
        if most + len(characters) >= (config.vocabulary_size or 0):
            return None
    return most + len(characters)


class _TrainingText:
    """Yields text to the C++ trainer and keeps the error that stopped it; the trainer loses it."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._sentences = sentences
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for sentence in self._sentences:
                text = spaced(sentence.replace(SKIPPED_BY_TRAINER, " "))
                for start in range(0, len(text), LONGEST_TRAINING_TEXT):
                    yield text[start : start + LONGEST_TRAINING_TEXT]
        except BaseException as error:  # also a signal's, which C++ would turn into a message
            self.error = error
            raise


def spaced(text: str) -> str:
    """Return ``text`` with each run of white space as one space: pieces have no other kind."""
    if text.isprintable() and SPACE_IN_PIECES not in text and "  " not in text:
        return text.strip(" ")  # twice as fast; the space is the only printable white space
    return " ".join(text.replace(SPACE_IN_PIECES, " ").split())


def encoded_texts(
    processor: sentencepiece.SentencePieceProcessor, texts: Sequence[str], out_type: type[PieceType]
) -> list[list[PieceType]]:
    """Return the pieces of each text: their ids (int), or the pieces themselves (str)."""
    if len(texts) == 1:  # for a list it starts a thread, which takes ten times as long
        return [processor.encode(spaced(texts[0]), out_type=out_type)]
    return processor.encode(list(map(spaced, texts)), out_type=out_type, num_threads=1)


def load_processor(model: bytes, name: str) -> sentencepiece.SentencePieceProcessor:
    """Return SentencePiece with ``model``. Raises DamagedError, which calls the model ``name``."""
    try:
        processor = sentencepiece.SentencePieceProcessor()
        if not model or not processor.load_from_serialized_proto(model):
            raise _damaged(name)
    except (RuntimeError, UnicodeDecodeError):  # the latter if the message quotes damaged bytes
        raise _damaged(name) from None
    return processor


def _damaged(name: str) -> DamagedError:
    return DamagedError(f"{name} is not a SentencePiece model, or is damaged; get the file again.")


def _in_human_words(error: RuntimeError, config: TokenizerConfig) -> UserError:
    """Return the trainer's error in terms of the recipe."""
    text, size = str(error), config.vocabulary_size or 0
    if found := TOO_LARGE.search(text):
        return UserError(
            f"tokenizer.vocabulary_size {size:,} is more than this text allows; "
            f"the largest that works is {int(found[1]):,}."
        )
    if found := TOO_SMALL.search(text):
        return UserError(
            f"tokenizer.vocabulary_size {size:,} is too small for the characters of this text. "
            f"Raise it to {int(found[1]):,} or more, or lower tokenizer.character_coverage, so "
            "that rare characters get no piece."
        )
    if found := REPEATED.search(text):
        return UserError(
            f"tokenizer.user_defined_symbols: {found[1]} is a piece of every model already; "
            "remove it."
        )
    if "sentences_.empty()" in text or "all_chars_count" in text:
        return UserError("there is no text to train the tokenizer on; every line is blank.")
    reason = text.rpartition("] ")[2] or text
    return UserError(
        f"the tokenizer could not be trained: {reason.strip()} "
        "Check the tokenizer section of the recipe and the training text."
    )


# What SentencePiece's own interface does not return is read from the model itself. It is a message
# of protocol buffers, whose fields sentencepiece_model.proto defines; SentencePiece's own module
# for them needs the package protobuf, which nothing else here needs.
# Numbers of fields, and values:
PIECE_OF_MODEL, TRAINER_OF_MODEL = 1, 2
TYPE_OF_PIECE, ALGORITHM_OF_TRAINER = 3, 3
USER_DEFINED = 4
# Kinds of fields; those of the other kinds have a fixed size in bytes.
NUMBER, TEXT_OR_MESSAGE = 0, 2
FIXED_SIZES = {1: 8, 5: 4}


def symbol_ids(model: bytes) -> frozenset[int]:
    """Return the ids of the user-defined symbols of ``model``, which SentencePiece has loaded."""
    pieces = (value for field, value in _fields(model) if field == PIECE_OF_MODEL)
    return frozenset(
        number
        for number, piece in enumerate(pieces)
        if isinstance(piece, bytes) and (TYPE_OF_PIECE, USER_DEFINED) in _fields(piece)
    )


def algorithm_of(model: bytes) -> int:
    """Return the number of the algorithm of ``model``, which SentencePiece has loaded."""
    number: int | bytes = 1  # of a model that does not name it
    for field, trainer in _fields(model):
        if field == TRAINER_OF_MODEL and isinstance(trainer, bytes):
            number = dict(_fields(trainer)).get(ALGORITHM_OF_TRAINER, number)
    return int(number)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        field, kind = key >> 3, key & 7
        if kind == NUMBER:
            value, place = _number(message, place)
            yield field, value
            continue
        if kind == TEXT_OR_MESSAGE:
            size, place = _number(message, place)
        else:
            size = FIXED_SIZES[kind]
        yield field, message[place : place + size]
        place += size


def _number(message: bytes, place: int) -> tuple[int, int]:
    """Return the number at ``place``, 7 bits a byte from the lowest, and the place behind it."""
    number = shift = 0
    while message[place] & 0x80:
        number |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return number | message[place] << shift, place + 1
