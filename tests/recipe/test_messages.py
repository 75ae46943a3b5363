"""Every wrong recipe is refused, each problem named at its line with what would be right."""

import random
from collections import defaultdict
from itertools import zip_longest

import pytest

from nmt_cli.recipe.keys import recipe_keys
from nmt_cli.recipe.reading.reader import read_recipe
from tests.recipe.conftest import problems_of

SHARES = {
    *("data.filters.min_letters", "data.filters.min_script", "data.filters.min_equal_digits"),
    *("data.filters.max_urls", "data.filters.max_repeated_ngrams", "data.filters.min_language"),
}
# Every key of a recipe against every wrong value; the few pairs that are right are listed.
OPTIONAL_KEYS = {
    *("data.test", "data.prepared", "data.filters.max_length_ratio", "tokenizer.model"),
    *("tokenizer.joiner", "tokenizer.sampling", "model.d_k", "model.d_v", "training.max_epochs"),
    *("training.peak_learning_rate", "training.clip_norm", "training.ema_decay"),
    *("training.quantization_aware", "distillation.guided_alignment"),
    *("training.stable_steps", "training.decay_steps", "data.normalization.fold"),
    *(
        "model.source_vocabulary_size",
        "model.decoder_num_layers",
        "model.decoder_d_ff",
        "model.decoder_num_heads",
        "model.attention_window",
        "model.from",
    ),
    *("validation.patience", "validation.every_epochs", "checkpoints.every_epochs"),
    *("data.validation.name", "data.test.name", "validation.best_on"),
    *("data.filters.min_words", "data.filters.max_words", "data.filters.max_words_ratio"),
    *("data.filters.min_characters", "data.filters.max_characters"),
    *("data.filters.max_characters_ratio", "data.filters.max_word_length"),
    *SHARES,
    *("data.validation.tag", "data.test.tag", "data.mixing.temperature"),
    *("data.validation.tsv", "data.validation.jsonl", "data.validation.columns"),
    *("data.test.tsv", "data.test.jsonl", "data.test.columns"),
    *("data.validation.memory", "data.test.memory"),
    *("data.validation.inline_tags", "data.test.inline_tags"),
    *("data.validation.languages", "data.test.languages"),
}
NAMES_OF_SETS = {"data.validation.name", "data.test.name"}
MAY_BE_ZERO = {
    *("model.dropout", "model.attention_dropout", "model.relu_dropout", "training.warmup_start"),
    *("training.weight_decay", "training.final_learning_rate"),
    *("training.label_smoothing", "training.seed", "decoding.length_penalty"),
    *("decoding.max_extra_length", "model.first_position", "distillation.augmented_copies"),
    *("distillation.original_weight", "distillation.int8_steps"),
    *SHARES,
}
TAKES_ANY_TEXT = {
    *("description", "data.prepared", "data.validation.source", "data.validation.target"),
    *("data.test.source", "data.test.target", "tokenizer.model"),
    *("data.validation.tag", "data.test.tag"),
    *("data.validation.tsv", "data.validation.jsonl", "data.test.tsv", "data.test.jsonl"),
    *("data.validation.memory", "data.test.memory"),
}
WRONG_VALUES = {
    "x y": TAKES_ANY_TEXT - {"data.validation.tag", "data.test.tag"},
    "[[]]": set(),
    "{a: b}": set(),
    "null": OPTIONAL_KEYS,
    "-1": TAKES_ANY_TEXT,
    "0": MAY_BE_ZERO | TAKES_ANY_TEXT | NAMES_OF_SETS,
    ".nan": TAKES_ANY_TEXT,
    "1e30": TAKES_ANY_TEXT | NAMES_OF_SETS,
    "true": {
        *TAKES_ANY_TEXT,
        *NAMES_OF_SETS,
        "data.normalization.nfc",
        "data.normalization.punctuation",
        "data.normalization.fold",
    }
    | {"data.filters.remove_duplicates", "data.source_language", "data.target_language"}
    | {"data.filters.remove_duplicate_sources", "data.filters.remove_duplicate_targets"}
    | {"data.filters.remove_held_out", "data.filters.remove_held_out_sentences"}
    | {"data.filters.remove_copies", "validation.best_on_mean"}
    | {"data.filters.remove_different_urls"}
    | {"model.attention_biases", "model.feed_forward_biases", "model.embedding_norm"}
    | {"tokenizer.byte_fallback", "tokenizer.split_digits", "tokenizer.shared"}
    | {"model.scale_embeddings", "model.output_bias", "model.source_eos"}
    | {"distillation.shortlist"},
    "": OPTIONAL_KEYS,
    "017": TAKES_ANY_TEXT | NAMES_OF_SETS,
    '"\\0"': {"description"},
}
KEYS = list(recipe_keys())
REFERS_TO_A_NAME = "validation.best_on"  # any name may be right
SECTIONS = {key.rpartition(".")[0] for key in KEYS}
# Keys that are right only beside others.
BESIDE_OTHERS = (
    *("data.train.", "data.stages.", "training.guided_alignment."),
    *("distillation.monolingual.", "distillation.teacher."),
)
LEAVES = [key for key in KEYS if key not in SECTIONS and not key.startswith(BESIDE_OTHERS)]


