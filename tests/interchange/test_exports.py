"""Exports to each program, verified by the program itself."""

from pathlib import Path

import pytest

from nmt_cli.commands import export
from nmt_cli.interchange.ctranslate2 import exporter as ctranslate2_export
from nmt_cli.interchange.huggingface import exporter as huggingface_export
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.translator import Translator

pytestmark = pytest.mark.slow  # the programs are no dependency of the other tests
PACKAGES = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}
FORMATS = Path(__file__).parents[1] / "formats"


@pytest.fixture(
    params=[
        "ctranslate2",
        pytest.param("huggingface", marks=pytest.mark.filterwarnings("default")),  # its own
    ]
)
def program(request):
    package = PACKAGES[request.param]
    pytest.importorskip(package, reason=f"{package} is not installed")
    return request.param


def exported(program, model, name="out", **options):
    output = model.parent / name
    options = {"quantization": "float32", "verify": 2, **options}
    export.run(model, output_format=program, output=output, **options)
    return output


def test_a_wrong_export_is_not_written(make_model, monkeypatch, program):
    exporter, made, name = {
        "ctranslate2": (
            ctranslate2_export, "ctranslate2_variables", "decoder/layer_1/ffn/linear_1/weight"
        ),
        "huggingface": (
            huggingface_export, "huggingface_tensors", "model.decoder.layers.1.fc2.weight"
        ),
    }[program]  # fmt: skip
    right = getattr(exporter, made)

    def wrong(model):
        tensors = right(model)
        return {**tensors, name: tensors[name] * 1.01}

    monkeypatch.setattr(exporter, made, wrong)
    model = make_model()
    with pytest.raises(UserError, match="is not the model: log-probabilities of"):
        exported(program, model)
    assert not (model.parent / "out").exists()


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_quantized_exports_are_smaller_and_report_the_difference(make_model, program, quantization):
    if quantization not in export.FORMATS[program].quantizations:
        pytest.skip(f"{program} has no {quantization}")
    model = make_model()
    output = exported(program, model, quantization=quantization)
    weights = {"ctranslate2": "model.bin", "huggingface": "model.safetensors"}[program]
    folders = (output, exported(program, model, "full"))
    small, full = ((folder / weights).stat().st_size for folder in folders)
    assert small < full
    card = (output / "README.md").read_text()
    assert f"with weights in {quantization}. Verified with {PACKAGES[program]}" in card
    assert "allowed" not in card


def test_a_tokenizer_without_bytes_and_start_is_exact(make_model, tokenizer_without_bytes, program):
    path = make_model(tokenizer_model=tokenizer_without_bytes)
    text = path.parent / "text"
    text.write_text("the cat \u4e2d sat\n\u4e2d\u6587\n")  # characters without a piece
    exported(program, path, sentences=text)


def test_two_sentencepiece_models_are_exact(make_model, two_models, program):
    tokenizer, options = two_models
    path = make_model(pieces=tokenizer, **options)
    text = path.parent / "text"
    text.write_text(">>deu<< the cat\na dog \u4e2d\n")
    exported(program, path, sentences=text)
    exported(program, path, "of-drawn-sentences")


@pytest.mark.parametrize("name", ["sentencepiece", "whitespace"])
def test_the_code_of_the_model_card_translates(name, tmp_path, monkeypatch, capsys, program):
    if (program, name) == ("huggingface", "whitespace"):
        pytest.skip("no tokenizer there reads text in pieces")
    model = FORMATS / f"format_2/{name}/run/average"
    exported_to = tmp_path / "out"
    export.run(model, output_format=program, output=exported_to, quantization="float32", verify=16)
    code = (exported_to / "README.md").read_text().split("```python\n")[1].split("```")[0]
    lines = (FORMATS / "text/validation.en").read_text().splitlines()[:4]
    monkeypatch.chdir(exported_to)
    capsys.readouterr()
    exec(code, {"lines": lines})
    with Translator.load(model) as translator:
        expected = [translation.text for translation in translator.translate(lines)]
    found = capsys.readouterr().out.splitlines()
    # Length penalties differ, so one of the translations may.
    assert sum(a == b for a, b in zip(found, expected, strict=True)) >= 3
