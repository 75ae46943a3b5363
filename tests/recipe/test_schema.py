"""The recipe itself: defaults, ranges, and values that only together are wrong."""

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nmt_cli.recipe.schema import Recipe

COSINE = {"schedule": "cosine", "peak_learning_rate": 1e-3, "decay_steps": 5_000}

MINIMAL: dict[str, Any] = {
    "description": "a test",
    "data": {
        "source_language": "en",
        "target_language": "de",
        "train": [{"source": "a.en", "target": "a.de"}],
        "validation": {"source": "b.en", "target": "b.de"},
    },
    "tokenizer": {"vocabulary_size": 500},
}


def recipe_with(section, **values):
    return Recipe.model_validate({**MINIMAL, section: {**MINIMAL.get(section, {}), **values}})


def test_defaults_are_the_papers_base_model():
    recipe = Recipe.model_validate(MINIMAL)
    model, training, decoding = recipe.model, recipe.training, recipe.decoding
    assert (model.num_layers, model.d_model, model.d_ff, model.num_heads) == (6, 512, 2048, 8)
    assert (model.dropout, model.attention_dropout, model.relu_dropout) == (0.1, 0, 0)
    assert (training.tokens_per_step, training.max_steps, training.warmup_steps) == (
        25_000,
        100_000,
        4000,
    )
    assert (training.adam_betas, training.adam_epsilon) == ((0.9, 0.98), 1e-9)
    assert (training.label_smoothing, training.clip_norm) == (0.1, None)
    assert (recipe.checkpoints.every_steps, recipe.checkpoints.keep_for_average) == (1500, 5)
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_extra_length) == (4, 0.6, 50)


def test_a_recipe_cannot_be_changed():
    recipe = Recipe.model_validate(MINIMAL)
    with pytest.raises(ValidationError, match="frozen"):
        recipe.training.seed = 2
    assert hash(recipe) == hash(Recipe.model_validate(MINIMAL))


def test_widths_of_a_head_follow_from_d_model_or_are_given():
    model = recipe_with("model", d_model=30, num_heads=5).model
    assert (model.encoder_shape.key_width, model.encoder_shape.value_width) == (6, 6)
    model = recipe_with("model", d_model=30, num_heads=7, d_k=3, d_v=4).model
    assert (model.encoder_shape.key_width, model.encoder_shape.value_width) == (3, 4)


def test_epochs_replace_the_default_interval_in_steps():
    assert recipe_with("checkpoints", every_epochs=2).checkpoints.every_steps is None
    assert recipe_with("validation", every_steps=7).validation.every_epochs is None


