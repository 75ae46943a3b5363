"""What a changed recipe means to a training that is resumed."""

import re

import pytest

from nmt_cli.recipe.keys import (
    FOLD,
    Change,
    ChangeKind,
    change_kind,
    changed_keys,
    changes_of_quality,
    recipe_keys,
)
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.schema import with_fold
from nmt_cli.recipe.sections.corpora import Augmentation
from nmt_cli.recipe.sections.training import (
    DistillationConfig,
    MonolingualText,
    TeacherConfig,
    ValidationConfig,
)


def changes(*overrides):
    return changed_keys(read_recipe("base").recipe, read_recipe("base", overrides).recipe)


def test_equal_recipes_have_no_changes():
    assert changes() == []
    assert changes("training.max_steps=100000", "training.adam_epsilon=0.000000001") == []


def test_old_and_new_value_and_kind_of_each_key():
    assert changes("model.d_ff=8", "training.seed=2", "training.max_steps=9") == [
        Change("model.d_ff", 2048, 8, ChangeKind.FORBIDDEN),
        Change("training.max_steps", 100_000, 9, ChangeKind.FREE),
        Change("training.seed", 1, 2, ChangeKind.DECLARED),
    ]


def test_a_change_is_shown_as_recipes_write_values():
    shown = map(
        str, changes("training.clip_norm=2", "data.test=null", "data.normalization.nfc=true")
    )
    assert list(shown)[-3:] == [
        "data.test.target (was data/wmt14-en-de/newstest2014.de, is null)",
        "data.normalization.nfc (was false, is true)",
        "training.clip_norm (was null, is 2.0)",
    ]


def test_what_preprocess_decides_is_no_change_of_the_user():
    undecided = read_recipe("base").recipe
    for decided in (with_fold(undecided, fold=True), with_fold(undecided, fold=False)):
        assert changed_keys(undecided, decided) == changed_keys(decided, undecided) == []
    assert [change.key for change in changes("data.normalization.fold=false")] == []
    folded, kept = (read_recipe("base", [f"{FOLD}={value}"]).recipe for value in ("true", "false"))
    assert changed_keys(folded, kept) == [Change(FOLD, True, False, ChangeKind.FORBIDDEN)]


FREE = [
    "description",
    "data.train.0.name",
    "data.prepared",
    "data.test.source",
    "data.test.target",
    "data.test.tag",
    "data.test.languages",
    "data.test.columns",
    "data.test.inline_tags",
    "data.test.jsonl",
    "data.test.memory",
    "data.test.name",
    "data.test.tsv",
    "training.max_steps",
    "training.max_epochs",
    "validation.every_steps",
    "validation.every_epochs",
    "validation.bleu",
    "validation.parseval",
    "validation.patience",
    "validation.robustness",
    "validation.tokenize",
    "checkpoints.every_steps",
    "checkpoints.every_epochs",
    "checkpoints.keep_for_average",
    "decoding.beam_size",
    "decoding.length_penalty",
    "decoding.max_extra_length",
    "decoding.well_formed_trees",
    *(f"distillation.monolingual.{name}" for name in MonolingualText.model_fields),
    *(f"distillation.teacher.{name}" for name in TeacherConfig.model_fields),
    *(
        f"distillation.{name}"
        for name in DistillationConfig.model_fields
        if name not in {"monolingual", "teacher"}
    ),
]
DECLARED = [
    "data.train.0.weight",
    "data.mixing.temperature",
    "data.mixing.over",
    "data.stages.0.shares",
    "data.stages.0.weights",
    "data.stages.0.until.steps",
    "data.stages.0.until.epochs",
    "data.stages.0.until.patience",
    *(f"data.train.0.augment.{name}" for name in Augmentation.model_fields),
    "model.dropout",
    "model.attention_dropout",
    "model.relu_dropout",
    "tokenizer.sampling",
    "training.tokens_per_step",
    "training.weight_decay",
    "training.schedule",
    "training.stable_steps",
    "training.decay_steps",
    "training.final_learning_rate",
    "training.warmup_steps",
    "training.learning_rate_factor",
    "training.peak_learning_rate",
    "training.warmup_start",
    "training.label_smoothing",
    "training.adam_betas",
    "training.adam_epsilon",
    "training.clip_norm",
    "training.quantization_aware",
    "training.guided_alignment.weight",
    "training.guided_alignment.decay_steps",
    "training.guided_alignment.layer",
    "training.guided_alignment.head",
    "training.seed",
    "validation.best_by",
    "validation.best_on",
    "validation.best_on_mean",
]


def test_the_schema_marks_what_each_key_affects():
    keys = recipe_keys().values()
    assert [key.name for key in keys if key.section is None and key.effect is None] == []


