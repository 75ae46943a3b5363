"""The smaller sections of a recipe: validation, checkpoints, decoding, treebank."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from nmt_cli.parsing.labels import Labels
from nmt_cli.parsing.linearization import Linearization, Notation
from nmt_cli.recipe.search_ranges import BEAM_SIZE, LENGTH_PENALTY
from nmt_cli.recipe.values import FREE, Count, Epochs, Flag, Interval, Number, Problem, Section

ValidationSearch = Literal["beam", "greedy", "off"]


class ValidationConfig(Interval):
    """When and how to validate, which checkpoint is the best, and when to stop early."""

    bleu: Annotated[ValidationSearch, FREE] = Field(
        default="beam", description="How the validation text is translated for BLEU."
    )
    parseval: Annotated[ValidationSearch, FREE] = Field(
        default="off",
        description="How the validation text is parsed for F1 (PARSEVAL); needs data.treebank.",
    )
    best_by: Literal["loss", "bleu", "parseval"] = Field(
        default="loss", description="Measure that decides which checkpoint is the best."
    )
    patience: Annotated[Epochs | None, FREE] = Field(
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


class DecodingConfig(Section):
    """The beam search of section 6.1."""

    beam_size: Annotated[Count, Field(ge=BEAM_SIZE.least, le=BEAM_SIZE.most)] = Field(
        default=4, description="Hypotheses kept for a sentence; 1 is greedy."
    )
    length_penalty: Annotated[Number, Field(ge=LENGTH_PENALTY.least, le=LENGTH_PENALTY.most)] = (
        Field(default=0.6, description="Alpha of the length penalty ((5 + length) / 6) ^ alpha.")
    )
    max_extra_length: Annotated[Count, Field(ge=0, le=1_000_000)] = Field(
        default=50, description="Longest output: this many pieces more than the input."
    )
    well_formed_trees: Flag = Field(
        default=False,
        description="Search only trees of exactly the sentence's words; needs data.treebank.",
    )


class TreebankConfig(Section):
    """How a treebank is cleaned, and how its trees are written as tokens."""

    notation: Notation = Field(
        default="angles",
        description="angles writes (NP <NN> )NP, brackets (NP NN )NP as Vinyals et al., slashes "
        "NP NN /NP as Tensor2Tensor.",
    )
    tags: Literal["kept", "XX"] = Field(
        default="kept",
        description="XX writes XX in place of each word's tag; parses then have XX too.",
    )
    words: Literal["dropped", "kept"] = Field(
        default="dropped", description="Whether each word follows its tag."
    )
    closing: Literal["typed", "plain"] = Field(
        default="typed", description="typed writes )NP where a constituent ends, plain only )."
    )
    remove_traces: Flag = Field(
        default=True, description="Remove traces (-NONE-) and the constituents left empty."
    )
    remove_functions: Flag = Field(
        default=True, description="Remove functions and indices from labels: NP of NP-SBJ-1."
    )

    def linearization(self, labels: Labels | None) -> Linearization:
        """Return the notation for trees with ``labels``; None allows all, except for slashes."""
        return Linearization(self.notation, self.tags, self.words, self.closing, labels)