def test_paths_are_data_and_never_expanded():
    for text in ("$HOME/x", "~/x", "$(touch x)", "`id`", "%s", "{0}", "../x", "a b"):
        assert recipe_with("tokenizer", vocabulary_size=None, model=text).tokenizer.model == Path(
            text
        )


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("model", {"num_heads": 7}, "num_heads: must divide d_model 512 unless d_k and d_v"),
        ("model", {"num_heads": 7, "d_k": 3}, "num_heads: must divide"),
        (
            "model",
            {"d_model": 15, "num_heads": 5},
            "d_model: must be even for sinusoids, but is 15",
        ),
        (
            "model",
            {"positions": "learned", "max_positions": 1024},
            "max_positions: must be greater than data.max_length 1,024, but is 1,024",
        ),
        (
            "model",
            {"positions": "learned", "sinusoid_frequencies": "tensor2tensor"},
            "sinusoid_frequencies: must be paper for learned positions, but is tensor2tensor",
        ),
        (
            "model",
            {"source_vocabulary_size": 300, "tied_embeddings": "none"},
            "model.source_vocabulary_size: must be null, because tokenizer.shared gives both",
        ),
        (
            "model",
            {"source_vocabulary_size": 300},
            "tied_embeddings: must be decoder or none beside source_vocabulary_size, but is all",
        ),
        (
            "model",
            {"decoder_num_heads": 7},
            "decoder_num_heads: must divide d_model 512 unless d_k and d_v are given, but is 7",
        ),
        (
            "model",
            {"positions": "learned", "first_position": 2},
            "first_position: must be 0 for learned positions, but is 2",
        ),
        ("training", {"tokens_per_step": 1024}, "tokens_per_step: must hold the longest sentence"),
        ("training", {"warmup_start": 0.1}, "warmup_start: needs peak_learning_rate"),
        (
            "training",
            {"warmup_start": 0.1, "peak_learning_rate": 0.05},
            "warmup_start: must be at most peak_learning_rate 0.05, but is 0.1",
        ),
        (
            "training",
            {"learning_rate_factor": 2, "peak_learning_rate": 0.05},
            "learning_rate_factor: must be 1.0 beside peak_learning_rate, but is 2",
        ),
        ("training", {"schedule": "constant"}, "peak_learning_rate: is missing; schedule constant"),
        (
            "training",
            {"schedule": "cosine", "peak_learning_rate": 1e-3},
            "decay_steps: is missing; schedule cosine needs a number",
        ),
        (
            "training",
            {"schedule": "wsd", "peak_learning_rate": 1e-3, "decay_steps": 10},
            "stable_steps: is missing; schedule wsd needs a number",
        ),
        (
            "training",
            {**COSINE, "stable_steps": 5},
            "stable_steps: must be null with schedule cosine, but is 5",
        ),
        (
            "training",
            {"decay_steps": 5_000},
            "decay_steps: must be null with schedule noam, but is 5,000",
        ),
        (
            "training",
            {"final_learning_rate": 1e-5},
            "final_learning_rate: must be 0 with schedule noam, but is 1e-05",
        ),
        (
            "training",
            {**COSINE, "final_learning_rate": 2e-3},
            "final_learning_rate: must be at most peak_learning_rate 0.001, but is 0.002",
        ),
        (
            "training",
            {**COSINE, "max_steps": 9_001},
            "max_steps: must be at most 9,000 (warmup_steps + decay_steps), where the learning "
            "rate becomes 0, but is 9,001",
        ),
        (
            "distillation",
            {"targets": 9},
            "targets: must be at most n_best 8, but is 9",
        ),
        (
            "validation",
            {"bleu": "off", "best_by": "bleu"},
            "best_by: must be loss if bleu is off",
        ),
        (
            "validation",
            {"best_by": "parseval"},
            "best_by: must be loss if parseval is off",
        ),
        (
            "decoding",
            {"well_formed_trees": True},
            "well_formed_trees: needs data.treebank",
        ),
        ("validation", {"every_steps": None}, "every_steps: is null, and so is every_epochs"),
        ("checkpoints", {"every_steps": 1, "every_epochs": 1}, "every_epochs: must be null beside"),
        ("data", {"max_length": 3, "filters": {"min_length": 4}}, "filters.min_length: must be at"),
        ("tokenizer", {"joiner": "@@"}, "joiner: needs type whitespace, but type is sentencepiece"),
        (
            "tokenizer",
            {"shared": False, "sampling": 0.1},
            "sampling: must be null with shared: false, because it needs one SentencePiece model",
        ),
        (
            "tokenizer",
            {"split_digits": True, "vocabulary_size": None, "model": "m"},
            "split_digits: must be false or left out beside model, which has its own vocabulary, "
            "but is true",
        ),
        (
            "tokenizer",
            {"type": "whitespace", "byte_fallback": False},
            "byte_fallback: must be true with type whitespace, but is false",
        ),
        (
            "tokenizer",
            {"byte_fallback": False, "vocabulary_size": 4, "user_defined_symbols": ["x"]},
            "vocabulary_size: must be at least 5 (3 marks, 1 symbol and a piece), but is 4",
        ),
        ("tokenizer", {"vocabulary_size": None}, "vocabulary_size: is missing"),
        ("tokenizer", {"model": "x.model"}, "vocabulary_size: must be null beside model"),
        ("tokenizer", {"vocabulary_size": 259}, "vocabulary_size: must be at least 260 "),
        (
            "tokenizer",
            {"type": "whitespace", "sampling": 0.1},
            "sampling: needs type sentencepiece, but type is whitespace",
        ),
        ("tokenizer", {"sampling": 0}, "should be greater than 0"),
        ("tokenizer", {"sampling": 1}, "should be less than 1"),
        ("tokenizer", {"user_defined_symbols": ["(S", "(S"]}, "(S is listed twice"),
        ("tokenizer", {"user_defined_symbols": ["</s>"]}, "</s> is a mark of the model itself"),
        ("tokenizer", {"user_defined_symbols": ["a b"]}, "must be text without white space"),
        ("tokenizer", {"user_defined_symbols": [""]}, "must be text without white space"),
        ("data", {"prepared": "a\0b"}, "must be the path of a file or folder"),
        ("training", {"clip_norm": math.inf}, "should be a finite number"),
        ("training", {"seed": True}, "must be a whole number"),
        ("training", {"seed": 1.0}, "must be a whole number"),
        ("training", {"adam_betas": [0.9, 1]}, "should be less than 1"),
    ],
)
def test_refused(section, values, message):
    with pytest.raises(ValidationError) as caught:
        recipe_with(section, **values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"type": "whitespace", "vocabulary_size": None, "joiner": "@@"},
        {"type": "whitespace", "vocabulary_size": 7},
        {"vocabulary_size": None, "model": "x.model"},
        {"vocabulary_size": 261, "user_defined_symbols": ["(S"]},
        {"sampling": 0.1},
    ],
)
def test_tokenizers_that_are_right(values):
    assert recipe_with("tokenizer", **values)


