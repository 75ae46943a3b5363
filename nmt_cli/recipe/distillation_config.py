"""The section of a recipe on distillation: what a teacher translates for the student."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from nmt_cli.recipe.model_values import Problem
from nmt_cli.recipe.values import Count, DataPath, Flag, Number, Section, Word

MOST_TRANSLATIONS = 64


class MonolingualText(Section):
    """Text of the source language, which only the teacher translates."""

    source: DataPath
    """Text file, also .gz, .xz or .zst."""
    tag: Word | None = None
    """As that of data.train."""
    weight: Annotated[Number, Field(ge=0, le=1_000_000)] = 1.0
    """As that of data.train."""


class DistillationConfig(Section):
    """How distil makes the training text of a student of a teacher's translations."""

    monolingual: Annotated[tuple[MonolingualText, ...], Field(max_length=1000)] = ()
    """Further texts that the teacher translates, beside the sources of data.train."""
    n_best: Annotated[Count, Field(ge=1, le=MOST_TRANSLATIONS)] = 8
    """Translations that the teacher gives for each line; its beam is at least as wide."""
    choose: Literal["reference", "score", "mbr"] = "reference"
    """Which of them the student learns from: the one most like the reference by chrF, or for text
    without one that of the best score; always that of the best score; or of n_best samples the one
    that agrees most with the others in chrF (minimum Bayes risk)."""
    targets: Annotated[Count, Field(ge=1, le=MOST_TRANSLATIONS)] = 1
    """How many of them, different and the best first, become pairs of their own."""
    augmented_copies: Annotated[Count, Field(ge=0, le=1000)] = 1
    """How often data.train.augment is drawn for each line. What it changes is translated too,
    beside the unchanged line; only noise stays for the training, because it is its own
    translation."""
    keep_share: Annotated[Number, Field(gt=0, le=1)] = 0.95
    """Share of the pairs that stay, the best by the model of --reverse-model."""
    original_weight: Annotated[Number, Field(ge=0, le=1_000_000)] = 0.0
    """How often the pairs of data.train with their own targets appear in an epoch, too, times the
    weight of their corpus."""
    guided_alignment: Annotated[Number, Field(gt=0, le=1000)] | None = None
    """Weight of training.guided_alignment, for which the translations are aligned; null: its own,
    if that section is given, else no head is guided."""
    tokenizer: Literal["teacher", "own"] = "teacher"
    """teacher takes its tokenizer and normalization, unless tokenizer.model or model.from is given;
    own makes one of the student's text."""
    shortlist: Flag = True
    """Make a lexicon of the student's text, which ships with it; translate then computes only the
    pieces that a sentence may need."""
    int8_steps: Annotated[Count, Field(ge=0, le=10**9)] = 300
    """Steps with training.quantization_aware: int8 after the training, in which the learning rate
    falls to 0. Their result ships if its BLEU in int8 on the validation set is higher; 0: none."""
    int8_learning_rate: Annotated[Number, Field(gt=0, le=100)] = 1e-4
    """Learning rate at the first of these steps."""

    def problems(self) -> Iterator[Problem]:
        """Yield more targets than there are translations."""
        if self.targets > self.n_best:
            text = f"must be at most n_best {self.n_best}, but is {self.targets}"
            yield Problem("targets", text, "n_best")
