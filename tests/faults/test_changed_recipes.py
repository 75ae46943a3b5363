"""A training resumed with a changed recipe: free, declared and forbidden changes."""

import shutil
from typing import Any

import pytest

from tests.faults.run_directories import hashes

# Key, and its old and new value as they are shown.
FREE: list[tuple[str, Any, Any]] = [
    ("description", "A toy.", "Another."),
    ("data.prepared", None, "elsewhere"),
    ("training.max_epochs", None, 90),
    ("validation.every_steps", 6, 5),
    ("validation.bleu", "greedy", "off"),
    ("validation.patience", None, 50),
    ("checkpoints.every_steps", 4, 7),
    ("checkpoints.keep_for_average", 2, 3),
    ("decoding.beam_size", 2, 5),
    ("decoding.length_penalty", 0.6, 1.5),
    ("decoding.max_extra_length", 2, 9),
]
DECLARED: list[tuple[str, Any, Any]] = [
    ("model.dropout", 0.1, 0.3),
    ("model.attention_dropout", 0.0, 0.1),
    ("model.relu_dropout", 0.0, 0.1),
    ("training.tokens_per_step", 120, 100),
    ("training.warmup_steps", 4, 5),
    ("training.peak_learning_rate", 0.005, 0.004),
    ("training.warmup_start", 0.0, 0.0001),
    ("training.label_smoothing", 0.1, 0.0),
    ("training.adam_betas", [0.9, 0.98], [0.9, 0.99]),
    ("training.adam_epsilon", 1e-09, 1e-08),
    ("training.clip_norm", None, 5.0),
    ("training.seed", 1, 2),
    ("data.train.0.weight", 1.0, 1.5),
    ("validation.best_by", "loss", "bleu"),
]
FORBIDDEN: list[tuple[str, Any, Any]] = [
    ("model.num_layers", 1, 2),
    ("model.d_model", 20, 30),
    ("model.d_ff", 28, 30),
    ("model.num_heads", 5, 4),
    ("model.d_k", None, 6),
    ("model.d_v", None, 6),
    ("model.positions", "sinusoidal", "learned"),
    ("model.max_positions", 2048, 1024),
    ("model.norm", "post", "pre"),
    ("model.tied_embeddings", "all", "none"),
]
OTHER_TEXT: list[tuple[str, str, Any]] = [
    ("data.source_language", "en", "fr"),
    ("data.target_language", "de", "fr"),
    ("data.validation.source", "{folder}/validation.en", "data/other.en"),
    ("data.validation.target", "{folder}/validation.de", "data/other.de"),
    ("data.normalization.nfc", "false", True),
    ("data.normalization.punctuation", "false", True),
    ("data.normalization.fold", "true", False),
    ("data.filters.max_length_ratio", "null", 3.0),
    ("data.filters.min_length", "1", 2),
    ("data.filters.remove_duplicates", "false", True),
    ("data.filters.remove_copies", "false", True),
    ("data.filters.min_letters", "null", 0.5),
    ("data.max_length", "30", 31),
    ("tokenizer.vocabulary_size", "null", 16),
    ("tokenizer.joiner", "null", "@@"),
    ("tokenizer.user_defined_symbols", "[]", ["<x>"]),
    ("tokenizer.training_sentences", "10,000,000", 5),
]


@pytest.fixture
def run_dir(undisturbed_dir, tmp_path):
    shutil.copytree(undisturbed_dir, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def resume(trainings, run_dir, toy):
    """Resume the finished run with changed keys; assert that nothing is written."""

    def call(changes, *options):
        before = hashes(run_dir)
        overrides = [as_override(key, new, toy) for key, _, new in changes]
        ended = trainings.with_overrides(*overrides).run(run_dir, "--resume", *options)
        assert hashes(run_dir) == before
        return ended

    return call


def as_override(key, new, toy):
    if not key.startswith("data.train.0."):
        return f"{key}={as_yaml(new)}"
    folder = toy.recipe_path.parent
    corpus = f"source: {folder}/train.en, target: {folder}/train.de, weight: {new}"
    return f"data.train=[{{{corpus}}}]"


def as_yaml(value):
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def change(key, old, new):
    return f"{key} (was {as_yaml(old)}, is {as_yaml(new)})"


def test_free_keys_change_without_permission(resume):
    ended = resume(FREE)
    assert ended.status == 0, ended.stderr
    for key, old, new in FREE:
        assert f"Recipe changed: {change(key, old, new)}" in ended.stderr


def test_declared_keys_need_permission(resume):
    ended = resume(DECLARED)
    assert ended.status == 1
    for key, old, new in DECLARED:
        assert f"{change(key, old, new)} needs --allow-change {key}" in ended.stderr


def test_permission_is_given_key_by_key(resume):
    permissions = [f"--allow-change={key}" for key, _, _ in DECLARED]
    allowed = resume(DECLARED, *permissions)
    assert allowed.status == 0, allowed.stderr
    for key, old, new in DECLARED:
        assert f"Recipe changed: {change(key, old, new)}" in allowed.stderr
    for number in (0, 5, 12):
        ended = resume(DECLARED, *permissions[:number], *permissions[number + 1 :])
        assert ended.status == 1
        assert ended.stderr.count("needs --allow-change") == 1
        assert f"needs --allow-change {DECLARED[number][0]}" in ended.stderr


def check_forbidden(trainings, run_dir, key, old, new):
    """Resume with a changed key; assert that it is refused and that nothing is written."""
    before = hashes(run_dir)
    changed = trainings.with_overrides(f"{key}={as_yaml(new)}")
    ended = changed.run(run_dir, "--resume", f"--allow-change={key}")
    assert ended.status == 1, ended.stderr
    assert f"{change(key, old, new)} cannot change within a run" in ended.stderr
    assert hashes(run_dir) == before


def test_forbidden_keys_never_change(resume, trainings, run_dir):
    ended = resume(FORBIDDEN, *(f"--allow-change={key}" for key, _, _ in FORBIDDEN))
    assert ended.status == 1
    for key, old, new in FORBIDDEN:
        assert f"{change(key, old, new)} cannot change within a run" in ended.stderr
    check_forbidden(trainings, run_dir, *FORBIDDEN[1])


def test_other_text_is_never_trained_on(resume, toy):
    """These keys decide what preprocess writes; they are compared before the prepared text is."""
    ended = resume(OTHER_TEXT, *(f"--allow-change={key}" for key, _, _ in OTHER_TEXT))
    assert ended.status == 1
    for key, _, _ in OTHER_TEXT:
        assert f"{key} (was " in ended.stderr
    assert ended.stderr.count("cannot change within a run") == len(OTHER_TEXT)
    assert "--force" not in ended.stderr


def test_forty_keys_are_tried():
    assert len({key for key, _, _ in FREE + DECLARED + FORBIDDEN + OTHER_TEXT}) >= 40
