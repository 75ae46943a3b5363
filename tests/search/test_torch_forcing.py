"""Torch's pass over given pairs: its attention is the core's, and its output that of training."""

from itertools import chain

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.attention_window import Window
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.torch_models import TorchForcing
from tests.fake_models import BOS, EOS, ByteTokenizer

PAIRS = [
    SentencePair([5, 9, 4, 7], [8, 8, 3, 6, 5, 30]),
    SentencePair([11], []),
    SentencePair([3, 20, 21, 22, 23, 24, 3, 9], [17, 4]),
]
VARIATIONS = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "narrow keys": {"d_k": 3, "d_v": 7},  # scaled_dot_product_attention instead of our own core
    "window": {"attention_window": 2},
    "narrow keys, window": {"d_k": 3, "d_v": 7, "attention_window": 1},
    "pre-norm, wide keys": {"norm": "pre", "d_k": 9, "d_v": 2},
}


def model_of(**changes):
    torch.manual_seed(4)
    settings = {"num_layers": 3, "d_model": 20, "d_ff": 28, "num_heads": 5}
    model = Transformer(ModelConfig.model_validate(settings | changes), 37).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)  # sharper attention than that of fresh weights
    return model


def weights_of(pair, kind):
    return torch.from_numpy(getattr(pair, kind))


def forced(model, pairs=PAIRS, layers=(0, 1, 2)):
    return TorchForcing(model, ByteTokenizer()).attention(pairs, layers)


@pytest.mark.parametrize(("own", "layer"), [({"decoder_num_layers": 5}, 4), ({}, 2)])
def test_layers_that_only_the_decoder_has(own, layer):
    model = model_of(decoder_num_heads=4, **own)
    weights = forced(model, layers=(1, layer))
    for pair, found in zip(PAIRS, weights, strict=True):
        source, target = len(pair.source) + 1, len(pair.target) + 1
        num_encoder_layers = 1 if own else 2
        assert found.encoder.shape == (num_encoder_layers, 5, source, source)
        assert found.decoder.shape == (2, 4, target, target)
        assert found.memory.shape == (2, 4, target, source)
    (only_decoder,) = forced(model, PAIRS[:1], layers=(layer,))
    assert len(only_decoder.encoder) == (0 if own else 1)
    assert np.array_equal(only_decoder.memory[0], forced(model, PAIRS[:1], (1, layer))[0].memory[1])


@pytest.mark.parametrize("changes", VARIATIONS.values(), ids=VARIATIONS)
def test_weights_times_values_are_what_the_core_computes(changes, monkeypatch):
    """The core's own inputs and outputs are caught in the same pass."""
    calls: list[tuple[Window, Tensor, Tensor]] = []
    attend = MultiHeadAttention.attend

    def caught(self, layout, window, *projected):
        output = attend(self, layout, window, *projected)
        *_, values = self.parts(*projected)
        calls.append((window, values.unflatten(1, (self.num_heads, -1)), output))
        return output

    monkeypatch.setattr(MultiHeadAttention, "attend", caught)
    weights = forced(model_of(**changes))
    kinds = [("encoder", n) for n in range(3)]
    kinds += [(kind, n) for n in range(3) for kind in ("decoder", "memory")]
    assert len(calls) == len(kinds)
    for (kind, layer), (window, values, output) in zip(kinds, calls, strict=True):
        assert (window.ahead == 0) == (kind == "decoder")
        side = [len(p.target) if kind == "decoder" else len(p.source) for p in PAIRS]
        expected = [
            torch.einsum("hts,shv->thv", weights_of(of_pair, kind)[layer], of_sentence).flatten(1)
            for of_pair, of_sentence in zip(
                weights, values.split([length + 1 for length in side]), strict=True
            )
        ]
        assert torch.allclose(torch.cat(expected), output, atol=1e-5)


def test_the_output_is_that_of_the_training_pass():
    model = model_of()
    sources = [[*pair.source, EOS] for pair in PAIRS]
    inputs = [[BOS, *pair.target] for pair in PAIRS]
    packed = [
        pack(torch.tensor(list(chain.from_iterable(side))), [len(tokens) for tokens in side])
        for side in (sources, inputs)
    ]
    with torch.no_grad():
        expected = model(*packed)
        expected = model.project(expected).log_softmax(1)
    scores = TorchForcing(model, ByteTokenizer()).token_scores(PAIRS)
    assert [len(of_pair) for of_pair in scores] == [7, 1, 3]
    targets = [token for pair in PAIRS for token in (*pair.target, EOS)]
    wanted = expected[range(len(targets)), targets].tolist()
    assert [*chain.from_iterable(scores)] == pytest.approx(wanted, abs=1e-6)


def test_weights_are_probabilities_and_see_no_future():
    for pair, weights in zip(PAIRS, forced(model_of()), strict=True):
        source, target = len(pair.source) + 1, len(pair.target) + 1
        assert weights.encoder.shape == (3, 5, source, source)
        assert weights.decoder.shape == (3, 5, target, target)
        assert weights.memory.shape == (3, 5, target, source)
        for kind in weights:
            assert np.allclose(kind.sum(3), 1.0, atol=1e-6)
        assert not np.triu(weights.decoder, 1).any()
        assert weights.encoder.max() > 0.5  # else a wrong order of heads or layers might pass


def test_a_pair_has_the_same_weights_alone_and_some_layers_those_of_all():
    model = model_of()
    together = forced(model)
    for number, pair in enumerate(PAIRS):
        (alone,) = forced(model, [pair], layers=[0, 2])
        for one, other in zip(alone, together[number], strict=True):
            assert np.allclose(one, other[[0, 2]], atol=1e-5)


def test_nothing_is_left_in_the_model():
    model = model_of(positions="learned", max_positions=8)
    with pytest.raises(ValueError, match="longer than"):
        forced(model)
    forced(model, PAIRS[:2])
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_there_is_no_dropout():
    model = model_of(dropout=0.5)
    expected = TorchForcing(model, ByteTokenizer()).token_scores(PAIRS)
    assert TorchForcing(model.train(), ByteTokenizer()).token_scores(PAIRS) == expected
