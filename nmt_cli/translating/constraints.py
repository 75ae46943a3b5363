"""What all outputs of a translator must be like."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.search_ranges import (
    MAX_LENGTH,
    MIN_LENGTH,
    NO_REPEAT_NGRAM,
    refuse_outside,
)

TextOrPieces = str | Sequence[str]  # text, which the tokenizer cuts into pieces, or a list of them


class Constraints(NamedTuple):
    """Limits of outputs, and phrases in them. Lengths are in pieces, without ``</s>``."""

    min_length: int = 0
    max_length: int | None = None
    no_repeat_ngram: int | None = None  # no sequence of so many pieces occurs twice
    prefix: TextOrPieces = ""  # what outputs begin with
    required: Sequence[TextOrPieces] = ()
    banned: Sequence[TextOrPieces] = ()

    def refuse_wrong(self) -> None:
        """Raise UserError if a number, an option of translate, is out of range."""
        refuse_outside("--min-length", self.min_length, MIN_LENGTH)
        refuse_outside("--max-length", self.max_length, MAX_LENGTH)
        refuse_outside("--no-repeat-ngram", self.no_repeat_ngram, NO_REPEAT_NGRAM)
        if self.max_length is not None and self.max_length < self.min_length:
            raise UserError(
                f"--max-length {self.max_length:,} is less than --min-length {self.min_length:,}; "
                "give a larger one."
            )

    def more_than_max_length(self) -> bool:
        """Return whether anything but the longest length is restricted."""
        phrases = self.prefix or self.required or self.banned
        return bool(self.min_length or self.no_repeat_ngram or phrases)
