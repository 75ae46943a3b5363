"""What all outputs of a translator must be like."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.messages.errors import UserError

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
        if self.min_length < 0:
            raise UserError(f"--min-length must be at least 0, but is {self.min_length}.")
        if self.max_length is not None and self.max_length < max(1, self.min_length):
            raise UserError(
                f"--max-length {self.max_length} must be at least 1, and not less than "
                f"--min-length, which is {self.min_length}."
            )
        if self.no_repeat_ngram is not None and self.no_repeat_ngram < 1:
            raise UserError(f"--no-repeat-ngram must be at least 1, but is {self.no_repeat_ngram}.")

    def more_than_max_length(self) -> bool:
        """Return whether anything but the longest length is restricted."""
        phrases = self.prefix or self.required or self.banned
        return bool(self.min_length or self.no_repeat_ngram or phrases)
