"""What is wanted of all translations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.recipe.search_ranges import MAX_LENGTH, MIN_LENGTH, NO_REPEAT_NGRAM, refuse_outside
from nmt_cli.translating.protection import Protection
from nmt_cli.translating.request import KEEPS_PIECES, ONLY_TEXT, AnyOf, TextOrPieces

if TYPE_CHECKING:
    from nmt_cli.corpus.text.glossary import Glossary
    from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
    from nmt_cli.translating.memory import TranslationMemory
    from nmt_cli.translating.soft_glossary import SoftGlossary


class Constraints(NamedTuple):
    """Limits of outputs, and phrases in them. Lengths are in pieces, without ``</s>``."""

    min_length: int = 0
    max_length: int | None = None
    no_repeat_ngram: int | None = None  # an output never repeats a sequence of this many pieces
    prefix: TextOrPieces = ""  # what outputs begin with
    required: Sequence[TextOrPieces | AnyOf] = ()
    banned: Sequence[TextOrPieces] = ()
    glossary: Glossary | None = None  # terms and their translations, required where a term occurs
    # Patterns of text that is copied exactly once, and whether a line fails where it is not.
    protect: Sequence[str] = ()
    protect_strict: bool = False
    soft_glossary: SoftGlossary | None = None  # terms whose translations the model is shown
    memory: TranslationMemory | None = None  # translations of segments that the model does not get

    def refuse_wrong(self) -> None:
        """Raise UserError if a number, an option of translate, is out of range."""
        refuse_outside("--min-length", self.min_length, MIN_LENGTH)
        refuse_outside("--max-length", self.max_length, MAX_LENGTH)
        refuse_outside("--no-repeat-ngram", self.no_repeat_ngram, NO_REPEAT_NGRAM)
        if self.max_length is not None and self.max_length < self.min_length:
            raise WrongUsageError(
                f"--max-length {self.max_length:,} is less than --min-length {self.min_length:,}; "
                "give a larger one."
            )
        try:
            Protection(self.protect)
        except ValueError as error:
            raise WrongUsageError(f"--protect: {error}.") from None

    def refuse_beside(self, tokenizer: Tokenizer, keep_pieces: bool, counts_words: bool) -> None:
        """Raise UserError if the model or other options of a translator exclude some of these.

        ``counts_words``: whether an option, such as --markup, needs the words as they are.
        """
        if keep_pieces and self.protect:
            raise WrongUsageError(f"--protect: {KEEPS_PIECES}.")
        if keep_pieces and self.memory is not None:
            raise WrongUsageError(
                "--memory: a memory has text, but --keep-pieces asks for pieces; leave one of them "
                "out."
            )
        if self.soft_glossary is not None and (counts_words or self.protect):
            raise WrongUsageError(f"--soft-glossary: {ONLY_TEXT}; leave one of them out.")
        if self.soft_glossary is not None:
            self.soft_glossary.refuse_unknown_tags(tokenizer)

    @property
    def for_every_line(self) -> bool:
        """Whether a rule holds for every line, also for those whose sentences have no data for it.

        Then no sentence can be searched by CUDA graphs.
        """
        return bool(self.min_length or self.no_repeat_ngram)

    def for_a_search(self) -> Iterator[str]:
        """Yield the options that have an effect, and are for a search that shares its beam."""
        for name in ("required", "glossary", "protect"):
            if getattr(self, name):
                yield f"--{name}"

    def more_than_max_length(self) -> bool:
        """Return whether anything but the longest length is restricted."""
        return any(self._replace(max_length=None, protect_strict=False))
