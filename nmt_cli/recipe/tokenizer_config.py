"""The section of a recipe on pieces."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from nmt_cli.messages.figures import counted
from nmt_cli.recipe.values import (
    DECLARED,
    Count,
    DataPath,
    Number,
    Problem,
    Section,
    Word,
)

# Byte fallback needs 256 pieces; <unk>, <s> and </s> are three more.
RESERVED_PIECES = 259
RESERVED_NAMES = ("<unk>", "<s>", "</s>")
ONLY_FOR_TRAINING = {"sampling"}  # keys of tokenizer that do not change what preprocess writes


class TokenizerConfig(Section):
    """How text becomes pieces; source and target share one vocabulary."""

    alternatives = (frozenset({"model", "vocabulary_size"}),)

    type: Literal["sentencepiece", "whitespace"] = Field(
        default="sentencepiece",
        description="sentencepiece cuts raw text; whitespace takes text already in pieces.",
    )
    algorithm: Literal["bpe", "unigram"] = Field(
        default="bpe", description="How SentencePiece is trained."
    )
    vocabulary_size: Annotated[Count, Field(ge=4, le=1_000_000)] | None = Field(
        default=None,
        description="Pieces in the vocabulary. Needed unless model names a file; for whitespace "
        "text an optional limit to the most frequent.",
    )
    model: DataPath | None = Field(
        default=None,
        description="An existing SentencePiece file to use instead of training one; beside "
        "model.from, the folder named there.",
    )
    joiner: Word | None = Field(
        default=None,
        description="Whitespace only: mark at the end of a piece whose word continues in the next "
        'piece ("@@"); translate removes it.',
    )
    user_defined_symbols: tuple[Word, ...] = Field(
        default=(),
        max_length=100_000,
        description="Texts that are one piece each, such as tree brackets or language tags.",
    )
    character_coverage: Annotated[Number, Field(ge=0.98, le=1)] = Field(
        default=1.0, description="Share of the training characters that get a piece of their own."
    )
    training_sentences: Annotated[Count, Field(ge=1, le=10**9)] = Field(
        default=10_000_000,
        description="At most this many sampled sentences train the SentencePiece model.",
    )
    sampling: Annotated[Annotated[Number, Field(gt=0, lt=1)] | None, DECLARED] = Field(
        default=None,
        description="SentencePiece only: cut the training text into other pieces in each epoch, "
        "drawn by the seed. With bpe, the probability that a merge is left out (BPE dropout; "
        "usual is 0.1). With unigram, alpha, the exponent of the probabilities of all ways to cut "
        "a text (usual is 0.1 to 0.5; less is more random). Null always cuts a text in one way.",
    )

    def problems(self) -> Iterator[Problem]:
        """Yield settings that do not fit the type of tokenizer, and wrong sizes and symbols."""
        if self.type == "whitespace" and self.sampling is not None:
            yield Problem("sampling", "needs type sentencepiece, but type is whitespace", "type")
        if self.type == "sentencepiece":
            if self.joiner is not None:
                yield Problem("joiner", "needs type whitespace, but type is sentencepiece", "type")
            yield from self._problems_of_size()
        yield from self._problems_of_symbols()

    def _problems_of_size(self) -> Iterator[Problem]:
        size, symbols = self.vocabulary_size, len(self.user_defined_symbols)
        least = RESERVED_PIECES + symbols + 1
        text = ""
        if self.model is None and size is None:
            text = "is missing; say how many pieces, such as 32000"
        elif self.model is not None and size is not None:
            text = "must be null beside model, whose file decides the size"
        elif size is not None and size < least:
            text = (
                f"must be at least {least:,} (256 bytes, 3 marks, {counted(symbols, 'symbol')} "
                f"and a piece), but is {size:,}"
            )
        if text:
            yield Problem("vocabulary_size", text, "model")

    def _problems_of_symbols(self) -> Iterator[Problem]:
        seen: set[str] = set()
        for index, symbol in enumerate(self.user_defined_symbols):
            key = f"user_defined_symbols.{index}"
            if symbol in RESERVED_NAMES:
                yield Problem(key, f"{symbol} is a mark of the model itself; choose another text")
            if symbol in seen:
                yield Problem(key, f"{symbol} is listed twice")
            seen.add(symbol)
