"""Exports as Hugging Face's own classes compute them, and as CTranslate2 converts them."""

from pathlib import Path

import pytest
import torch

from nmt_cli.commands import export
from nmt_cli.interchange.huggingface import exporter as huggingface_export
from nmt_cli.interchange.huggingface.exporter import huggingface_tensors
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.torch_models import TorchForcing
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
    (expected,) = TorchForcing(ours.model, ours.tokenizer).token_scores([PAIR])
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
    (expected,) = TorchForcing(ours.model, ours.tokenizer).token_scores([PAIR])
    assert result.log_probs == pytest.approx(expected, abs=1e-5)
