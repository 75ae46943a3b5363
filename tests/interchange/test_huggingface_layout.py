"""The tensors and settings for Hugging Face, read as its classes define them."""

import json
from typing import Any

import numpy as np
import pytest

from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.interchange.huggingface.exporter import (
    has_pad,
    huggingface_tensors,
    reasons_against,
    write_huggingface,
    write_tokenizer,
)
from nmt_cli.interchange.tensor_names import sines_first
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.torch_models import TorchForcing
from tests.interchange.conftest import ARCHITECTURES
from tests.interchange.plain_transformer import Attention, Layer, Options, PlainTransformer, Side

SOURCE, TARGET = [40, 7, 60, 11, 8], [21, 5, 99, 21]
MARIAN: dict[str, dict[str, Any]] = {
    "all": {},
    "decoder": {"tied_embeddings": "decoder", "d_k": 2, "d_v": 4},
    "none": {"tied_embeddings": "none"},
}
PEGASUS: dict[str, dict[str, Any]] = {
    "all": {"norm": "pre", "positions": "learned", "max_positions": 90},
    "decoder": {"norm": "pre", "tied_embeddings": "decoder"},
    "none": {"norm": "pre", "tied_embeddings": "none", "d_k": 4, "d_v": 2},
}
BIASES = {"attention_biases": True, "output_bias": True}
OPTIONS: list[dict[str, Any]] = [
    {"activation": "gelu", "d_k": 4, "decoder_start": "eos", **BIASES},
    {
        **{"activation": "swish", "feed_forward_biases": False, "scale_embeddings": False},
        **{"decoder_num_layers": 1, "decoder_d_ff": 7, "decoder_num_heads": 2},
    },
    {"decoder_start": "zeros", "output_bias": True},
    {"decoder_start": "zeros", "norm": "pre", "tied_embeddings": "none"},
    {
        **{"norm": "pre", "activation": "gelu_tanh", "sinusoid_frequencies": "tensor2tensor"},
        **{"first_position": 2, "d_v": 5, **BIASES},
    },
]
EXPORTABLE: list[dict[str, Any]] = [*MARIAN.values(), *PEGASUS.values(), *OPTIONS]


