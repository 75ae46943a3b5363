"""The variables for CTranslate2, read as its documentation defines them."""

import numpy as np
import pytest
import torch

from nmt_cli.interchange.ctranslate2.exporter import (
    ctranslate2_variables,
    head_width,
    renamed_pieces,
    vocabulary_of,
)
from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.torch_models import TorchForcing
from tests.architectures import EXPORTED_SETS
from tests.interchange.conftest import ARCHITECTURES
from tests.interchange.plain_transformer import Attention, Layer, Options, PlainTransformer, Side

SOURCE, TARGET = [40, 7, 60, 11, 8], [21, 5, 99, 21]


def options_of(config):
    return Options(
        config.activation,
        config.norm_epsilon,
        None if config.scale_embeddings else 1.0,
        config.decoder_start == "zeros",
    )


def side_of(variables, name, num_layers):
    def pair(layer, first="weight", second="bias"):
        return variables[f"{layer}/{first}"], variables.get(f"{layer}/{second}")

    def norm(layer):
        return pair(f"{layer}/layer_norm", "gamma", "beta")

    def parts(weights, count):
        matrix, bias = weights
        biases = [None] * count if bias is None else np.split(bias, count)
        return zip(np.split(matrix, count), biases, strict=True)

    def attention(layer, counts):
        """Cut each of the first matrices into as many equal parts as ``counts`` says."""
        queries, keys, values = (
            cut
            for number, count in enumerate(counts)
            for cut in parts(pair(f"{layer}/linear_{number}"), count)
        )
        output = pair(f"{layer}/linear_{len(counts)}")
        is_causal = layer.startswith("decoder") and layer.endswith("self_attention")
        return Attention(queries, keys, values, output, norm(layer), is_causal)

    layers = [
        Layer(
            attention(f"{name}/layer_{n}/self_attention", [3]),
            attention(f"{name}/layer_{n}/attention", [1, 2]) if name == "decoder" else None,
            pair(f"{name}/layer_{n}/ffn/linear_0"),
            pair(f"{name}/layer_{n}/ffn/linear_1"),
            norm(f"{name}/layer_{n}/ffn"),
        )
        for n in range(num_layers)
    ]
    embeddings = "embeddings_0" if name == "encoder" else "embeddings"
    top = norm(name) if f"{name}/layer_norm/gamma" in variables else None
    table = variables[f"{name}/position_encodings/encodings"]
    embedding_norm = None
    if f"{name}/layernorm_embedding/gamma" in variables:
        embedding_norm = pair(f"{name}/layernorm_embedding", "gamma", "beta")
    return Side(variables[f"{name}/{embeddings}/weight"], table, layers, top, embedding_norm)


@pytest.mark.parametrize("options", [*ARCHITECTURES.values(), *EXPORTED_SETS[::3]])
def test_the_variables_compute_what_the_model_computes(make_model, options):
    loaded = load_model(make_model(**options))
    config, exported = loaded.settings.architecture, ExportedModel.of(loaded)
    variables = ctranslate2_variables(exported)
    end = [loaded.tokenizer.eos_id] if config.source_eos else []
    transformer = PlainTransformer(
        side_of(variables, "encoder", config.encoder_shape.num_layers),
        side_of(variables, "decoder", config.decoder_shape.num_layers),
        (variables["decoder/projection/weight"], variables.get("decoder/projection/bias")),
        num_heads=(config.encoder_shape.num_heads, config.decoder_shape.num_heads),
        scales=tuple(
            variables.get(f"{side}/layer_0/self_attention/queries_scale")
            for side in ("encoder", "decoder")
        ),
        pre_norm=config.norm == "pre",
        options=options_of(config),
    )
    found = transformer.log_probabilities([*SOURCE, *end], [exported.start_id, *TARGET])
    pairs = TorchForcing(loaded.model, loaded.tokenizer).packed([SentencePair(SOURCE, TARGET)])
    expected = loaded.model.project(loaded.model(*pairs)).log_softmax(1).detach().numpy()
    assert np.abs(found - expected).max() < 2e-5


def test_every_architecture_has_the_documented_widths_of_heads(make_model):
    loaded = load_model(make_model(d_k=7, d_v=4))
    variables = ctranslate2_variables(ExportedModel.of(loaded))
    assert head_width(loaded.settings.architecture.encoder_shape, 18) == 7
    assert variables["encoder/layer_0/self_attention/linear_0/weight"].shape == (3 * 3 * 7, 18)
    assert variables["decoder/layer_1/attention/linear_1/weight"].shape == (2 * 3 * 7, 18)
    assert variables["decoder/layer_1/attention/linear_2/weight"].shape == (18, 3 * 7)
    assert variables["encoder/layer_0/self_attention/queries_scale"] == pytest.approx(7**-0.5)


def test_positions_reach_beyond_the_longest_output(make_model):
    loaded = load_model(make_model())
    longer = loaded._replace(settings=loaded.settings._replace(max_length=3_000))
    variables = ctranslate2_variables(ExportedModel.of(longer))
    assert len(variables["encoder/position_encodings/encodings"]) == 3_000 + 5 + 2
    variables = ctranslate2_variables(ExportedModel.of(loaded))
    assert len(variables["decoder/position_encodings/encodings"]) == 2_048


def test_a_weight_without_a_place_is_refused(make_model):
    exported = ExportedModel.of(load_model(make_model()))
    weights = {**exported.weights, "decoder.gate": torch.ones(2).numpy()}
    with pytest.raises(AssertionError, match=r"decoder\.gate"):
        ctranslate2_variables(exported._replace(weights=weights))


def test_equal_pieces_get_spellings_of_their_own():
    pieces = ["<unk>", "<s>", "</s>", "a", "</s>", "</s>_2", "<s>"]
    vocabulary = vocabulary_of(pieces)
    assert vocabulary == ["<unk>", "<s>", "</s>", "a", "</s>_3", "</s>_2", "<s>_2"]
    assert renamed_pieces(pieces) == {"</s>": "</s>_3", "<s>": "<s>_2"}
