import pytest
import torch

from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.training.gradient.loss import label_smoothed_cross_entropy

SOURCE_LENGTHS, TARGET_LENGTHS = [7, 3, 11, 1, 3, 8, 2], [4, 9, 2, 6, 6, 1, 5]
VARIATIONS = {
    "base": {},
    "pre-norm": {"norm": "pre"},
    "learned": {"positions": "learned", "max_positions": 16},
    "narrow keys": {"d_k": 3, "d_v": 7},
    "three matrices": {"tied_embeddings": "none"},
    "decoder tied": {"tied_embeddings": "decoder"},
}


def small(**changes):
    settings = {"num_layers": 2, "d_model": 20, "d_ff": 28, "num_heads": 5, "dropout": 0.0}
    return Transformer(ModelConfig(**settings | changes), vocabulary_size=37)


def batch(lengths, seed):
    tokens = torch.randint(37, (sum(lengths),), generator=torch.Generator().manual_seed(seed))
    return tokens, pack(tokens, lengths)


@pytest.mark.parametrize("changes", VARIATIONS.values(), ids=VARIATIONS)
@pytest.mark.parametrize("overhead", [0, 2_000])
def test_a_packed_batch_computes_what_each_pair_computes_alone(changes, overhead, monkeypatch):
    monkeypatch.setattr("nmt_cli.model.attention_layout.GROUP_OVERHEAD", overhead)
    torch.manual_seed(3)
    model = small(**changes).double()
    source_tokens, source = batch(SOURCE_LENGTHS, 1)
    target_tokens, target = batch(TARGET_LENGTHS, 2)
    alone = [
        model(pack(s, [len(s)]), pack(t, [len(t)]))
        for s, t in zip(
            source_tokens.split(SOURCE_LENGTHS), target_tokens.split(TARGET_LENGTHS), strict=True
        )
    ]
    assert torch.allclose(model(source, target), torch.cat(alone), atol=1e-12)


@pytest.mark.parametrize(("norm", "dtype"), [("post", torch.bfloat16), ("pre", torch.float32)])
def test_sums_that_are_never_normalized_stay_in_fp32_under_autocast(norm, dtype):
    model, sums = small(norm=norm, dropout=0.1), []
    for layer in (*model.encoder_layers, *model.decoder_layers):
        layer.register_forward_hook(lambda _, __, rows: sums.append(rows.dtype))
    (_, source), (_, target) = batch(SOURCE_LENGTHS, 1), batch(TARGET_LENGTHS, 2)
    with torch.autocast("cpu", torch.bfloat16):
        model(source, target)
    assert sums == 4 * [dtype]


def test_spare_rows_change_neither_output_nor_gradient():
    torch.manual_seed(5)
    model = small(tied_embeddings="none").double()
    source_lengths, target_lengths = [70, 61], [67, 71]
    gradients, outputs = [], []
    for round_up in (False, True):
        source = pack(torch.arange(131) % 37, source_lengths, round_up=round_up)
        target = pack(torch.arange(138) % 37, target_lengths, round_up=round_up)
        rows = model(source, target)
        assert len(rows) == (140 if round_up else 138)
        sums = label_smoothed_cross_entropy(
            rows, model.output_weight, torch.arange(138) % 31, smoothing=0.1
        )
        outputs.append(rows[:138])
        gradients.append(torch.autograd.grad(sums.loss, model.parameters()))
    assert torch.allclose(outputs[0], outputs[1], atol=1e-12)
    for without, with_spare in zip(*gradients, strict=True):
        assert torch.allclose(without, with_spare, atol=1e-10)


def test_the_past_does_not_see_the_future():
    torch.manual_seed(4)
    model = small()
    _, source = batch([5], 1)
    tokens, target = batch([9], 2)
    changed = tokens.clone()
    changed[6] = (changed[6] + 1) % 37
    before, after = model(source, target), model(source, pack(changed, [9]))
    assert torch.equal(before[:6], after[:6])
    assert not torch.allclose(before[6], after[6])


@pytest.mark.parametrize(("tied", "matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_tying_leaves_so_many_matrices(tied, matrices):
    shapes = [tuple(p.shape) for p in small(tied_embeddings=tied).parameters()]
    assert shapes.count((37, 20)) == matrices


# Table 3 counts in millions; the vocabulary of 37,000 is section 5.1's. Its row of two layers is
# 2 million above what its other rows leave for four layers fewer, hence the wider tolerance there.
@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, 65),
        ({"d_model": 1024, "d_ff": 4096, "num_heads": 16}, 213),
        ({"num_layers": 2}, 36),
        ({"num_layers": 8}, 80),
        ({"d_k": 16}, 58),
        ({"d_k": 32}, 60),
        ({"d_ff": 4096}, 90),
        ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
        ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    ],
)
def test_parameter_counts_are_those_of_table_3(changes, millions):
    with torch.device("meta"):
        model = Transformer(ModelConfig(**changes), vocabulary_size=37_000)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count / 1e6 == pytest.approx(millions, rel=0.05 if millions != 36 else 0.07)
