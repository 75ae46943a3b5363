"""The section of a recipe on pieces."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from nmt_cli.messages.figures import counted
from nmt_cli.recipe.problem import Problem
from nmt_cli.recipe.values import STEPS, TEXT, Count, DataPath, Flag, Number, Section, Word

NUM_BYTES = 256  # pieces of byte fallback
RESERVED_NAMES = ("<unk>", "<s>", "</s>")


class TokenizerConfig(Section):
    """How text becomes pieces, of one vocabulary or of one for each language."""

    alternatives = (frozenset({"model", "vocabulary_size"}),)

    type: Annotated[Literal["sentencepiece", "whitespace"], TEXT] = "sentencepiece"
    """sentencepiece cuts raw text; whitespace takes text already in pieces."""
    algorithm: Annotated[Literal["bpe", "unigram"], TEXT] = "bpe"
    """How SentencePiece is trained."""
    vocabulary_size: Annotated[Annotated[Count, Field(ge=4, le=1_000_000)] | None, TEXT] = None
    """Pieces in the vocabulary. Needed unless model names a file; for whitespace text an optional
    limit to the most frequent."""
    shared: Annotated[Flag, TEXT] = True
    """Whether source and target share one vocabulary; false makes one for each, of vocabulary_size
    pieces. The default of model.tied_embeddings is then decoder."""
    byte_fallback: Annotated[Flag, TEXT] = True
    """SentencePiece only: cut characters that are no piece into bytes, which are 256 of the pieces.
    Without it they become <unk>."""
    split_digits: Annotated[Flag, TEXT] = False
    """SentencePiece only: make each digit a piece of its own."""
    model: Annotated[DataPath | None, TEXT] = None
    """An existing SentencePiece file to use instead of training one, or the folder of a model whose
    tokenizer is used; beside model.from, the folder named there."""
    joiner: Annotated[Word | None, TEXT] = None
    """Whitespace only: mark at the end of a piece whose word continues in the next piece ("@@");
    translate removes it."""
    user_defined_symbols: Annotated[tuple[Word, ...], Field(max_length=100_000), TEXT] = ()
    """Texts that are one piece each, such as tree brackets or language tags."""
    character_coverage: Annotated[Number, Field(ge=0.98, le=1), TEXT] = 1.0
    """Share of the training characters that get a piece of their own."""
    training_sentences: Annotated[Count, Field(ge=1, le=10**9), TEXT] = 10_000_000
    """At most this many sampled sentences train the SentencePiece model, those of each corpus as
    often as training shows them, by the weights of data.train, data.mixing and data.stages."""
    sampling: Annotated[Annotated[Number, Field(gt=0, lt=1)] | None, STEPS] = None
    """SentencePiece only: cut the training text into other pieces in each epoch, drawn by the seed.
    With bpe, the probability that a merge is left out (BPE dropout; usual is 0.1). With unigram,
    alpha, the exponent of the probabilities of all ways to cut a text (usual is 0.1 to 0.5; less is
    more random). Null always cuts a text in one way."""

    @property
    def num_without_text(self) -> int:
        """The pieces of a SentencePiece model that are no part of its training text."""
        num_bytes = NUM_BYTES * self.byte_fallback
        return num_bytes + len(RESERVED_NAMES) + len(self.user_defined_symbols)

    def problems(self) -> Iterator[Problem]:
        """Yield settings that do not fit the type of tokenizer, and wrong sizes and symbols."""
        if self.type == "whitespace" and self.sampling is not None:
            yield Problem("sampling", "needs type sentencepiece, but type is whitespace", "type")
        if not self.shared and self.sampling is not None:
            text = "must be null with shared: false, because it needs one SentencePiece model"
            yield Problem("sampling", text, "shared")
        yield from self._problems_of_new_tokenizers()
        if self.type == "sentencepiece":
            if self.joiner is not None:
                yield Problem("joiner", "needs type whitespace, but type is sentencepiece", "type")
            yield from self._problems_of_size()
        yield from self._problems_of_symbols()

    def _problems_of_new_tokenizers(self) -> Iterator[Problem]:
        for key in ("shared", "byte_fallback", "split_digits"):
            value, default = getattr(self, key), type(self).model_fields[key].default
            text = f"must be {str(default).lower()} {{}}, but is {str(value).lower()}"
            if value != default and self.model is not None:
                beside = "or left out beside model, which has its own vocabulary"
                yield Problem(key, text.format(beside), "model")
            elif value != default and self.type == "whitespace" and key != "shared":
                yield Problem(key, text.format("with type whitespace"), "type")

    def _problems_of_size(self) -> Iterator[Problem]:
        size, symbols = self.vocabulary_size, len(self.user_defined_symbols)
        least = self.num_without_text + 1
        num_bytes = f"{NUM_BYTES} bytes, " if self.byte_fallback else ""
        text = ""
        if self.model is None and size is None:
            text = "is missing; say how many pieces, such as 32000"
        elif self.model is not None and size is not None:
            text = "must be null beside model, whose file decides the size"
        elif size is not None and size < least:
            text = (
                f"must be at least {least:,} ({num_bytes}3 marks, {counted(symbols, 'symbol')} "
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
