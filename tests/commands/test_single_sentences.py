"""How much of the training text is single sentences goes from preprocess to translate."""

import json
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.commands import attention, average_checkpoints, train, translate
from nmt_cli.files.atomic_files import read_manifest, write_manifest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.recipe.model_settings import read_settings
from nmt_cli.saved.model_directory import find_model
from nmt_cli.training import validation
from nmt_cli.translating.translator import Translator
from tests.commands.conftest import FP32, TRAIN_OPTIONS

MODEL = Path(__file__).parents[1] / "formats/format_2/sentencepiece/run/average"
TAGGED = ["data.train.0.tag=<2de>", "data.validation.tag=<2de>"]
RESUMED = {"resume": True, "force": False}
ONE, TWO = "a dog runs.", "A dog runs. A man sits."
SAID = (
    "Translated each sentence by itself in line 2, because the model was trained on single "
    "sentences; --no-split-sentences translates lines as a whole."
)
SMALL = [
    "tokenizer.vocabulary_size=290",
    "model={num_layers: 1, d_model: 16, d_ff: 16, num_heads: 2}",
    "training.max_steps=1",
]


def written(corpus, name, num_lines, are_two):
    """Write a corpus in which the lines with these numbers, from 0, have two sentences."""
    lines = [TWO if number in are_two else ONE for number in range(num_lines)]
    corpus.write(f"data/{name}", lines)


def share_of(path):
    return find_model(path).settings.single_sentences


def change(model, **entries):
    """Change what a model's config.json says; None: leave it out."""
    config = json.loads((model / "config.json").read_text()) | entries
    kept = {name: value for name, value in config.items() if value is not None}
    (model / "config.json").write_text(json.dumps(kept))
    facts = read_manifest(model)
    write_manifest(model, {name: fact for name, fact in facts.items() if name != "files"})


def test_every_tenth_source_is_looked_at_and_weighted_as_in_an_epoch(corpus):
    # The pairs are numbered through both corpora: of the second, the eighth is number 90.
    written(corpus, "a.en", 83, {0, 9, 11, 80})  # two of the nine that are looked at
    corpus.write("data/a.de", [f"{TWO} {number}" for number in range(83)])  # does not count
    written(corpus, "b,c.en", 30, {0, 10, 17})  # one of three
    corpus.prepare()
    assert [each["found"]["one_sentence"] for each in read_manifest(corpus.output)["train"]] == [
        {"lines": 7, "of": 9},
        {"lines": 2, "of": 3},
    ]
    assert corpus.opened().single_sentences == round(9 / 12, 4)
    weights = ["data.train.0.weight=2", "data.train.1.weight=0"]
    assert corpus.opened(*weights).single_sentences == round(7 / 9, 4)
    assert corpus.opened("data.train.1.weight=3").single_sentences == round(13 / 18, 4)


def test_models_keep_the_share_of_all_that_they_were_trained_on(corpus):
    corpus.prepare(*SMALL)

    def trained(name, *overrides, **options):
        folder = Path(name)
        train.run(
            "./small.yaml",
            overrides=[*SMALL, *overrides],
            run_dir=folder,
            **{**TRAIN_OPTIONS, **options},
        )
        return folder

    parent = trained("parent")
    assert share_of(parent) == 1.0
    average_checkpoints.run(parent, last=1)
    assert share_of(parent / "average") == 1.0
    for before, expected in ((0.5, 0.5), (None, None)):
        change(parent / "average", single_sentences=before)
        child = trained(f"of-{before}", init_from=parent / "average")
        assert share_of(child) == expected
        trained(f"of-{before}", "training.max_steps=2", resume=True)
        assert share_of(child) == expected
    manifest = read_manifest(corpus.output)
    for report in manifest["train"]:
        del report["found"]["one_sentence"]
    write_manifest(corpus.output, manifest)
    assert share_of(trained("of-older-text")) is None


