"""The recipe's section decoding: the search for the best output."""

from typing import Annotated

from pydantic import Field

from nmt_cli.recipe.values import Count, Flag, Number, Section


class DecodingConfig(Section):
    """The beam search of section 6.1."""

    beam_size: Annotated[Count, Field(ge=1, le=1000)] = Field(
        default=4, description="Hypotheses kept for a sentence; 1 is greedy."
    )
    length_penalty: Annotated[Number, Field(ge=0, le=10)] = Field(
        default=0.6, description="Alpha of the length penalty ((5 + length) / 6) ^ alpha."
    )
    max_extra_length: Annotated[Count, Field(ge=0, le=1_000_000)] = Field(
        default=50, description="Longest output: this many pieces more than the input."
    )
    well_formed_trees: Flag = Field(
        default=False,
        description="Search only trees of exactly the sentence's words; needs data.treebank.",
    )
