"""The options of a translator, with their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, TypeVar

from nmt_cli.hardware.choices import AUTO
from nmt_cli.recipe.search_ranges import DEFAULT_TOKENIZE, DEFAULT_TOO_LONG, N_BEST
from nmt_cli.translating.constraints import Constraints

if TYPE_CHECKING:
    from nmt_cli.parsing.tree_output import Tokenize
    from nmt_cli.search.sampling import Sampling
    from nmt_cli.translating.markup.blocks import Markup
    from nmt_cli.translating.request import Choose

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
    choose: Choose | None = None
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
    shortlist: bool | None = None


@dataclass(frozen=True, kw_only=True)
class LoadOptions(TranslatorOptions):
    """What ``Translator.load`` takes as keywords."""

    device: str = AUTO
    ensemble: Sequence[Path | str] = ()


Keywords = ParamSpec("Keywords")
Record = TypeVar("Record")
Owner = TypeVar("Owner")
First = TypeVar("First")
Result = TypeVar("Result")


def taking(
    record: Callable[Keywords, Record],
) -> Callable[
    [Callable[[Owner, First, Record], Result]],
    Callable[Concatenate[Owner, First, Keywords], Result],
]:
    """Return a decorator by which a method takes the fields of its ``record`` as keywords."""
    fields = inspect.signature(record)

    def decorate(
        method: Callable[[Owner, First, Record], Result],
    ) -> Callable[Concatenate[Owner, First, Keywords], Result]:
        @wraps(method)
        def taking_keywords(
            owner: Owner, first: First, /, *none: Keywords.args, **keywords: Keywords.kwargs
        ) -> Result:
            fields.bind(*none, **keywords)  # its errors do not name the record
            return method(owner, first, record(*none, **keywords))

        *own, _ = inspect.signature(method).parameters.values()
        shown = inspect.Signature([*own, *fields.parameters.values()])
        taking_keywords.__signature__ = shown  # type: ignore[attr-defined]
        return taking_keywords

    return decorate
