"""The command: which weights it writes of which texts, and what it refuses."""

import io
import json
import sys
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from nmt_cli import cli
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer, train_model
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.locks import claimed
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.pictures import figure
from nmt_cli.pictures.attention import as_json
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.torch_models import TorchForcing
from nmt_cli.translating import shown_attention
from nmt_cli.translating.translator import Translator
from tests.fake_models import save_as_model, tiny_recipe

PIECES = ["ant", "bee", "cat", "(S", ")S", "<NN>", "<script>"]
SOURCE, TARGET = "ant bee zebra", "(S <NN> <script> )S"


def save(folder, recipe, tokenizer):
    torch.manual_seed(3)
    model = Transformer(recipe.model, tokenizer.size)
    with directory_appearing_whole(folder) as partial:
        save_as_model(partial, recipe, tokenizer, model)
        partial.manifest["kind"] = "average"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of two models of 2 layers and 5 heads; tests may read it, not change it."""
    folder = tmp_path_factory.mktemp("models")
    model = {"positions": "learned", "max_positions": 30}
    recipe = tiny_recipe(model=model, data={"max_length": 20})
    normalizer = Normalizer(recipe.data)
    unlike = {**model, "num_layers": 1, "decoder_num_layers": 3, "decoder_num_heads": 4}
    unlike["source_eos"] = "false"
    pieces = WhitespaceTokenizer([*CONTROL, *PIECES], normalizer, None)
    save(folder / "unlike", tiny_recipe(model=unlike, data={"max_length": 20}), pieces)
    save(folder / "words", recipe, WhitespaceTokenizer([*CONTROL, *PIECES], normalizer, None))
    recurrent = tiny_recipe(model={**model, "decoder": "ssru"}, data={"max_length": 20})
    save(folder / "recurrent", recurrent, pieces)
    subwords = tiny_recipe(tokenizer={"type": "sentencepiece", "vocabulary_size": 300})
    text = ["the ants and the bees", "a cat is asleep", "the bee is awake"] * 5
    trained = train_model(text, subwords.tokenizer, len(text), 1)
    save(folder / "subwords", subwords, SentencePieceTokenizer(trained, normalizer, "new"))
    return folder


@pytest.fixture
def call(models, tmp_path, monkeypatch):
    """Run the command in an empty folder; return its result."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments, model="words", status=0):
        words = ["attention", str(models / model), *arguments, "--device", "cpu", "--threads", "1"]
        result = CliRunner().invoke(cli.main, words)
        assert result.exit_code == status, result.output
        return result

    return invoke


def record_of(result):
    return json.loads(result.stdout)


def test_json_holds_the_weights_of_the_given_translation(call, models):
    record = record_of(call(SOURCE, TARGET, "--format", "json"))
    assert record["source"] == ["ant", "bee", "<unk>", "</s>"]
    assert record["target_input"] == ["<s>", "(S", "<NN>", "<script>", ")S"]
    assert record["target_output"] == ["(S", "<NN>", "<script>", ")S", "</s>"]
    assert (record["layers"], record["heads"]) == ([1, 2], [1, 2, 3, 4, 5])
    shapes = {name: np.shape(weights) for name, weights in record["weights"].items()}
    assert shapes == {"encoder": (2, 5, 4, 4), "decoder": (2, 5, 5, 5), "memory": (2, 5, 5, 4)}
    _, tokenizer, model, *_ = load_model(models / "words")
    pair = SentencePair([3, 4, 0], [6, 8, 9, 7])  # the three marks come first
    assert tokenizer.encode(TARGET) == pair.target
    (expected,) = TorchForcing(model, tokenizer).attention([pair], [0, 1])
    for name, weights in record["weights"].items():
        assert np.allclose(weights, getattr(expected, name), atol=1e-5)


def test_a_translator_returns_the_attention_that_the_command_writes(call, models):
    expected = record_of(call(SOURCE, TARGET, "--format", "json"))
    translator = Translator.load(models / "words", device="cpu", precision="fp32")
    attention = translator.attention(SOURCE, TARGET, expected["model"])
    assert json.loads(as_json(attention)) == expected
    assert attention.languages["source"] == "en"
    with pytest.raises(UserError, match=r"the target has 41 pieces, the model takes \d+;"):
        translator.attention(SOURCE, "ant " * 41, "words")


def test_layers_heads_and_kind_choose_from_all_weights(call):
    everything = record_of(call(SOURCE, TARGET, "--format", "json"))
    some = record_of(
        call(SOURCE, TARGET, "--format=json", "--layers=2", "--heads=4-5,2", "--kind=memory")
    )
    assert (some["layers"], some["heads"], list(some["weights"])) == ([2], [2, 4, 5], ["memory"])
    expected = np.array(everything["weights"]["memory"])[[1]][:, [1, 3, 4]]
    assert np.array_equal(some["weights"]["memory"], expected)


def test_a_kind_has_all_its_layers_and_heads_where_the_sides_differ(call):
    def record(*words):
        return record_of(call(SOURCE, TARGET, "--format=json", *words, model="unlike"))

    everything = record()
    assert (everything["layers"], everything["heads"]) == ([1], [1, 2, 3, 4])
    assert everything["source"] == ["ant", "bee", "<unk>"]
    own = record("--kind=memory")
    assert (own["layers"], own["heads"]) == ([1, 2, 3], [1, 2, 3, 4])
    assert record("--kind=encoder")["heads"] == [1, 2, 3, 4, 5]