def test_the_source_of_a_parser_needs_an_end():
    assert not recipe_with("model", source_eos=False).model.source_eos
    message = "model.source_eos: must be true with data.treebank"
    trees = {"data": {**MINIMAL["data"], "treebank": {}}, "validation": {"bleu": "off"}}
    with pytest.raises(ValidationError, match=message):
        Recipe.model_validate({**MINIMAL, **trees, "model": {"source_eos": False}})


ALIGNED = {**MINIMAL["data"], "train": [{"source": "a", "target": "b", "alignments": "c"}]}


@pytest.mark.parametrize(
    ("data", "guided", "message"),
    [
        (MINIMAL["data"], {}, "training.guided_alignment: needs alignments of a corpus of"),
        (ALIGNED, {"layer": 7}, "guided_alignment.layer: must be at most 6, the layers of the"),
        (ALIGNED, {"head": 9}, "guided_alignment.head: must be at most 8, the heads of the"),
        (ALIGNED, {"weight": 0}, "should be greater than 0"),
        ({**ALIGNED, "treebank": {}}, None, "train.0.alignments: must be null beside treebank"),
    ],
)
def test_guided_alignment_refused(data, guided, message):
    recipe = {**MINIMAL, "data": data, "training": {"guided_alignment": guided}}
    with pytest.raises(ValidationError, match=message):
        Recipe.model_validate(recipe)


def test_a_head_of_the_decoder_is_guided():
    recipe = {**MINIMAL, "data": ALIGNED, "model": {"num_layers": 2, "decoder_num_layers": 3}}
    recipe["training"] = {"guided_alignment": {"layer": 3, "head": 8, "decay_steps": 10}}
    assert Recipe.model_validate(recipe)


def test_a_parser_has_no_tokenizer_of_bleu():
    data = {**MINIMAL["data"], "treebank": {}}
    validation = {"bleu": "off", "tokenize": "zh"}
    with pytest.raises(
        ValidationError, match=r"validation\.tokenize: must be null with data\.tree"
    ):
        Recipe.model_validate({**MINIMAL, "data": data, "validation": validation})


@pytest.mark.parametrize(
    ("shared", "model", "tied"),
    [
        (False, {}, "decoder"),
        ("false", {"num_layers": 2}, "decoder"),  # as YAML and --set give it
        (False, {"tied_embeddings": "none"}, "none"),
        (True, {}, "all"),
    ],
)
def test_two_vocabularies_share_no_matrix_by_default(shared, model, tied):
    tokenizer = {**MINIMAL["tokenizer"], "shared": shared}
    recipe = Recipe.model_validate({**MINIMAL, "tokenizer": tokenizer, "model": model})
    assert recipe.model.tied_embeddings == tied


def test_two_vocabularies_cannot_share_all_matrices():
    separate = {"tokenizer": {**MINIMAL["tokenizer"], "shared": False}}
    refused = r"model\.tied_embeddings: must be decoder or none with tokenizer\.shared: false, but"
    with pytest.raises(ValidationError, match=refused):
        Recipe.model_validate({**MINIMAL, **separate, "model": {"tied_embeddings": "all"}})


def test_the_languages_of_a_parser_share_a_vocabulary():
    trees = {"data": {**MINIMAL["data"], "treebank": {}}, "validation": {"bleu": "off"}}
    separate = {"tokenizer": {**MINIMAL["tokenizer"], "shared": False}}
    with pytest.raises(ValidationError, match=r"tokenizer\.shared: must be true with data\.tree"):
        Recipe.model_validate({**MINIMAL, **trees, **separate})
    assert not Recipe.model_validate({**MINIMAL, **separate}).tokenizer.shared