@pytest.mark.parametrize("share", ["1.0", -0.1, 1.1, True, float("nan")])
def test_what_is_no_share_is_damage(tmp_path, share):
    (tmp_path / "config.json").write_text(
        json.dumps({**json.loads((MODEL / "config.json").read_text()), "single_sentences": share})
    )
    with pytest.raises(DamagedError, match="single sentences is not a number from 0 to 1"):
        read_settings(tmp_path)


@pytest.fixture
def single(tmp_path):
    """A model of an older version that says it was trained on single sentences."""
    model = tmp_path / "model"
    model.mkdir()
    for file in MODEL.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    change(model, single_sentences=1.0)
    return model


def translated(model, folder, lines, **options):
    (folder / "in").write_text("".join(f"{line}\n" for line in lines))
    status = translate.run(
        model,
        input_path=folder / "in",
        output_path=folder / "out",
        arguments=["nmt-cli", "translate"],  # whoever gives them may resume
        **{"force": True, **FP32, **options},
    )
    assert status == 0
    return (folder / "out").read_text().splitlines()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_command_says_once_which_lines_it_cut(single, tmp_path, capfd, workers):
    logs.configure(quiet=False)
    lines = ["jay mole.", "yonder crow. eel! jay mole", "hen"]
    found = translated(single, tmp_path, lines, workers=workers)
    said = capfd.readouterr().err
    assert said.count(SAID) == said.count("--no-split-sentences") == 1
    explicit = translated(single, tmp_path, lines, workers=workers, split_sentences=True)
    assert found == explicit
    whole = translated(single, tmp_path, lines, workers=workers, split_sentences=False)
    assert whole == translated(MODEL, tmp_path, lines, workers=workers)
    assert [one == other for one, other in zip(found, whole, strict=True)] == [True, False, True]
    assert "Translated each sentence" not in capfd.readouterr().err


def test_a_model_that_parses_gets_a_line_as_one_sentence(single, tmp_path):
    parser = MODEL.parents[3] / "format_3/treebank/run/average"
    expected = translated(parser, tmp_path, [TWO])
    for file in parser.iterdir():
        (single / file.name).write_bytes(file.read_bytes())
    change(single, single_sentences=1.0)
    assert translated(single, tmp_path, [TWO]) == expected


def test_attention_is_that_of_a_line_as_one_sentence(single, tmp_path):
    records = list[Any]()
    for model in (single, MODEL):
        output = tmp_path / "attention.json"
        attention.run(model, "jay eel. yonder crow!", output=output, force=True, device="cpu")
        records.append(json.loads(output.read_text()) | {"model": ""})
    assert records[0] == records[1]


@pytest.mark.parametrize(("tags", "expected"), [([], 1.0), (TAGGED, None)])
def test_validation_cuts_lines_unless_they_have_tags(corpus, monkeypatch, tags, expected):
    corpus.prepare(*SMALL, *tags)
    shares = []

    class Recording(Translator):
        def __init__(self, settings, *others, **options):
            shares.append(settings.single_sentences)
            super().__init__(settings, *others, **options)

    monkeypatch.setattr(validation, "Translator", Recording)
    measuring = "validation={every_steps: 1, bleu: greedy}"
    train.run(
        "./small.yaml",
        overrides=[*SMALL, *tags, measuring],
        run_dir=Path("run"),
        **TRAIN_OPTIONS,
    )
    assert shares == [expected]


def test_the_source_language_has_an_effect_where_lines_may_be_cut(single, tmp_path):
    assert len(translated(single, tmp_path, [TWO], source_language="fr")) == 1
    for model, options in ((MODEL, {}), (single, {"split_sentences": False})):
        with pytest.raises(UserError, match="--source-language has an effect only with"):
            translated(model, tmp_path, [TWO], source_language="fr", **options)


def test_an_unfinished_output_goes_on_only_as_it_was_begun(single, tmp_path):
    first = translated(single, tmp_path, [TWO])
    with pytest.raises(UserError, match="made with other options"):
        translated(single, tmp_path, [TWO], split_sentences=False, **RESUMED)
    assert translated(single, tmp_path, [TWO], **RESUMED) == first