def keys_of_each_section(keys):
    """Yield keys together, at most one of each section; model.from, which is read first, alone."""
    sections = defaultdict(list)
    for key in keys:
        if key == "model.from":
            yield [key]
        else:
            sections[key.split(".")[0]].append(key)
    for together in zip_longest(*sections.values()):
        yield [key for key in together if key is not None]


def test_wrong_values_of_every_key_are_refused_by_name():
    num_mutations = 0
    for text, right_for in WRONG_VALUES.items():
        wrong = [key for key in LEAVES if key not in right_for | {REFERS_TO_A_NAME}]
        # Some keys may not be true because of others, which is seen once every value is right.
        for keys in keys_of_each_section(wrong) if text != "true" else ([key] for key in wrong):
            lines = problems_of("quickstart", [f"{key}={text}" for key in keys])
            for key in keys:
                section = key.split(".")[0]
                assert any(section in line and "--set" in line for line in lines), (key, text)
        num_mutations += len(wrong)
    assert num_mutations >= 500


def test_values_listed_as_right_are_taken():
    for text, right_for in WRONG_VALUES.items():
        for key in sorted(right_for):
            assert read_recipe("quickstart", [f"{key}={text}"]).recipe, (key, text)


def test_all_problems_are_reported_at_once_at_their_lines(write):
    path = write(
        """\
extends: quickstart
tokenizer:
  joinr: x
model:
  num_layers: 0
  num_head: 3
  dropout: .nan
  max_steps: 4
training:
  adam_betas: [0.9]
  seed: 1
  seed: 2
  warmup_start: 1
validation:
  bleu: none
gadgets: {}
decoding: fast
"""
    )
    lines = problems_of(path, ["decoding.beam_size=0", "validation.patience=x"])
    assert [line.removeprefix(path) for line in lines] == [
        "--set: validation.patience: must be a whole number in plain digits, but is x",
        "--set: decoding.beam_size: must be at least 1, but is 0",
        ":3: tokenizer.joinr: is not a key of a recipe; did you mean joiner?",
        ":5: model.num_layers: must be at least 1, but is 0",
        ":6: model.num_head: is not a key of a recipe; did you mean num_heads?",
        ":7: model.dropout: must be a number such as 0.1 or 1e-9, but is .nan",
        ":8: model.max_steps: is not a key of a recipe; max_steps belongs under training",
        ":10: training.adam_betas.1: is missing; the list has too few entries",
        ":12: training.seed: is given twice, first on line 11",
        ":15: validation.bleu: must be beam, greedy or off, but is none",
        ":16: gadgets: is not a key of a recipe; known keys here: description, data, tokenizer, "
        "model, training, validation, checkpoints, decoding, distillation",
        ":17: decoding: must be a section, but is fast",
    ]


def test_a_number_that_is_off_in_other_programs_may_be_null_here():
    """Where a key may be; the remedy that is named is taken."""
    for key, off, least in (
        ("training.clip_norm", "0.0", "must be greater than 0"),
        ("validation.patience", "0", "must be at least 1"),
    ):
        expected = f"--set: {key}: {least}, or null, but is {off}"
        assert problems_of("base", [f"{key}={off}"]) == [expected]
        assert read_recipe("base", [f"{key}=null"])