def test_recurrent_units_have_no_attention(call, models):
    record = record_of(call(SOURCE, TARGET, "--format", "json", model="recurrent"))
    assert set(record["weights"]) == {"encoder", "memory"}
    result = call(SOURCE, "--kind", "decoder", model="recurrent", status=1)
    assert result.stderr == (
        f"Error: the decoder of {models / 'recurrent'} has recurrent units in place of "
        "self-attention; choose --kind encoder or memory.\n"
    )


@pytest.mark.parametrize("source", ["the cat ant", "1. the cat", "12:30"])
@pytest.mark.parametrize("model", ["words", "subwords"])
def test_without_a_target_the_model_translates(call, models, model, source):
    options: Any = {"precision": "fp32", "translate_everything": True}
    translator = Translator.load(models / model, device="cpu", **options)
    (translation,) = translator.translate([source])
    record = record_of(call(source, "--format", "json", model=model))
    assert record["target_output"] == [*translation.tokens, "</s>"]
    assert len(translation.tokens) > 2


def test_a_page_is_written_by_default(call, tmp_path):
    result = call(SOURCE)
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert result.stdout == ""
    assert result.stderr.endswith("Wrote attention.html.\n")
    assert "<dt>Translation</dt>" in page
    assert call(SOURCE, status=1).stderr == (
        "Error: attention.html already exists; add --force to replace it.\n"
    )
    assert "the model has layers 1 to 2." in call(SOURCE, "--layers", "9", status=1).stderr
    assert "the source is blank." in call("", status=1).stderr
    call(SOURCE, TARGET, "--force")
    assert "<dt>Target</dt>" in (tmp_path / "attention.html").read_text(encoding="utf-8")


def test_a_picture_of_the_last_layer_or_those_chosen(call, tmp_path, monkeypatch):
    monkeypatch.setattr(figure, "DOTS_PER_INCH", 30)
    shown, draw = [], figure.figure_of

    def drawn(attention):
        shown.append(attention.layers)
        return draw(attention)

    monkeypatch.setattr(figure, "figure_of", drawn)
    call(SOURCE, TARGET, "--output", "a.png")
    call(SOURCE, TARGET, "--output", "b", "--format", "png", "--layers", "1-2")
    assert shown == [(2,), (1, 2)]
    for name in ("a.png", "b"):
        data = (tmp_path / name).read_bytes()
        assert Image.open(io.BytesIO(data)).format == "PNG"


def test_png_without_matplotlib(call, monkeypatch):
    monkeypatch.delitem(sys.modules, "nmt_cli.pictures.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert call(SOURCE, "--output", "a.png", status=1).stderr == (
        "Error: PNG files are drawn with matplotlib, which is not installed; run: "
        f"{sys.executable} -m pip install matplotlib, or write a page with --output FILE.html.\n"
    )
    call(SOURCE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([SOURCE, "--layers", "3"], "--layers 3: the model has layers 1 to 2."),
        ([SOURCE, "--layers", "2-999999999"], "--layers 999999999: the model has layers 1 to 2."),
        ([SOURCE, "--layers", "0-1"], "--layers 0: the model has layers 1 to 2."),
        ([SOURCE, "--heads", "1,4-6"], "--heads 6: the model has heads 1 to 5."),
        ([" \u200b"], "the source is blank."),
        (
            [SOURCE, " "],
            "the target is blank; leave it out to see the model's translation.",
        ),
        (["a\udcff"], "the source is not UTF-8 text."),
        (["ant " * 21], "the source has 21 pieces, the model takes 20; give a shorter one."),
        (
            [SOURCE, "ant " * 30],
            "the target has 30 pieces, the model takes 29; give a shorter one.",
        ),
        ([SOURCE, "--output", "no/a.html"], "no is not a directory; make it first, or choose"),
    ],
)
def test_what_is_refused(call, tmp_path, arguments, message):
    result = call(*arguments, status=1)
    assert result.stderr.startswith(f"Error: {message}")
    assert list(tmp_path.iterdir()) == []


def test_the_longest_texts_are_taken(call):
    record = record_of(call("ant " * 20, "bee " * 29, "--format", "json"))
    assert (len(record["source"]), len(record["target_input"])) == (21, 30)


def test_an_output_of_another_kind_is_wrong_use(call):
    assert call(SOURCE, "--output", "picture.svg", status=2).stderr == (
        "Error: --output picture.svg must end in .html, .htm, .png, .json, unless --format is "
        "given.\n"
    )


def test_a_list_of_numbers_must_be_one(call):
    assert "'x' is not a list of numbers" in call(SOURCE, "--heads", "x", status=2).stderr


def test_more_weights_than_a_page_holds_are_refused(call, monkeypatch):
    monkeypatch.setattr(shown_attention, "MOST_WEIGHTS", 400)
    message = call(SOURCE, TARGET, status=1).stderr
    # 2 layers, 5 heads; 4 source pieces with </s>, 5 of the target with <s>
    assert message.startswith(f"Error: {2 * 5 * (16 + 25 + 20)} weights are more than a page can")
    call(SOURCE, TARGET, "--kind", "encoder")


def test_one_process_at_a_time_writes_an_output(call, tmp_path):
    with claimed(tmp_path / "attention.html", "--output"):
        assert "attention.html" in call(SOURCE, status=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_the_order_of_lists_does_not_matter(call):
    one = record_of(call(SOURCE, TARGET, "--format", "json", "--heads", "5,1"))
    other = record_of(call(SOURCE, TARGET, "--format", "json", "--heads", "1,5,1-1"))
    assert one == other
