"""The error of ids that stand for no text, which every tokenizer raises."""

from collections.abc import Sequence


class NoTextError(ValueError):
    """Among ``ids`` is one that no piece of a vocabulary of ``size`` has, or whose piece is bad."""

    def __init__(self, ids: Sequence[int], size: int) -> None:
        unknown = next((token for token in ids if not 0 <= token < size), None)
        what = "a piece of the tokenizer" if unknown is None else f"the id {unknown:,}"
        super().__init__(f"{what} has no text; the tokenizer has {size:,} pieces")
