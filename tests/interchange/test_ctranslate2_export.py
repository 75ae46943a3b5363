"""Exports as CTranslate2 itself computes them."""

from pathlib import Path

import numpy as np
import pytest

from nmt_cli.commands import export
from nmt_cli.interchange.ctranslate2 import exporter as ctranslate2_export
from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.torch_models import TorchForcing
from tests.architectures import EXPORTED_SETS
from tests.interchange.conftest import ARCHITECTURES

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

pytestmark = pytest.mark.slow  # CTranslate2 is no dependency of the other tests
PAIRS = [SentencePair([40, 7, 60, 11, 8], [21, 5, 99, 21]), SentencePair([9], [])]


def exported(model, name="out", **options):
    output = model.parent / name
    export.run(
        model,
        output_format="ctranslate2",
        output=output,
        verify=2,
        **{"quantization": "float32", **options},
    )
    return output


@pytest.mark.parametrize("options", [*ARCHITECTURES.values(), *EXPORTED_SETS])
def test_log_probabilities_are_those_of_the_model(make_model, options):
    model = make_model(**options)
    loaded = load_model(model)
    translator = ctranslate2.Translator(str(exported(model)), intra_threads=1)
    sources, targets = (
        [loaded.tokenizer.pieces(ids) for ids in side] for side in zip(*PAIRS, strict=True)
    )
    expected = TorchForcing(loaded.model, loaded.tokenizer).token_scores(PAIRS)
    for ours, result in zip(expected, translator.score_batch(sources, targets), strict=True):
        assert result.log_probs == pytest.approx(ours, abs=1e-5)


def test_pieces_that_are_spelt_like_marks_are_exact(make_model):
    folder = make_model(tokenizer="whitespace")
    words = (folder / "vocabulary.txt").read_text().split("\n")
    model = make_model_with(folder, [*words[:-3], "</s>", "<s>", ""])
    text = model.parent / "text"
    text.write_text(f"</s> {words[3]} <s>\n{words[4]} </s>\n")
    output = exported(model, sentences=text)
    assert (
        "The word `</s>` of the text is the piece `</s>_2`." in (output / "README.md").read_text()
    )


def make_model_with(folder, vocabulary):
    """Give the model another vocabulary of the same size."""
    from nmt_cli.files.atomic_files import read_manifest, write_manifest

    manifest = read_manifest(folder)
    (folder / "vocabulary.txt").write_text("\n".join(vocabulary))
    write_manifest(folder, {k: v for k, v in manifest.items() if k != "files"})
    return folder


@pytest.mark.parametrize("name", ["sentencepiece", "whitespace"])
def test_trained_models_of_the_formats_agree(name, tmp_path):
    model = Path(__file__).parents[1] / f"formats/format_2/{name}/run"
    export.run(
        model,
        output_format="ctranslate2",
        output=tmp_path / "out",
        quantization="float32",
        verify=16,
    )


def test_quantization_leaves_the_weights_of_the_model_as_they_are(make_model):
    model = make_model()
    given = ExportedModel.of(load_model(model))
    folder = model.parent / "int16"
    folder.mkdir()
    ctranslate2_export.write_ctranslate2(given, folder, "int16")
    for name, weight in load_model(model).model.named_parameters():
        assert np.array_equal(given.weights[name], weight.detach().numpy()), name
