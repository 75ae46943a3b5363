"""The keys of a recipe, and the keys that an unknown name may mean."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from nmt_cli.messages.other_toolkits import names_of_keys
from nmt_cli.messages.proposals import MOST_PROPOSED, parts, plain, slips
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.values import Effect, Section, descriptions
from nmt_cli.recipe.yaml_tree import KeyPath

ENTRIES = "data.stages.", "distillation.monolingual."
LONG_ENOUGH = 5  # letters; shorter names of other toolkits must be spelled correctly


class Key(NamedTuple):
    """A key that a recipe may hold."""

    name: str  # such as data.train.source; entries of a list have no number
    owner: type[Section]  # the section that it is in
    field: FieldInfo
    section: type[Section] | None  # the section that it holds, also in a list
    effect: Effect | None  # its own or that of a section around it; a section may have none

    @property
    def description(self) -> str:
        """What the key means: the text below it in the schema."""
        return descriptions(self.owner).get(last_name(self.name), self.field.description or "")


@cache
def recipe_keys() -> dict[str, Key]:
    """Return every key that a recipe may hold, by its name."""
    return {key.name: key for key in _keys_in(Recipe, "", None)}


def key_at(path: str | KeyPath) -> Key | None:
    """Return the key at ``path``, which may have numbers of entries; None if there is none."""
    steps = path.split(".") if isinstance(path, str) else path
    names = [step for step in steps if isinstance(step, str) and not step.isdecimal()]
    return recipe_keys().get(".".join(names))


def section_at(path: KeyPath) -> type[Section] | None:
    """Return the section at ``path`` of a recipe, or that of the entries of a list there."""
    key = key_at(path)
    return Recipe if not path else key.section if key is not None else None


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its dotted key; a list is one value unless it holds sections.

    Numbers by name, such as data.stages.0.shares, are one value too.
    """
    key = key_at(prefix)
    if isinstance(value, dict) and (not prefix or (key is not None and key.section is not None)):
        for name, below in value.items():
            yield from leaves(below, f"{prefix}.{name}" if prefix else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, below in enumerate(value):
            yield from leaves(below, f"{prefix}.{index}")
    else:
        yield prefix, value


def _keys_in(owner: type[Section], prefix: str, above: Effect | None) -> Iterator[Key]:
    for name, field in owner.model_fields.items():
        section = _section_in(field.annotation)
        own = next((mark for mark in field.metadata if isinstance(mark, Effect)), None)
        effect = own if above is None else above
        yield Key(prefix + name, owner, field, section, effect)
        if section is not None:
            yield from _keys_in(section, f"{prefix}{name}.", effect)


def _section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    inner = (_section_in(argument) for argument in get_args(annotation))
    return next((section for section in inner if section is not None), None)


def keys_called(name: str) -> list[str]:
    """Return the keys with exactly this name, with or without the sections above them."""
    written = plain(name).replace(".", "_")
    full = [key for key in _all_keys() if key.replace(".", "_") == written]
    return full or [key for key in _all_keys() if last_name(key) == written]


def keys_meant(name: str, section: str = "") -> list[str]:
    """Return the keys that ``name`` means when it is written in ``section``; none if unclear."""
    called = keys_called(name)
    if called:
        return called
    last = plain(name).rpartition(".")[2]
    others = names_of_keys()
    if last in others:
        return [others[last]]
    own = {last_name(key): [key] for key in _all_keys() if key.rpartition(".")[0] == section}
    every: dict[str, list[str]] = {}
    for key in _all_keys():
        every.setdefault(last_name(key), []).append(key)
    for near, known in (
        (slips, own),
        (slips, every),
        (slips, {other: [key] for other, key in others.items() if len(other) >= LONG_ENOUGH}),
        (parts, own),
        (parts, every),
    ):
        meant = [key for found in near(last, known) for key in known[found]]
        if meant:
            return meant if len(meant) <= MOST_PROPOSED else []
    return []


def is_value_of(key: str, value: object) -> bool:
    """Return whether the key accepts ``value`` as read from YAML; other keys are not considered."""
    found = key_at(key)
    if found is None:
        return False
    declared: Any = found.field.annotation
    for limit in found.field.metadata:
        declared = Annotated[declared, limit]
    try:
        TypeAdapter(declared).validate_python(value)
    except ValidationError:
        return False
    return True


def choices_of(key: str) -> tuple[str, ...]:
    """Return the values of a key that has a few fixed ones; () for other keys."""
    found = key_at(key)
    choices = get_args(found.field.annotation) if found is not None else ()
    return choices if choices and all(isinstance(each, str) for each in choices) else ()


def accepts_null(path: KeyPath) -> bool:
    """Return whether the key at ``path`` may be null."""
    key = key_at(path)
    return key is not None and type(None) in get_args(key.field.annotation)


def last_name(key: str) -> str:
    """Return the name of ``key`` within its section."""
    return key.rpartition(".")[2]


@cache
def _all_keys() -> tuple[str, ...]:
    """Return the keys that a message may propose.

    ``name`` and ``merge`` are left out, because other programs use these words for other things,
    and so are the keys of entries that most recipes do not have.
    """
    return tuple(
        key
        for key in recipe_keys()
        if last_name(key) not in ("name", "merge") and not key.startswith(ENTRIES)
    )
