"""The recipe's section data.treebank: how the trees to learn become tokens."""

from typing import Literal

from pydantic import Field

from nmt_cli.recipe.values import Flag, Section
from nmt_cli.trees.labels import Labels
from nmt_cli.trees.linearization import Linearization, Notation


class TreebankConfig(Section):
    """How a treebank is cleaned, and how its trees are written as tokens."""

    notation: Notation = Field(
        default="angles",
        description="angles writes (NP <NN> )NP, brackets (NP NN )NP as Vinyals et al., slashes "
        "NP NN /NP as Tensor2Tensor.",
    )
    tags: Literal["kept", "XX"] = Field(
        default="kept", description="XX writes the tag XX for every word, and parses have it too."
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
