"""A recipe with a vocabulary for each language, from raw text to an export."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.saved.model_directory import load_model
from tests.conftest import RECIPE, write_pairs

OF_TYPES = {
    "whitespace": "{type: whitespace, shared: false}",
    "sentencepiece": "{vocabulary_size: 300, shared: false}",
}
ON_CPU = ("--device=cpu", "--precision=fp32")


@pytest.fixture(params=OF_TYPES)
def nmt_cli(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path, "train", 60, seed=1)
    write_pairs(tmp_path, "validation", 5, seed=2)
    for name in ("train.de", "validation.de"):  # so that no piece is one of both languages
        path = Path(name)
        path.write_text(path.read_text().upper())
    source = Path("train.en")
    source.write_text(source.read_text().replace("ant", "ant also"))  # its sizes differ
    recipe = RECIPE.format(folder=".").replace("{type: whitespace}", OF_TYPES[request.param])
    Path("toy.yaml").write_text(recipe)

    def run(*arguments, text=None, status=0):
        result = CliRunner().invoke(cli.main, arguments, input=text, catch_exceptions=False)
        assert result.exit_code == status, result.stderr
        return result.stdout if status == 0 else result.stderr

    run("preprocess", "toy.yaml", "--workers=1")
    return run


def test_it_trains_resumes_averages_translates_and_scores(nmt_cli):
    manifest = json.loads(Path("prepared/toy/manifest.json").read_text())
    nmt_cli("train", "toy.yaml", "--set=training.max_steps=6", *ON_CPU)
    nmt_cli("train", "toy.yaml", "--resume", *ON_CPU)
    nmt_cli("train", "toy.yaml", "--run-dir=runs/whole", *ON_CPU)
    steps = [load_model(Path(f"runs/{run}/checkpoints/step-00000012")) for run in ("toy", "whole")]
    weights = [dict(each.model.named_parameters()) for each in steps]
    for name, weight in weights[0].items():
        assert weight.equal(weights[1][name]), name
    nmt_cli("average-checkpoints", "runs/toy")
    average = load_model(Path("runs/toy/average"))
    rows = average.model.source_embedding.weight.shape[0], average.model.output_weight.shape[0]
    assert rows == (manifest["source_vocabulary_size"], manifest["vocabulary_size"])
    assert rows == (average.tokenizer.source_size, average.tokenizer.size)
    source = Path("validation.en").read_text()
    translations = nmt_cli("translate", "runs/toy", *ON_CPU, text=source)
    assert translations.count("\n") == 5
    assert translations == translations.upper()  # pieces of the target's vocabulary
    assert "unknown" not in nmt_cli(
        "rescore", "runs/toy", "validation.en", "validation.de", *ON_CPU
    )
    # A child has the pieces of both vocabularies.
    child = ("--run-dir=runs/child", "--init-from=runs/toy", "--set=training.max_steps=1")
    nmt_cli("train", "toy.yaml", *child, "--set=validation.bleu=off", *ON_CPU)
    manifest = Path("runs/child/checkpoints/step-00000001/manifest.json").read_text()
    facts = json.loads(manifest)["initialized_from"]
    assert facts["pieces_matched"] == facts["vocabulary_size"]


def test_ctranslate2_computes_the_same(nmt_cli):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    short = ("--set=training.max_steps=1", "--set=validation.bleu=off")
    nmt_cli("train", "toy.yaml", *short, *ON_CPU)
    nmt_cli("export", "runs/toy", "--format=ctranslate2", "--output=exported", "--verify=4")
    assert (Path("exported") / "source_vocabulary.json").exists()


def test_inspect_counts_both_vocabularies_before_and_after_the_text_is_prepared(nmt_cli):
    manifest = json.loads(Path("prepared/toy/manifest.json").read_text())
    sizes = manifest["vocabulary_size"], manifest["source_vocabulary_size"]
    found = json.loads(nmt_cli("inspect", "toy.yaml", "--format=json"))
    assert found["architecture"]["source_vocabulary_size"] == sizes[1]
    assert found["parameters"]["embeddings"] == 20 * sum(sizes)
    given = ("--vocabulary-size=50", "--set=data.prepared=nowhere")
    found = json.loads(nmt_cli("inspect", "toy.yaml", "--format=json", *given))
    assert found["parameters"]["embeddings"] == 20 * 100


def test_another_size_than_that_of_the_text_is_refused(nmt_cli):
    wrong = "--set=model.source_vocabulary_size=7"
    error = nmt_cli("train", "toy.yaml", wrong, *ON_CPU, status=1)
    assert "pieces of the source, but model.source_vocabulary_size is 7. Run: nmt-cli pre" in error
    assert error.count("\n") == 1
