"""The keys of a recipe: what each affects, and those that an unknown name may mean.

Of two recipes, the keys that differ decide whether a training may resume.
"""

import json
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from nmt_cli.messages.other_toolkits import names_of_keys
from nmt_cli.messages.proposals import MOST_PROPOSED, parts, plain, slips
from nmt_cli.recipe.reading.yaml_tree import KeyPath
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.data import DataConfig
from nmt_cli.recipe.sections.tokenizer import TokenizerConfig
from nmt_cli.recipe.sections.training import ValidationConfig
from nmt_cli.recipe.values import Effect, Section, descriptions

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


def values_by_key(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its dotted key; a list is one value unless it holds sections.

    Numbers by name, such as data.stages.0.shares, are one value too.
    """
    key = key_at(prefix)
    if isinstance(value, dict) and (not prefix or (key is not None and key.section is not None)):
        for name, below in value.items():
            yield from values_by_key(below, f"{prefix}.{name}" if prefix else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, below in enumerate(value):
            yield from values_by_key(below, f"{prefix}.{index}")
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


FOLD = "data.normalization.fold"
# Of validation.best_by.
MEASURES = {"loss": Effect.LOSS, "bleu": Effect.BLEU, "parseval": Effect.PARSEVAL}


class ChangeKind(Enum):
    """Whether a training may resume after a key of its recipe was changed."""

    FREE = "free"  # changes when things happen, not what is computed
    DECLARED = "declared"  # changes the training from here on: --allow-change KEY
    FORBIDDEN = "forbidden"  # the weights, the vocabulary or the text would no longer fit


class Change(NamedTuple):
    """One key whose value differs; the value is ``None`` if a recipe does not have the key."""

    key: str
    old: object
    new: object
    kind: ChangeKind

    def __str__(self) -> str:
        return f"{self.key} (was {as_written(self.old)}, is {as_written(self.new)})"


def as_written(value: object) -> str:
    """Return a value as it is written in a recipe: null and true, not None and True."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def effect_of(key: str) -> Effect:
    """Return what depends on a key. A key that the schema does not have may affect anything."""
    found = key_at(key)
    return ~Effect(0) if found is None or found.effect is None else found.effect


def keys_of_text(recipe: Recipe) -> dict[str, Any]:
    """Return the keys on which the files that preprocess writes depend, with their values."""
    wanted = Effect.TEXT | Effect.HELD_OUT if recipe.data.filters.needs_held_out else Effect.TEXT
    sections = recipe.model_dump(mode="json", include={"data", "tokenizer"})
    return {key: value for key, value in values_by_key(sections) if effect_of(key) & wanted}


def values_beside_paths(recipe: Recipe) -> dict[str, str]:
    """Return every key with its value as it is written, except those of files and folders.

    Machines that train together may have these at different places.
    """
    values = values_by_key(recipe.model_dump(mode="json"))
    return {key: as_written(value) for key, value in values if not _is_path(key)}


def _is_path(key: str) -> bool:
    found = key_at(key)
    return found is not None and _holds_path(found.field.annotation)


def _holds_path(annotation: Any) -> bool:
    return annotation is Path or any(map(_holds_path, get_args(annotation)))


def recorded_keys_of_text(data: dict[str, Any], tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Return ``keys_of_text`` of the recipe with these sections, from a manifest.

    Keys that it does not have, because they are newer, have their defaults. Raises ValueError,
    which names them, if it has keys or values of a newer version.
    """
    try:
        recipe = Recipe.model_construct(
            data=DataConfig.model_validate(data),
            tokenizer=TokenizerConfig.model_validate(tokenizer),
        )
    except ValidationError as error:
        unknown = (".".join(map(str, each["loc"])) for each in error.errors())
        raise ValueError(", ".join(unknown)) from None
    return keys_of_text(recipe)


def needs_training(changes: Iterable[Change]) -> bool:
    """Return whether a finished training may have to go on after these changes of its recipe."""
    of_training = Effect.TEXT | Effect.STATE | Effect.STEPS | Effect.COURSE
    return any(effect_of(change.key) & of_training for change in changes)


def changed_keys(old: Recipe, new: Recipe) -> list[Change]:
    """Return every key whose value differs, in the order of the recipe."""
    before, after = (dict(values_by_key(recipe.model_dump(mode="json"))) for recipe in (old, new))
    # Not the user's choice but what preprocess decided. If the text was prepared again in another
    # way, training refuses it, because the files differ.
    if not (old.tokenizer.shared or new.tokenizer.shared):
        del before["model.source_vocabulary_size"], after["model.source_vocabulary_size"]
    if before[FOLD] is None or after[FOLD] is None:
        del before[FOLD], after[FOLD]
    return [
        Change(key, before.get(key), after.get(key), change_kind(key, new.validation))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]


def changes_of_quality(old: Recipe, new: Recipe) -> list[str]:
    """Return the changed keys that make qualities of validation incomparable with earlier ones."""
    changed = (change.key for change in changed_keys(old, new))
    return [key for key in changed if _decides_quality(key, new.validation)]


def _decides_quality(key: str, validation: ValidationConfig) -> bool:
    search = {"bleu": validation.bleu, "parseval": validation.parseval}.get(validation.best_by)
    if key == "decoding.beam_size" and search == "greedy":
        return False  # greedy search has a beam of 1, whatever the recipe's beam size is
    return bool(effect_of(key) & MEASURES[validation.best_by])


def change_kind(key: str, validation: ValidationConfig) -> ChangeKind:
    """Return whether a training may resume after a change of ``key``."""
    effect = effect_of(key)
    if effect & (Effect.TEXT | Effect.STATE):
        return ChangeKind.FORBIDDEN
    is_declared = effect & Effect.STEPS or _decides_quality(key, validation)
    return ChangeKind.DECLARED if is_declared else ChangeKind.FREE
