"""The error that every tokenizer raises for ids without text."""

from collections.abc import Sequence


class NoTextError(ValueError):
    """One of ``ids`` is outside a vocabulary of ``size`` pieces, or its piece is not valid text."""

    def __init__(self, ids: Sequence[int], size: int) -> None:
        unknown = next((token for token in ids if not 0 <= token < size), None)
        what = "a piece of the tokenizer" if unknown is None else f"the id {unknown:,}"
        super().__init__(f"{what} has no text; the tokenizer has {size:,} pieces")
