"""The keys in which two recipes differ, and whether a training may resume with them."""

import json
from enum import Enum
from typing import Any, NamedTuple

from pydantic import ValidationError

from nmt_cli.recipe.data_config import DataConfig
from nmt_cli.recipe.keys import key_at, leaves
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.tokenizer_config import TokenizerConfig
from nmt_cli.recipe.training_config import ValidationConfig
from nmt_cli.recipe.values import BLEU, COURSE, HELD_OUT, LOSS, PARSEVAL, STATE, STEPS, TEXT, Effect

FOLD = "data.normalization.fold"
MEASURES = {"loss": LOSS, "bleu": BLEU, "parseval": PARSEVAL}  # of validation.best_by


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
    wanted = TEXT | HELD_OUT if recipe.data.filters.remove_held_out else TEXT
    sections = recipe.model_dump(mode="json", include={"data", "tokenizer"})
    return {key: value for key, value in leaves(sections) if effect_of(key) & wanted}


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


def needs_training(old: Recipe, new: Recipe) -> bool:
    """Return whether a training that finished by ``old`` may have to go on by ``new``."""
    of_training = TEXT | STATE | STEPS | COURSE
    return any(effect_of(change.key) & of_training for change in changed_keys(old, new))


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
    return bool(effect_of(key) & MEASURES[validation.best_by])


def change_kind(key: str, validation: ValidationConfig) -> ChangeKind:
    """Return whether a training may resume after a change of ``key``."""
    effect = effect_of(key)
    if effect & (TEXT | STATE):
        return ChangeKind.FORBIDDEN
    is_declared = effect & STEPS or _decides_quality(key, validation)
    return ChangeKind.DECLARED if is_declared else ChangeKind.FREE
