"""Folders of every format that a release wrote: they translate, resume and average as they did."""

import json
import shutil
from itertools import product
from pathlib import Path

import pytest
import torch

from nmt_cli.commands import average_checkpoints, train
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.files import formats
from nmt_cli.files.atomic_files import write_manifest
from nmt_cli.files.folders import MODEL_KINDS
from nmt_cli.files.formats import OtherFormatError
from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.tree_output import Repairs
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.translating.translator import Translator
from tests.interchange.import_command import assert_scores
from tests.interop.marian_models import read_scores
from tests.saved_weights import read_weights

HERE = Path(__file__).parent
FORMATS = sorted(path.parent.name for path in HERE.glob("format_*/whitespace"))
EVERY = sorted(HERE.glob("format_*/*"))
TREEBANK = HERE / "format_3/treebank"  # models that parse have a format of their own
INT8 = HERE / "format_4/int8/run/average"  # of the checkpoint of format_2/whitespace
MARIAN = HERE.parent / "interop/marian"  # the models that the imported ones were made of
NAMES = ("sentencepiece", "whitespace")
STEP = "step-00001200"
NEW = Path("new")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a function that copies the folders of a format to where one may write."""

    def copy(version, name):
        for source in (HERE / "text", HERE / version / name):
            shutil.copytree(source, tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return copy


def resume(name):
    """Train to the end of the recipe, in the copied folders."""
    train.run(
        f"{name}.yaml",
        prepared=Path("prepared"),
        run_dir=Path("run"),
        resume=True,
        device="cpu",
        precision="fp32",
        threads=1,
    )


def expected_translations(name, model):
    lines = (HERE / "expected" / f"{name}-{model}.tsv").read_text().splitlines()
    return [line.split("\t")[2:] for line in lines]


@pytest.mark.parametrize("model", ["average", STEP])
@pytest.mark.parametrize(
    ("version", "name"),
    [
        *product(FORMATS, NAMES),
        ("format_4", "options"),
        *product(["format_5"], ["recurrent", "windowed"]),
    ],
)
def test_models_translate_as_they_did(version, name, model):
    run_dir = HERE / version / name / "run"
    path = run_dir / model if model == "average" else run_dir / "checkpoints" / model
    translator = Translator.load(path, device="cpu", precision="fp32")
    expected = expected_translations(name, model)
    lines = (HERE / "text/validation.en").read_text().splitlines()[: len(expected)]
    for found, (score, text) in zip(translator.translate(lines), expected, strict=True):
        assert found.text == text
        assert found.score == pytest.approx(float(score), abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", FORMATS)
def test_checkpoints_and_prepared_corpora_resume_and_average_as_they_did(version, name, folder):
    path = folder(version, name)
    resume(name)
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    expected = json.loads((HERE / "expected" / f"{name}-losses.json").read_text())
    assert losses == pytest.approx(expected, rel=1e-4)

    assert [checkpoint.step for checkpoint in list_checkpoints(path / "run")] == [1200, 1210]
    average_checkpoints.run(Path("run"), output=Path("average"))
    found = read_weights(path / "average")
    for weights, saved in read_weights(HERE / version / name / "run/average").items():
        assert torch.allclose(found[weights], saved, atol=1e-4), weights


def test_every_version_of_every_kind_is_kept_here():
    kinds = {"average": "run/average", "regular": f"run/checkpoints/{STEP}", "prepared": "prepared"}
    for kind, place in kinds.items():
        found = {
            json.loads((folder / place / "manifest.json").read_text())["format_version"]
            for folder in EVERY
            if (folder / place).exists()
        }
        assert found == set(formats.read_versions(kind))
    assert set(MODEL_KINDS) == formats.OF_MODELS


@pytest.mark.parametrize("model", ["average", f"checkpoints/{STEP}"])
def test_models_that_parse_parse_as_they_did(model):
    """They were trained until they knew the validation trees, which are the expected ones."""
    recipe = read_recipe(str(TREEBANK / "run/recipe.yaml")).recipe
    corpus = open_prepared(TREEBANK / "prepared", recipe, "")
    translator = Translator.load(TREEBANK / "run" / model, device="cpu", precision="fp32")
    parses = list(translator.translate(corpus.validation[0].lines("source")))
    assert [parse.text for parse in parses] == corpus.validation[0].lines("target")
    assert [parse.repairs for parse in parses] == [Repairs()] * len(parses)


def test_models_are_written_for_older_programs_too():
    """Each has the oldest format that can hold it."""
    versions = {"sentencepiece": 2, "treebank": 3, "options": 4, "recurrent": 5, "windowed": 5}
    for name, version in versions.items():
        settings = read_recipe(str(HERE / f"text/{name}.yaml")).recipe
        assert settings_of(settings, 40).format_version == version
    assert formats.written_version("average") == formats.written_version("regular") == 2
    assert formats.written_version("prepared") == 1


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_model_stored_in_int8_translates_as_the_one_it_was_made_of(precision):
    expected = expected_translations("whitespace", STEP)
    lines = (HERE / "text/validation.en").read_text().splitlines()[: len(expected)]
    translator = Translator.load(INT8, device="cpu", precision=precision)
    for found, (score, text) in zip(translator.translate(lines), expected, strict=True):
        assert found.text == text
        assert found.score == pytest.approx(float(score), abs=0.1)


@pytest.mark.parametrize("name", ["sentencepiece", "separate"])
def test_imported_models_compute_what_marian_computed(name):
    pairs, expected = read_scores(MARIAN / name)
    assert_scores(HERE / f"format_4/imported_{name}/run/average", pairs, expected)


USES_OF_MODELS = [
    ("run/average", lambda: Translator.load("run/average")),
    (f"run/checkpoints/{STEP}", lambda: Translator.load("run/checkpoints/" + STEP)),
    (f"run/checkpoints/{STEP}", lambda: average_checkpoints.run(Path("run"), output=Path("new"))),
    (f"run/checkpoints/{STEP}", lambda: resume("whitespace")),
]


@pytest.mark.parametrize(
    ("place", "use"), [*USES_OF_MODELS, ("prepared", lambda: resume(NAMES[1]))]
)
def test_a_newer_format_is_one_clear_line(place, use, folder):
    change_manifest(folder(FORMATS[-1], "whitespace") / place, format_version=7)
    with pytest.raises(OtherFormatError, match=r"has format version 7 .* install a newer") as error:
        use()
    assert "\n" not in str(error.value)


def change_manifest(path, without=(), **facts):
    """Write the manifest of a folder again with other ``facts``, and without some."""
    manifest = json.loads((path / "manifest.json").read_text())
    kept = {k: v for k, v in manifest.items() if k not in ("files", "manifest_sha256", *without)}
    (path / "manifest.json").unlink()
    write_manifest(path, {**kept, **facts})


@pytest.mark.parametrize(("place", "use"), USES_OF_MODELS)
def test_the_format_before_the_first_release_is_one_line_with_what_converts_it(place, use, folder):
    change_manifest(folder("format_2", "whitespace") / place, format_version=1)
    Path("converted").mkdir()
    average = f"nmt-cli average-checkpoints {place} --checkpoints {place} --output converted-2"
    message = f"{place}/manifest.json has format version 1 .* reads 2 to 5.* it: {average}"
    with pytest.raises(OtherFormatError, match=f"{message}$") as error:
        use()
    assert "\n" not in str(error.value)


def test_a_checkpoint_of_before_the_first_release_is_not_resumed_but_a_model(folder):
    path = folder("format_2", "whitespace") / f"run/checkpoints/{STEP}"
    change_manifest(path, without=["epoch", "first_batch_of_epoch"])
    with pytest.raises(UserError, match=rf"{STEP} cannot be resumed .* before release 0\.2\.0"):
        resume("whitespace")
    assert Translator.load(path, device="cpu").translate(["bee"])


def test_text_of_before_the_first_release_is_prepared_again(folder):
    path = folder("format_2", "whitespace") / "prepared"
    data = json.loads((path / "manifest.json").read_text())["data"]
    del data["normalization"]["fold"]
    change_manifest(path, data=data)
    again = (
        r"prepared was made before release 0\.2\.0 .* Make it again: nmt-cli preprocess .*--force"
    )
    with pytest.raises(UserError, match=again):
        resume("whitespace")
