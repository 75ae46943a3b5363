"""The values in a model's ``config.json``, checked without pydantic: its import takes 80 ms.

Types, limits and defaults are those of the sections of a recipe: ``model_values.json`` is made of
their schema by ``python -m tests.reference_pages``.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

from nmt_cli.recipe.problem import Problem

if TYPE_CHECKING:
    from nmt_cli.recipe.sections.model_options import ModelOptions
else:
    ModelOptions = object  # the options are those of a recipe's section or of ``Architecture``

TABLE = Path(__file__).with_suffix(".json")
TYPES = {"integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),)}
DROPOUTS = ("dropout", "attention_dropout", "relu_dropout")  # of training; a model has none

AnyValues = TypeVar("AnyValues", bound="Values")


class StackShape(NamedTuple):
    """The sizes of the encoder or the decoder."""

    num_layers: int
    d_ff: int
    num_heads: int
    key_width: int  # of a head
    value_width: int
    window: int | None  # the farthest row that self-attention reaches; None: there is none


class ModelShape(ModelOptions):
    """What follows from the options of an architecture, in a recipe or of a model."""

    @property
    def is_recurrent(self) -> bool:
        """Whether recurrent units take the place of the decoder's self-attention."""
        return self.decoder == "ssru"

    @property
    def encoder_shape(self) -> StackShape:
        """The sizes of the encoder."""
        return self._shape(self.num_layers, self.d_ff, self.num_heads)

    @property
    def decoder_shape(self) -> StackShape:
        """The sizes of the decoder."""
        layers, d_ff = self.decoder_num_layers or self.num_layers, self.decoder_d_ff or self.d_ff
        return self._shape(layers, d_ff, self.decoder_num_heads or self.num_heads)

    def _shape(self, num_layers: int, d_ff: int, heads: int) -> StackShape:
        widths = self.d_k or self.d_model // heads, self.d_v or self.d_model // heads
        return StackShape(num_layers, d_ff, heads, *widths, self.attention_window)

    @property
    def stack_shapes(self) -> dict[str, StackShape]:
        """The sizes of the encoder and of the decoder, by these names."""
        return {"encoder": self.encoder_shape, "decoder": self.decoder_shape}

    @abstractmethod
    def of_model(self) -> Architecture:
        """Return the options as a model has them, without dropout."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return all options as JSON values."""

    def problems(self) -> Iterator[Problem]:
        """Yield widths that do not fit together, and options that need another one."""
        by_heads = self.d_k is None or self.d_v is None
        divides = f"must divide d_model {self.d_model:,} unless d_k and d_v are given, but is "
        if by_heads and self.d_model % self.num_heads:
            yield Problem("num_heads", f"{divides}{self.num_heads:,}", "d_model")
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield Problem("d_model", f"must be even for sinusoids, but is {self.d_model:,}")
        heads = self.decoder_num_heads or self.num_heads
        if by_heads and heads != self.num_heads and self.d_model % heads:
            yield Problem("decoder_num_heads", f"{divides}{heads:,}", "d_model")
        if self.source_vocabulary_size is not None and self.tied_embeddings == "all":
            text = "must be decoder or none beside source_vocabulary_size, but is all"
            yield Problem("tied_embeddings", text, "source_vocabulary_size")
        if self.positions == "learned":
            if self.sinusoid_frequencies != "paper":
                text = f"must be paper for learned positions, but is {self.sinusoid_frequencies}"
                yield Problem("sinusoid_frequencies", text, "positions")
            if self.first_position != 0:
                text = f"must be 0 for learned positions, but is {self.first_position}"
                yield Problem("first_position", text, "positions")


class Values:
    """Values of a section as attributes that cannot be changed; what is not given has its default.

    Raises ValueError if a key or a value is not one of the section.
    """

    section: ClassVar[str]

    def __init__(self, /, **values: Any) -> None:
        rules = value_rules()[self.section]
        if unknown := ", ".join(sorted(values.keys() - rules.keys())):
            raise ValueError(f"{self.section} has no {unknown}")
        for name, rule in rules.items():
            value = values.get(name, rule["default"])
            if not _fits(value, rule):
                raise ValueError(f"{self.section} cannot have {value!r} as {name}")
            vars(self)[name] = value
        for problem in self.problems():
            raise ValueError(f"{problem.key} {problem.text}")

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong in combination."""
        return iter(())

    def changed(self: AnyValues, /, **values: Any) -> AnyValues:
        """Return the same with other ``values``."""
        return type(self)(**{**vars(self), **values})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).items()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"


class Architecture(ModelShape, Values):
    """The architecture of a model."""

    section = "architecture"
    dropout = attention_dropout = relu_dropout = 0.0

    def of_model(self) -> Architecture:
        """Return these options."""
        return self

    def as_json(self) -> dict[str, Any]:
        """Return all options as JSON values."""
        return {**vars(self), **{name: getattr(self, name) for name in DROPOUTS}}

    @property
    def options(self) -> dict[str, Any]:
        """The options beyond the paper that are not at their default, as JSON values."""
        rules = value_rules()[self.section]
        return {
            name: value
            for name, value in vars(self).items()
            if not rules[name]["is_of_the_paper"] and value != rules[name]["default"]
        }

    @property
    def of_the_paper(self) -> dict[str, Any]:
        """The values of what the paper varies."""
        rules = value_rules()[self.section]
        return {name: vars(self)[name] for name in rules if rules[name]["is_of_the_paper"]}


class TextNormalization(Values):
    """Changes to the text before it is cut into pieces."""

    section = "normalization"
    if TYPE_CHECKING:
        nfc: bool
        punctuation: bool
        fold: bool


class Decoding(Values):
    """The search of a model by default."""

    section = "decoding"
    if TYPE_CHECKING:
        beam_size: int
        length_penalty: float
        max_extra_length: int
        well_formed_trees: bool


class TreeNotation(Values):
    """How a model that parses writes trees."""

    section = "trees"
    if TYPE_CHECKING:
        notation: Literal["angles", "brackets", "slashes"]
        tags: Literal["kept", "XX"]
        words: Literal["dropped", "kept"]
        closing: Literal["typed", "plain"]


@cache
def value_rules() -> dict[str, dict[str, dict[str, Any]]]:
    """Return what each key of each section may be, as in a JSON schema."""
    content: dict[str, dict[str, dict[str, Any]]] = json.loads(TABLE.read_bytes())
    return content


def _fits(value: object, rule: Mapping[str, Any]) -> bool:
    if "anyOf" in rule:
        return any(_fits(value, each) for each in rule["anyOf"])
    if "enum" in rule:
        return isinstance(value, str) and value in rule["enum"]
    if type(value) not in TYPES[rule["type"]]:
        return False
    if not isinstance(value, int | float):
        return True
    is_enough = rule.get("ge", value) <= value and rule.get("gt", -math.inf) < value
    return is_enough and value <= rule.get("le", value) and value < math.inf
