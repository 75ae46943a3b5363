"""The keys in which two recipes differ, and whether a training may resume with them."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from nmt_cli.recipe.keys import fields_to, section_at
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.training_config import ValidationConfig
from nmt_cli.recipe.values import ChangeKind


class Change(NamedTuple):
    """One key whose value differs; the value is ``None`` if a recipe does not have the key."""

    key: str
    old: object
    new: object
    kind: ChangeKind

    def __str__(self) -> str:
        return f"{self.key} (was {as_written(self.old)}, is {as_written(self.new)})"


# A name ending in a dot stands for all keys below it.
# For each validation.best_by, the keys after whose change earlier qualities cannot be compared.
DECIDES_QUALITY = {
    "loss": ("validation.best_on", "training.label_smoothing"),
    "bleu": ("validation.best_on", "validation.bleu", "validation.tokenize", "decoding."),
    "parseval": ("validation.best_on", "validation.parseval", "decoding."),
}
FOLD = "data.normalization.fold"
# After training.
USED_AFTERWARDS = ("description", "data.prepared", "data.test", "decoding.", "validation.tokenize")


def as_written(value: object) -> str:
    """Return a value as it is written in a recipe: null and true, not None and True."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def needs_training(old: Recipe, new: Recipe) -> bool:
    """Return whether a training that finished by ``old`` may have to go on by ``new``."""
    return any(not change.key.startswith(USED_AFTERWARDS) for change in changed_keys(old, new))


def changed_keys(old: Recipe, new: Recipe) -> list[Change]:
    """Return every key whose value differs, in the order of the recipe."""
    before, after = (dict(leaves(recipe.model_dump(mode="json"))) for recipe in (old, new))
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
    return _stands_in(key, DECIDES_QUALITY[validation.best_by])


def change_kind(key: str, validation: ValidationConfig) -> ChangeKind:
    """Return the kind of a change of ``key``: its mark in the schema, or that of a section above.

    A key without a mark, or of an earlier version, is forbidden.
    """
    if _decides_quality(key, validation):
        return ChangeKind.DECLARED
    fields = fields_to(_steps(key))
    if fields[-1] is None:
        return ChangeKind.FORBIDDEN
    marks = [mark for field in fields if field is not None for mark in field.metadata]
    kinds = [mark for mark in marks if isinstance(mark, ChangeKind)]
    return kinds[-1] if kinds else ChangeKind.FORBIDDEN


def _stands_in(key: str, names: tuple[str, ...]) -> bool:
    return any(f"{key}.".startswith(name) if name[-1] == "." else key == name for name in names)


def _steps(key: str) -> tuple[str | int, ...]:
    return tuple(int(name) if name.isdigit() else name for name in key.split("."))


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its dotted key; a list is one value unless it holds sections.

    Numbers by name, such as data.stages.0.shares, are one value too.
    """
    is_section = not prefix or section_at(_steps(prefix)) is not None
    if isinstance(value, dict) and is_section:
        for key, below in value.items():
            yield from leaves(below, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, below in enumerate(value):
            yield from leaves(below, f"{prefix}.{index}")
    else:
        yield prefix, value