def test_every_key_may_change_as_the_schema_marks_it():
    kinds = {
        re.sub(r"^data\.(train|stages)\.", r"data.\1.0.", key.name): change_kind(
            key.name, ValidationConfig()
        )
        for key in recipe_keys().values()
        if key.section is None
    }
    for kind, expected in ((ChangeKind.FREE, FREE), (ChangeKind.DECLARED, DECLARED)):
        assert sorted(key for key, found in kinds.items() if found is kind) == sorted(expected)
    assert change_kind("training.gone", ValidationConfig()) is ChangeKind.FORBIDDEN


@pytest.mark.parametrize(
    ("override", "kind"),
    [
        ("description=x", ChangeKind.FREE),
        ("data.test=null", ChangeKind.FREE),
        ("data.test=[{name: a, source: x, target: y}]", ChangeKind.FREE),
        ("data.validation=[{name: a, source: x, target: y}]", ChangeKind.FORBIDDEN),
        ("data.prepared=x", ChangeKind.FREE),
        ("training.max_epochs=3", ChangeKind.FREE),
        ("validation.every_epochs=3", ChangeKind.FREE),
        ("validation.patience=3", ChangeKind.FREE),
        ("checkpoints.keep_for_average=3", ChangeKind.FREE),
        ("decoding.beam_size=3", ChangeKind.FREE),
        ("training.peak_learning_rate=1", ChangeKind.DECLARED),
        ("training.adam_betas=[0.9, 0.9]", ChangeKind.DECLARED),
        ("training.tokens_per_step=2000", ChangeKind.DECLARED),
        ("model.dropout=0.2", ChangeKind.DECLARED),
        ("tokenizer.sampling=0.1", ChangeKind.DECLARED),
        ("training.optimizer=muon", ChangeKind.FORBIDDEN),
        ("model.num_layers=2", ChangeKind.FORBIDDEN),
        ("tokenizer.vocabulary_size=999", ChangeKind.FORBIDDEN),
        ("tokenizer.user_defined_symbols=[a]", ChangeKind.FORBIDDEN),
        ("data.max_length=9", ChangeKind.FORBIDDEN),
        ("data.filters.max_length_ratio=9", ChangeKind.FORBIDDEN),
        ("data.train=[{source: x, target: y}]", ChangeKind.FORBIDDEN),
    ],
)
def test_kinds(override, kind):
    assert {change.kind for change in changes(override)} == {kind}


@pytest.mark.parametrize("override", ["validation.bleu=greedy", "decoding.length_penalty=1"])
def test_how_bleu_is_measured_is_declared_only_where_bleu_decides_the_best(override):
    by_bleu = "validation.best_by=bleu"
    before, after = (read_recipe("base", s).recipe for s in ([by_bleu], [by_bleu, override]))
    (change,) = changed_keys(before, after)
    assert change.kind is ChangeKind.DECLARED
    (change,) = changes(override)
    assert change.kind is ChangeKind.FREE


@pytest.mark.parametrize("override", ["validation.parseval=beam", "decoding.length_penalty=1"])
def test_how_f1_is_measured_is_declared_where_f1_decides_the_best(override):
    before, after = (read_recipe("parsing", given).recipe for given in ([], [override]))
    (change,) = changed_keys(before, after)
    assert change.kind is ChangeKind.DECLARED
    assert changes_of_quality(before, after) == [change.key]


@pytest.mark.parametrize(
    ("search", "kind"), [("greedy", ChangeKind.FREE), ("beam", ChangeKind.DECLARED)]
)
def test_the_beam_size_is_free_where_validation_is_greedy(search, kind):
    given = ["validation.best_by=bleu", f"validation.bleu={search}"]
    before, after = (
        read_recipe("base", [*given, f"decoding.beam_size={size}"]).recipe for size in (4, 5)
    )
    (change,) = changed_keys(before, after)
    assert change.kind is kind
    assert bool(changes_of_quality(before, after)) is (kind is ChangeKind.DECLARED)


@pytest.mark.parametrize("override", ["data.treebank.tags=XX", "data.treebank=null"])
def test_the_notation_of_trees_never_changes(override):
    without = ["validation.parseval=off", "validation.best_by=loss"]
    before, after = (read_recipe("parsing", [*without, *o]).recipe for o in ([], [override]))
    assert {change.kind for change in changed_keys(before, after)} == {ChangeKind.FORBIDDEN}


def test_a_weight_changes_only_the_order_of_the_data():
    corpus = "source: data/wmt14-en-de/train.en, target: data/wmt14-en-de/train.de"
    assert changes(f"data.train=[{{{corpus}, weight: 2}}]") == [
        Change("data.train.0.weight", 1.0, 2.0, ChangeKind.DECLARED)
    ]


def test_an_unknown_key_is_forbidden():
    assert change_kind("training.not_yet_invented", ValidationConfig()) is ChangeKind.FORBIDDEN
