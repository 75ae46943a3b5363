"""The keys in which two recipes differ, and whether a training may resume with them."""

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.smaller_sections import ValidationConfig


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


# A name ending in a dot stands for all keys below it. Keys that are not listed are forbidden.
# For each validation.best_by, the keys after whose change earlier qualities cannot be compared.
DECIDES_QUALITY = {
    "loss": ("training.label_smoothing",),
    "bleu": ("validation.bleu", "decoding."),
    "parseval": ("validation.parseval", "decoding."),
}
USED_AFTERWARDS = ("description", "data.prepared", "data.test", "decoding.")  # after training
FREE = (  # unless DECIDES_QUALITY lists the key
    "description",
    "data.prepared",
    "data.test.",
    "training.max_steps",
    "training.max_epochs",
    "validation.every_steps",
    "validation.every_epochs",
    "validation.bleu",
    "validation.parseval",
    "validation.patience",
    "checkpoints.",
    "decoding.",
)
DECLARED = (
    "model.dropout",
    "model.attention_dropout",
    "model.relu_dropout",
    "tokenizer.sampling",
    "training.tokens_per_step",
    "training.warmup_steps",
    "training.learning_rate_factor",
    "training.peak_learning_rate",
    "training.warmup_start",
    "training.label_smoothing",
    "training.adam_betas",
    "training.adam_epsilon",
    "training.clip_norm",
    "training.seed",
)
FORBIDDEN = (
    "data.source_language",
    "data.target_language",
    "data.train.",
    "data.validation.",
    "data.treebank.",
    "data.normalization.",
    "data.filters.",
    "data.max_length",
    "training.ema_decay",
    "validation.best_by",  # a loss cannot be compared with a BLEU or an F1
    "tokenizer.type",
    "tokenizer.algorithm",
    "tokenizer.vocabulary_size",
    "tokenizer.model",
    "tokenizer.joiner",
    "tokenizer.user_defined_symbols",
    "tokenizer.character_coverage",
    "tokenizer.training_sentences",
    "model.num_layers",
    "model.d_model",
    "model.d_ff",
    "model.num_heads",
    "model.d_k",
    "model.d_v",
    "model.positions",
    "model.max_positions",
    "model.norm",
    "model.tied_embeddings",
    "model.activation",
    "model.attention_biases",
    "model.feed_forward_biases",
    "model.norm_epsilon",
    "model.embedding_norm",
    "model.scale_embeddings",
    "model.output_bias",
    "model.sinusoid_frequencies",
    "model.first_position",
    "model.decoder_start",
    "model.source_eos",
    "model.decoder_num_layers",
    "model.decoder_d_ff",
    "model.decoder_num_heads",
    "model.source_vocabulary_size",
    "model.from",
)


def as_written(value: object) -> str:
    """Return a value as it is written in a recipe: null and true, not None and True."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def needs_training(old: Recipe, new: Recipe) -> bool:
    """Return whether a training that finished by ``old`` may have to go on by ``new``."""
    return any(not change.key.startswith(USED_AFTERWARDS) for change in changed_keys(old, new))


def changed_keys(old: Recipe, new: Recipe) -> list[Change]:
    """Return every key whose value differs, in the order of the recipe."""
    before, after = (dict(_leaves(recipe.model_dump(mode="json"))) for recipe in (old, new))
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
    """Return the kind of a change of ``key``.

    A weight may change although it is in data.train, because it only affects the order of data.
    """
    is_weight = key.startswith("data.train.") and key.endswith(".weight")
    if is_weight or _decides_quality(key, validation) or _stands_in(key, DECLARED):
        return ChangeKind.DECLARED
    return ChangeKind.FREE if _stands_in(key, FREE) else ChangeKind.FORBIDDEN


def _stands_in(key: str, names: tuple[str, ...]) -> bool:
    return any(f"{key}.".startswith(name) if name[-1] == "." else key == name for name in names)


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its dotted key; a list is one value unless it holds sections."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, below in enumerate(value):
            yield from _leaves(below, f"{prefix}.{index}")
    else:
        yield prefix, value