def test_a_missing_key_is_named_where_its_section_stands(write):
    path = write("description: x\ndata:\n  train:\n    - source: a\n  source_language: en\n")
    lines = problems_of(path)
    assert any(line.startswith(f"{path}:2: data.target_language: is missing") for line in lines)
    assert any(line.startswith(f"{path}:4: data.train.0.target: is missing") for line in lines)
    assert any(line.startswith(f"{path}:1: tokenizer: is missing") for line in lines)


def test_values_that_do_not_fit_together_name_key_and_line(write):
    path = write("extends: quickstart\nmodel:\n  d_model: 512\n  num_heads: 7\n")
    assert problems_of(path) == [
        f"{path}:4: model.num_heads: must divide d_model 512 unless d_k and d_v are given, but is 7"
    ]


def test_a_step_that_is_too_small_for_the_longest_sentence_has_two_remedies():
    overrides = ["data.max_length=1000", "training.tokens_per_step=800"]
    assert problems_of("quickstart", overrides) == [
        "--set: training.tokens_per_step: must hold the longest sentence, data.max_length 1,000 "
        "and its end, but is 800; raise it to 1001, or lower data.max_length to 799"
    ]
    for overrides[0], overrides[1] in (
        ("data.max_length=1000", "training.tokens_per_step=1001"),
        ("data.max_length=799", "training.tokens_per_step=800"),
    ):
        assert read_recipe("quickstart", overrides)


def test_a_training_needs_an_end_in_steps_or_in_epochs():
    recipe = read_recipe("quickstart", ["training.max_steps=null", "training.max_epochs=3"]).recipe
    assert (recipe.training.max_steps, recipe.training.max_epochs) == (None, 3)
    assert problems_of("quickstart", ["training.max_steps=null"]) == [
        "--set: training.max_steps: must be a number if max_epochs is null, but both are null"
    ]


def test_nothing_is_called_null_as_in_the_recipe():
    assert problems_of("quickstart", ["training.seed=null"]) == [
        "--set: training.seed: must be a whole number in plain digits, but is null"
    ]


def test_thousands_of_problems_are_cut_short(write):
    path = write("extends: quickstart\nmodel:\n" + "".join(f"  x{i}: 1\n" for i in range(5000)))
    lines = problems_of(path)
    assert len(lines) == 101
    assert lines[-1] == "and 4,900 more problems"


# One wrong letter in each key of the default recipe.
def typos_of(name, rng):
    at = rng.randrange(1, len(name))
    yield name[:at] + name[at + 1 :]
    yield name[:at] + rng.choice("aeionrst") + name[at + 1 :]
    yield name[:at] + name[at] + name[at:]


def test_one_wrong_letter_gets_the_right_proposal():
    rng = random.Random(1)
    tried, right = 0, 0
    for key in LEAVES:
        section, _, name = key.rpartition(".")
        for typo in typos_of(name, rng):
            if typo == name:
                continue
            wrong = f"{section}.{typo}" if section else typo
            lines = problems_of("quickstart", [f"{wrong}=1"])
            tried += 1
            right += any(f"did you mean {name}?" in line for line in lines)
    assert tried > 150
    assert right / tried >= 0.9


@pytest.mark.parametrize(
    ("key", "proposal"),
    [
        ("training.max-steps", "did you mean max_steps?"),
        ("training.Max_Steps", "did you mean max_steps?"),
        ("max_steps", "max_steps belongs under training"),
        ("training.dropout", "dropout belongs under model"),
        ("training.every_steps", "every_steps belongs under validation or checkpoints"),
        ("data.remove_duplicates", "remove_duplicates belongs under data.filters"),
        ("model.learning_rate", "did you mean training.peak_learning_rate?"),
        ("training.max_update", "did you mean training.max_steps?"),
        ("decoding.beam", "did you mean decoding.beam_size?"),
        ("model.label_smoothin", "did you mean training.label_smoothing?"),
        (
            "decoding.zzzzzz",
            "known keys here: beam_size, length_penalty, max_extra_length, well_formed_trees",
        ),
    ],
)
def test_unknown_keys_get_a_proposal(key, proposal):
    assert problems_of("quickstart", [f"{key}=1"]) == [
        f"--set: {key}: is not a key of a recipe; {proposal}"
    ]
