"""Exports as Hugging Face's own classes compute them, and as CTranslate2 converts them."""

from pathlib import Path

import pytest
import torch

from nmt_cli.commands import export
from nmt_cli.interchange.huggingface import exporter as huggingface_export
from nmt_cli.interchange.huggingface.layout import huggingface_tensors
from nmt_cli.messages.errors import UserError
from nmt_cli.model_directory import load_model
from nmt_cli.search.teacher_forcing import SentencePair, token_scores
from nmt_cli.translating.translator import Translator
from tests.interchange.test_huggingface_layout import EXPORTABLE

pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = [
    pytest.mark.slow,  # transformers is no dependency of the other tests
    pytest.mark.filterwarnings("default"),  # its own
]
PAIR = SentencePair([40, 7, 60, 11, 8], [21, 5, 99, 21])
RUN = Path(__file__).parents[1] / "formats/format_2/sentencepiece/run"


def exported(model, name="out", **options):
    output = model.parent / name
    export.run(
        model,
        output_format="huggingface",
        output=output,
        verify=2,
        **{"quantization": "float32", **options},
    )
    return output


def loaded_from(folder):
    from transformers import AutoModelForSeq2SeqLM

    model, found = AutoModelForSeq2SeqLM.from_pretrained(str(folder), output_loading_info=True)
    assert not any(found.values()), found
    return model.eval()


@torch.no_grad()
def scores_of(model, tokenizer):
    source = torch.tensor([[*PAIR.source, tokenizer.eos_id]])
    target = torch.tensor([[model.config.decoder_start_token_id, *PAIR.target]])
    logits = model(input_ids=source, decoder_input_ids=target).logits[0]
    wanted = torch.tensor([*PAIR.target, tokenizer.eos_id])
    return logits.log_softmax(1).gather(1, wanted[:, None]).squeeze(1).tolist()


@pytest.mark.parametrize("options", EXPORTABLE, ids=lambda options: "-".join(map(str, options)))
def test_log_probabilities_are_those_of_the_model_also_after_saving_again(make_model, options):
    path = make_model(**options)
    ours = load_model(path)
    (expected,) = token_scores(ours.model, [PAIR], ours.tokenizer)
    model = loaded_from(exported(path))
    assert scores_of(model, ours.tokenizer) == pytest.approx(expected, abs=1e-5)
    model.save_pretrained(path.parent / "again")
    again = loaded_from(path.parent / "again")
    assert scores_of(again, ours.tokenizer) == pytest.approx(expected, abs=1e-5)


def test_a_trained_model_translates_the_same_with_the_auto_classes(tmp_path):
    from transformers import AutoTokenizer

    export.run(
        RUN, output_format="huggingface", output=tmp_path / "out", quantization="float32", verify=16
    )
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    model = loaded_from(tmp_path / "out")
    lines = (RUN.parents[2] / "text/validation.en").read_text().splitlines()
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    found = tokenizer.batch_decode(model.generate(**batch, num_beams=1), skip_special_tokens=True)
    with Translator.load(RUN, beam_size=1) as translator:
        assert found == [translation.text for translation in translator.translate(lines)]


def test_a_wrong_export_is_not_written(make_model, monkeypatch):
    def wrong(model):
        tensors = huggingface_tensors(model)
        name = "model.decoder.layers.1.fc2.weight"
        return {**tensors, name: tensors[name] * 1.01}

    monkeypatch.setattr(huggingface_export, "huggingface_tensors", wrong)
    model = make_model()
    with pytest.raises(UserError, match="is not the model: log-probabilities of"):
        exported(model)
    assert not (model.parent / "out").exists()


def test_a_missing_tensor_is_not_written(make_model, monkeypatch):
    def less(model):
        return {
            name: array
            for name, array in huggingface_tensors(model).items()
            if "layers.1.fc1" not in name
        }

    monkeypatch.setattr(huggingface_export, "huggingface_tensors", less)
    with pytest.raises(UserError, match="does not find the tensors that it needs"):
        exported(make_model())


@pytest.mark.parametrize("quantization", ["float16", "bfloat16"])
def test_half_precision_reports_the_difference(make_model, quantization):
    card = (exported(make_model(), quantization=quantization) / "README.md").read_text()
    assert f"with weights in {quantization}. Verified with transformers" in card
    assert "allowed" not in card


@pytest.mark.parametrize("options", EXPORTABLE, ids=lambda options: "-".join(map(str, options)))
def test_the_converter_of_ctranslate2_is_exact_or_fails_loudly(make_model, options):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    from ctranslate2.converters import TransformersConverter

    path = make_model(**options)
    ours, converted = load_model(path), path.parent / "converted"
    converter = TransformersConverter(str(exported(path)))
    if options.get("norm") != "pre" and options.get("decoder_start") != "zeros":
        # It drops Marian's last piece, and starts from a zero vector: it must not get that far.
        with pytest.raises(ValueError, match="vocabulary"):
            converter.convert(str(converted))
        return
    converter.convert(str(converted))
    source, target = (ours.tokenizer.pieces(side) for side in PAIR)
    translator = ctranslate2.Translator(str(converted), intra_threads=1)
    (result,) = translator.score_batch([[*source, "</s>"]], [target])
    (expected,) = token_scores(ours.model, [PAIR], ours.tokenizer)
    assert result.log_probs == pytest.approx(expected, abs=1e-5)


def test_a_tokenizer_without_bytes_and_start_is_exact(make_model, tokenizer_without_bytes):
    path = make_model(tokenizer_model=tokenizer_without_bytes)
    text = path.parent / "text"
    text.write_text("the cat \u4e2d sat\n\u4e2d\u6587\n")  # characters without a piece
    exported(path, sentences=text)


def test_two_sentencepiece_models_are_exact(make_model, two_models):
    tokenizer, options = two_models
    path = make_model(pieces=tokenizer, **options)
    text = path.parent / "text"
    text.write_text(">>deu<< the cat\na dog \u4e2d\n")
    exported(path, sentences=text)
    exported(path, "of-drawn-sentences")


@pytest.mark.parametrize("name", ["sentencepiece"])
def test_the_code_of_the_model_card_translates(name, tmp_path, monkeypatch, capsys):
    formats = Path(__file__).parents[1] / "formats"
    model = formats / f"format_2/{name}/run/average"
    export.run(
        model,
        output_format="huggingface",
        output=tmp_path / "out",
        quantization="float32",
        verify=16,
    )
    code = (tmp_path / "out/README.md").read_text().split("```python\n")[1].split("```")[0]
    lines = (formats / "text/validation.en").read_text().splitlines()[:4]
    monkeypatch.chdir(tmp_path / "out")
    capsys.readouterr()
    exec(code, {"lines": lines})
    with Translator.load(model) as translator:
        expected = [translation.text for translation in translator.translate(lines)]
    found = capsys.readouterr().out.splitlines()
    # Length penalties differ, so one of the translations may.
    assert sum(a == b for a, b in zip(found, expected, strict=True)) >= 3
