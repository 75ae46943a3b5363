"""The recipe's sections validation and checkpoints: what training does at an interval."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from nmt_cli.recipe.values import Count, Epochs, Interval, Problem

ValidationSearch = Literal["beam", "greedy", "off"]


class ValidationConfig(Interval):
    """When and how to validate, which checkpoint is the best, and when to stop early."""

    bleu: ValidationSearch = Field(
        default="beam", description="How the validation text is translated for BLEU."
    )
    parseval: ValidationSearch = Field(
        default="off",
        description="How the validation text is parsed for F1 (PARSEVAL); needs data.treebank.",
    )
    best_by: Literal["loss", "bleu", "parseval"] = Field(
        default="loss", description="Measure that decides which checkpoint is the best."
    )
    patience: Epochs | None = Field(
        default=None, description="Stop after this many validations without improvement."
    )

    def problems(self) -> Iterator[Problem]:
        """Yield the problems of the interval, and a best_by that is not measured."""
        yield from super().problems()
        by = self.best_by
        if (by == "bleu" and self.bleu == "off") or (by == "parseval" and self.parseval == "off"):
            text = f"must be loss if {by} is off, but is {by}; give best_by: loss, or {by}: beam"
            yield Problem("best_by", text, by)


class CheckpointsConfig(Interval):
    """When to save a checkpoint, and how many to keep for the average (section 6.1)."""

    keep_for_average: Annotated[Count, Field(ge=1, le=10_000)] = Field(
        default=5,
        description="How many of the newest checkpoints are kept; average-checkpoints averages "
        "them.",
    )
