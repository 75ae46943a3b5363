"""The options of a translator, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nmt_cli.hardware.choices import AUTO
from nmt_cli.recipe.search_ranges import DEFAULT_TOKENIZE, DEFAULT_TOO_LONG, N_BEST
from nmt_cli.translating.constraints import Constraints

if TYPE_CHECKING:
    from nmt_cli.parsing.tree_output import Tokenize
    from nmt_cli.search.sampling import Sampling
    from nmt_cli.translating.markup.blocks import Markup

NOTHING = Constraints()
TooLong = Literal["split", "truncate", "error"]


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions:
    """What ``Translator`` and ``Translator.load`` take as keywords.

    One that is None gets its value from the model's settings; ``max_tokens_per_device`` gets one
    for the model and the device.
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    max_extra_length: int | None = None
    n_best: int = N_BEST.default
    too_long: TooLong = DEFAULT_TOO_LONG
    tokenize: Tokenize = DEFAULT_TOKENIZE
    split_sentences: bool = False
    source_language: str | None = None
    markup: Markup | None = None
    translate_everything: bool = False
    keep_pieces: bool = False
    token_scores: bool = False
    alignments: bool = False
    replace_unknown: bool = False
    tag: str | None = None
    max_tokens_per_device: int | None = None
    precision: str = AUTO
    no_cuda_graphs: bool = False
    well_formed_trees: bool | None = None
    sampling: Sampling | None = None
    constraints: Constraints = NOTHING
