"""The keys of a recipe, and the keys that an unknown name may mean."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from nmt_cli.messages.other_toolkits import names_of_keys
from nmt_cli.messages.proposals import MOST_PROPOSED, parts, plain, slips
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.values import Section
from nmt_cli.recipe.yaml_tree import KeyPath

LONG_ENOUGH = 5  # letters; shorter names of other toolkits must be spelled correctly


def key_paths(section: type[Section] = Recipe, prefix: str = "") -> Iterator[str]:
    """Yield every key that a recipe may hold, as ``section.key``; list entries have no index."""
    for name, field in section.model_fields.items():
        yield prefix + name
        inner = _section_in(field.annotation)
        if inner is not None:
            yield from key_paths(inner, f"{prefix}{name}.")


def section_at(path: KeyPath) -> type[Section] | None:
    """Return the section at ``path`` of a recipe, or that of the entries of a list there."""
    fields = fields_to(path)
    if not fields:
        return Recipe
    return None if fields[-1] is None else _section_in(fields[-1].annotation)


def fields_to(path: Sequence[str | int]) -> list[FieldInfo | None]:
    """Return the field of each name in ``path``; None where a recipe has no such key.

    A number, which is the place of an entry in a list, has no field.
    """
    fields: list[FieldInfo | None] = []
    section: type[Section] | None = Recipe
    for name in path:
        if isinstance(name, str):
            field = section.model_fields.get(name) if section is not None else None
            section = _section_in(field.annotation) if field is not None else None
            fields.append(field)
    return fields


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
    field = fields_to(tuple(key.split(".")))[-1]
    if field is None:
        return False
    declared: Any = field.annotation
    for limit in field.metadata:
        declared = Annotated[declared, limit]
    try:
        TypeAdapter(declared).validate_python(value)
    except ValidationError:
        return False
    return True


def choices_of(key: str) -> tuple[str, ...]:
    """Return the values of a key that has a few fixed ones; () for other keys."""
    field = fields_to(tuple(key.split(".")))[-1]
    choices = get_args(field.annotation) if field is not None else ()
    return choices if choices and all(isinstance(each, str) for each in choices) else ()


def accepts_null(key_path: KeyPath) -> bool:
    """Return whether the key at ``key_path`` may be null."""
    field = fields_to(key_path)[-1]
    return field is not None and type(None) in get_args(field.annotation)


def last_name(key: str) -> str:
    """Return the name of ``key`` within its section."""
    return key.rpartition(".")[2]


@cache
def _all_keys() -> tuple[str, ...]:
    """Return the keys that a message may propose.

    ``name`` and ``merge`` are left out, because other programs use these words for other things,
    and so are the keys of stages, which need the number of a stage.
    """
    return tuple(
        key
        for key in key_paths()
        if last_name(key) not in ("name", "merge") and not key.startswith("data.stages.")
    )
