"""The figures of the paper's Table 3, by the names of the recipes that are its rows."""

from typing import NamedTuple


class PaperRow(NamedTuple):
    """A row of the table, measured on newstest2013 without averaging checkpoints."""

    perplexity: float  # per piece
    bleu: float
    parameters: int | None = None  # millions; None where the paper leaves out the base model's


ROWS = {
    "base": PaperRow(4.92, 25.8, 65),
    "a-1-head": PaperRow(5.29, 24.9),
    "a-4-heads": PaperRow(5.00, 25.5),
    "a-16-heads": PaperRow(4.91, 25.8),
    "a-32-heads": PaperRow(5.01, 25.4),
    "b-dk-16": PaperRow(5.16, 25.1, 58),
    "b-dk-32": PaperRow(5.01, 25.4, 60),
    "c-2-layers": PaperRow(6.11, 23.7, 36),
    "c-4-layers": PaperRow(5.19, 25.3, 50),
    "c-8-layers": PaperRow(4.88, 25.5, 80),
    "c-d-model-256": PaperRow(5.75, 24.5, 28),
    "c-d-model-1024": PaperRow(4.66, 26.0, 168),
    "c-d-ff-1024": PaperRow(5.12, 25.4, 53),
    "c-d-ff-4096": PaperRow(4.75, 26.2, 90),
    "d-dropout-0.0": PaperRow(5.77, 24.6),
    "d-dropout-0.2": PaperRow(4.95, 25.5),
    "d-label-smoothing-0.0": PaperRow(4.67, 25.3),
    "d-label-smoothing-0.2": PaperRow(5.47, 25.7),
    "e-learned-positions": PaperRow(4.92, 25.7),
    "big": PaperRow(4.33, 26.4, 213),
}


def row_of(recipe_name: str) -> PaperRow | None:
    """Return the paper's figures for a recipe; None if its name is not that of a row.

    Only the last part of the name counts, without "-scaled": a folder of small recipes may have the
    same rows, with values changed in the same proportion.
    """
    return ROWS.get(recipe_name.rpartition("/")[2].removesuffix("-scaled"))
