"""The options of a translator, with their defaults, and what is wanted of all translations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.recipe.translation_options import (
    CHOICES,
    NUMBERS,
    Choose,
    Markup,
    TooLong,
    refuse_outside,
)
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.interface.request import KEEPS_PIECES, ONLY_TEXT, AnyOf, TextOrPieces

if TYPE_CHECKING:
    from nmt_cli.corpus.text.glossary import Glossary
    from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
    from nmt_cli.parsing.tree_output import Tokenize
    from nmt_cli.search.sentences import Sampling
    from nmt_cli.translating.interface.memory import TranslationMemory
    from nmt_cli.translating.interface.soft_glossary import SoftGlossary


class Constraints(NamedTuple):
    """Limits of outputs, and phrases in them. Lengths are in pieces, without ``</s>``."""

    min_length: int = 0
    max_length: int | None = None
    no_repeat_ngram: int | None = None  # an output never repeats a sequence of this many pieces
    prefix: TextOrPieces = ""  # what outputs begin with
    required: Sequence[TextOrPieces | AnyOf] = ()
    banned: Sequence[TextOrPieces] = ()
    glossary: Glossary | None = None  # terms and their translations, required where a term occurs
    # Patterns of text that is copied exactly once, and whether a line fails where it is not.
    protect: Sequence[str] = ()
    protect_strict: bool = False
    soft_glossary: SoftGlossary | None = None  # terms whose translations the model is shown
    memory: TranslationMemory | None = None  # translations of segments that the model does not get

    def refuse_wrong(self) -> None:
        """Raise UserError if a number, an option of translate, is out of range."""
        lengths = {"min_length": self.min_length, "max_length": self.max_length}
        refuse_outside(**lengths, no_repeat_ngram=self.no_repeat_ngram)
        if self.max_length is not None and self.max_length < self.min_length:
            raise WrongUsageError(
                f"--max-length {self.max_length:,} is less than --min-length {self.min_length:,}; "
                "give a larger one."
            )
        try:
            Protection(self.protect)
        except ValueError as error:
            raise WrongUsageError(f"--protect: {error}.") from None

    def refuse_beside(self, tokenizer: Tokenizer, options: TranslatorOptions) -> None:
        """Raise UserError if the model or other options of a translator exclude some of these."""
        if options.keep_pieces and self.protect:
            raise WrongUsageError(f"--protect: {KEEPS_PIECES}.")
        if options.keep_pieces and self.memory is not None:
            raise WrongUsageError(
                "--memory: a memory has text, but --keep-pieces asks for pieces; leave one of them "
                "out."
            )
        if self.soft_glossary is not None:
            if options.markup or options.alignments or self.protect:
                raise WrongUsageError(f"--soft-glossary: {ONLY_TEXT}; leave one of them out.")
            self.soft_glossary.refuse_unknown_tags(tokenizer)


NOTHING = Constraints()


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions:
    """What ``Translator`` and ``Translator.load`` take as keywords.

    One that is None gets its value from the model's settings; ``max_tokens_per_device`` gets one
    for the model and the device.
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    max_extra_length: int | None = None
    n_best: int = NUMBERS["n_best"].default
    choose: Choose | None = None
    too_long: TooLong = CHOICES["too_long"][0]
    tokenize: Tokenize = CHOICES["tokenize"][0]
    split_sentences: bool | None = None
    source_language: str | None = None
    target_language: str | None = None
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
Result = TypeVar("Result")


def taking(
    record: Callable[Keywords, Record],
) -> Callable[
    [Callable[[Any, Path | str, Record], Result]],
    Callable[Concatenate[Any, Path | str, Keywords], Result],
]:
    """Return a decorator by which a method takes the fields of its ``record`` as keywords."""
    fields = inspect.signature(record)

    def decorate(
        method: Callable[[Any, Path | str, Record], Result],
    ) -> Callable[Concatenate[Any, Path | str, Keywords], Result]:
        @wraps(method)
        def taking_keywords(
            owner: Any, path: Path | str, /, *none: Keywords.args, **keywords: Keywords.kwargs
        ) -> Result:
            fields.bind(*none, **keywords)  # its errors do not name the record
            return method(owner, path, record(*none, **keywords))

        *own, _ = inspect.signature(method).parameters.values()
        shown = inspect.Signature([*own, *fields.parameters.values()])
        taking_keywords.__signature__ = shown  # type: ignore[attr-defined]
        return taking_keywords

    return decorate
