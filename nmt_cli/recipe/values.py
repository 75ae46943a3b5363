"""The types of values in a recipe, and the base class of its sections.

Values come from YAML as text and are converted here to the declared type of their key: ``1e-9``
becomes a number if the key is a number, and ``no`` stays a language code if the key is text.
"""

import ast
import enum
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from nmt_cli.files.file_names import RULE_OF_SET_NAME, SET_NAME
from nmt_cli.recipe.problem import Problem

WHOLE_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})", re.ASCII)
DECIMAL_NUMBER = re.compile(
    r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?", re.ASCII
)
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _whole_number(value: object) -> object:
    if isinstance(value, str) and WHOLE_NUMBER.fullmatch(value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise PydanticCustomError("whole_number", "must be a whole number in plain digits")


def _decimal_number(value: object) -> object:
    if isinstance(value, str) and DECIMAL_NUMBER.fullmatch(value):
        return float(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise PydanticCustomError("decimal_number", "must be a number such as 0.1 or 1e-9")


def _true_or_false(value: object) -> object:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise PydanticCustomError("true_or_false", "must be true or false")


def _path_text(value: object) -> object:
    if isinstance(value, Path):
        return value
    if isinstance(value, str) and value and not CONTROL_CHARACTER.search(value):
        return value
    raise PydanticCustomError("path", "must be the path of a file or folder")


def _set_name(value: str) -> str:
    if not SET_NAME.fullmatch(value):
        raise PydanticCustomError("set_name", RULE_OF_SET_NAME)
    return value


def _one_word(value: str) -> str:
    if not value or any(character.isspace() for character in value):
        raise PydanticCustomError("one_word", "must be text without white space")
    if CONTROL_CHARACTER.search(value):
        raise PydanticCustomError("one_word", "must be text without control characters")
    return value


Count = Annotated[int, BeforeValidator(_whole_number)]
Number = Annotated[float, BeforeValidator(_decimal_number)]
Flag = Annotated[bool, BeforeValidator(_true_or_false)]
DataPath = Annotated[Path, BeforeValidator(_path_text)]
Word = Annotated[str, AfterValidator(_one_word)]
SetName = Annotated[str, AfterValidator(_set_name)]
LANGUAGE, LONGEST_LANGUAGE = r"^[A-Za-z][A-Za-z0-9_-]*$", 32
Language = Annotated[str, Field(pattern=LANGUAGE, max_length=LONGEST_LANGUAGE)]
Rate = Annotated[Number, Field(ge=0, lt=1)]  # of dropout, label smoothing or decay
# The limits are far above any use, and prevent that a typing error allocates too much memory.
Width = Annotated[Count, Field(ge=1, le=65_536)]
Steps = Annotated[Count, Field(ge=1, le=10**12)]
Epochs = Annotated[Count, Field(ge=1, le=10**9)]
Pieces = Annotated[Count, Field(ge=1, le=10**6)]


class Effect(enum.Flag):
    """What depends on a key of a recipe; what a change of it means follows from that.

    In the schema, it marks each key, or a section for all keys in it.
    """

    TEXT = enum.auto()  # what preprocess writes
    HELD_OUT = enum.auto()  # what preprocess writes if filters remove held-out text
    STATE = enum.auto()  # the shape of what a checkpoint holds: weights, moments, their average
    STEPS = enum.auto()  # what the steps of a training compute
    COURSE = enum.auto()  # when a training validates, saves and ends
    LOSS = enum.auto()  # what the loss of validation measures
    BLEU = enum.auto()  # what the BLEU of validation measures
    PARSEVAL = enum.auto()  # what the F1 of validation measures
    USE = enum.auto()  # only what is done before or after training, as by translate


TEXT, HELD_OUT, STATE, STEPS = Effect.TEXT, Effect.HELD_OUT, Effect.STATE, Effect.STEPS
COURSE, LOSS, BLEU, PARSEVAL = Effect.COURSE, Effect.LOSS, Effect.BLEU, Effect.PARSEVAL
USE, QUALITY = Effect.USE, LOSS | BLEU | PARSEVAL


def repeated_names(names: Iterable[tuple[str, str | None]]) -> Iterator[Problem]:
    """Yield each key of data whose name is also that of a key before it."""
    first: dict[str, str] = {}
    for key, name in names:
        if name is not None and (other := first.setdefault(name, key)) != key:
            yield Problem(key, f"must not be that of data.{other} too: {name}", other)


class Section(BaseModel):
    """The base class of all sections: frozen, without unknown keys and infinite numbers.

    The text below a key is its description for users: ``keys.Key.description``.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, defer_build=True
    )
    # Groups of alternative keys: a recipe that sets one does not inherit the other.
    alternatives: ClassVar[tuple[frozenset[str], ...]] = ()

    def problems(self) -> Iterator[Problem]:
        """Yield the problems of values that are valid alone but not together."""
        return iter(())

    @model_validator(mode="after")
    def _no_problems(self) -> "Section":
        found = list(self.problems())
        if found:
            text = "; ".join(f"{problem.key}: {problem.text}" for problem in found)
            raise PydanticCustomError("combination", "{text}", {"text": text, "problems": found})
        return self


def not_one_of(section: Section, *keys: str) -> Iterator[Problem]:
    """Yield each of ``keys`` that is given beside another of them, or the first if none is."""
    given = [key for key in keys if getattr(section, key) is not None]
    if not given:
        others = f"so {'is' if len(keys) == 2 else 'are'} {' and '.join(keys[1:])}"
        yield Problem(keys[0], f"is null, and {others}; give one of them")
    for key in given[1:]:
        yield Problem(key, f"must be null beside {given[0]}; give one of them", given[0])


@cache
def descriptions(section: type[Section]) -> dict[str, str]:
    """Return the text below each key of ``section``, as one line.

    Pydantic could do this when it makes the class, but that adds 25 ms to every command that
    reads a recipe.
    """
    found: dict[str, str] = {}
    for owner in (each for each in reversed(section.__mro__) if issubclass(each, Section)):
        # A class that ``create_model`` made has no statements.
        for pair in pairwise(_class_bodies(owner.__module__).get(owner.__name__, [])):
            match pair:
                case ast.AnnAssign(target=ast.Name(key)), ast.Expr(ast.Constant(str(text))):
                    found[key] = " ".join(text.split())
    return found


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of each class of ``module``, which is parsed once for all of them."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


class Interval(Section):
    """The interval of something that is done regularly, in steps or in epochs."""

    alternatives = (frozenset({"every_steps", "every_epochs"}),)

    # Ten minutes at the 0.4 seconds a step of section 5.2.
    every_steps: Annotated[Steps | None, COURSE] = 1500
    """Number of steps from one to the next; null if every_epochs is used."""
    every_epochs: Annotated[Epochs | None, COURSE] = None
    """Number of epochs from one to the next; null if every_steps is used."""

    @model_validator(mode="before")
    @classmethod
    def _epochs_replace_the_default(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "every_steps" in values:
            return values
        by_epochs = values.get("every_epochs") is not None
        return {**values, "every_steps": None} if by_epochs else values

    def problems(self) -> Iterator[Problem]:
        """Yield an interval that is given twice or not at all."""
        yield from not_one_of(self, "every_steps", "every_epochs")