def marian_positions(count, d_model):
    """The sines of all frequencies, then the cosines."""
    places = np.arange(d_model // 2)
    angles = np.arange(count)[:, None] / 10_000 ** (2 * places / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def side_of(tensors, name, num_layers):
    def pair(layer):
        return tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]

    def attention(layer):
        queries, keys, values = (pair(f"{layer}.{letter}_proj") for letter in "qkv")
        output, norm = pair(f"{layer}.out_proj"), pair(f"{layer}_layer_norm")
        is_causal = layer.startswith("model.decoder") and layer.endswith("self_attn")
        return Attention(queries, keys, values, output, norm, is_causal)

    start = f"model.{name}"
    layers = [
        Layer(
            attention(f"{start}.layers.{n}.self_attn"),
            attention(f"{start}.layers.{n}.encoder_attn") if name == "decoder" else None,
            pair(f"{start}.layers.{n}.fc1"),
            pair(f"{start}.layers.{n}.fc2"),
            pair(f"{start}.layers.{n}.final_layer_norm"),
        )
        for n in range(num_layers)
    ]
    shared = tensors.get("model.shared.weight")
    embedding = tensors.get(f"{start}.embed_tokens.weight", shared)
    positions = tensors.get(f"{start}.embed_positions.weight", marian_positions(20, 18))
    norm = pair(f"{start}.layer_norm") if f"{start}.layer_norm.bias" in tensors else None
    return Side(embedding, positions, layers, norm)


@pytest.mark.parametrize("options", EXPORTABLE, ids=lambda options: "-".join(map(str, options)))
def test_the_tensors_compute_what_the_model_computes(make_model, options):
    loaded = load_model(make_model(**options))
    exported = ExportedModel.of(loaded)
    assert list(reasons_against(exported)) == []
    tensors = huggingface_tensors(exported)
    decoder = side_of(tensors, "decoder", options.get("decoder_num_layers", 2))
    heads = options.get("decoder_num_heads", 3)
    transformer = PlainTransformer(
        side_of(tensors, "encoder", 2),
        decoder,
        (tensors.get("lm_head.weight", decoder.embedding), tensors["final_logits_bias"][0]),
        num_heads=(3, heads),
        scales=((18 // 3) ** -0.5, (18 // heads) ** -0.5),
        pre_norm=options.get("norm") == "pre",
        options=Options(
            options.get("activation", "relu"),
            embedding_scale=None if options.get("scale_embeddings", True) else 1.0,
        ),
    )
    source = [*SOURCE, loaded.tokenizer.eos_id]
    start = len(exported.pieces) if has_pad(exported) else exported.start_id
    found = transformer.log_probabilities(source, [start, *TARGET])[:, : len(exported.pieces)]
    pairs = TorchForcing(loaded.model, loaded.tokenizer).packed([SentencePair(SOURCE, TARGET)])
    expected = loaded.model.project(loaded.model(*pairs)).log_softmax(1).detach().numpy()
    assert np.abs(found - expected).max() < 2e-5


def test_the_axes_of_the_model_are_permuted_to_sines_first(make_model):
    assert sines_first(6).tolist() == [0, 2, 4, 1, 3, 5]
    exported = ExportedModel.of(load_model(make_model(norm="pre")))
    table = huggingface_tensors(exported)["model.encoder.embed_positions.weight"]
    assert table.shape == (2_048, 18)
    assert np.abs(table[:50] - marian_positions(50, 18)).max() < 1e-6


def test_marks_and_pieces_keep_their_ids(make_model, tmp_path):
    loaded = load_model(make_model())
    folder = tmp_path / "out"
    folder.mkdir()
    write_huggingface(ExportedModel.of(loaded), folder, "float32")
    write_tokenizer(loaded, folder)
    vocabulary = json.loads((folder / "vocab.json").read_text())
    assert list(vocabulary) == loaded.tokenizer.pieces(range(300))
    assert list(vocabulary.values()) == list(range(300))
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["decoder_start_token_id"] == generation["pad_token_id"] == 1
    assert generation["bad_words_ids"] == [[1]]
    assert generation["eos_token_id"] == 2
    assert generation["max_length"] == 30 + 5 + 2


def test_all_reasons_against_a_model_are_listed(make_model):
    widths = {"d_k": 7, "d_v": 8}
    others: dict[str, Any] = {"norm_epsilon": 1e-6, "embedding_norm": True}
    others |= {"source_eos": False, "positions": "learned"}
    path = make_model(tokenizer="whitespace", **widths, **others)
    reasons = list(reasons_against(ExportedModel.of(load_model(path))))
    assert reasons == [
        "no class has post-norm and other positions than the paper's",
        "norm_epsilon 1e-06 is not 1e-05",
        "no class has embedding_norm",
        "d_k 7 is more than d_model / num_heads 3",
        "d_v 8 is more than d_model / num_heads 3",
        "its tokenizer would add </s> to the source",
        "no tokenizer reads text that is in pieces already",
    ]


def test_two_vocabularies_need_marian_and_two_models(make_model):
    path = make_model(source_vocabulary_size=97, tied_embeddings="none", norm="pre")
    reasons = list(reasons_against(ExportedModel.of(load_model(path))))
    assert reasons[0] == (
        "a vocabulary of the source's own needs post-norm and two SentencePiece models"
    )


def test_language_codes_are_refused(make_model):
    exported = ExportedModel.of(load_model(make_model()))
    pieces = (*exported.pieces[:9], ">>de<<", *exported.pieces[10:])
    (reason,) = reasons_against(exported._replace(pieces=pieces))
    assert reason == "its tokenizer would cut language codes such as >>de<< off the text"


@pytest.mark.parametrize(("name", "architecture"), ARCHITECTURES.items())
def test_every_architecture_is_exported_or_refused(make_model, name, architecture):
    exported = ExportedModel.of(load_model(make_model(**architecture)))
    is_refused = name in {"wide-keys-pre-norm", "learned-positions"}
    assert bool(list(reasons_against(exported))) == is_refused
