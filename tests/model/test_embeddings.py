import math

import numpy as np
import pytest
import torch

from nmt_cli.model.embeddings import LearnedPositions, SinusoidalPositions
from nmt_cli.model.packing import pack
from nmt_cli.model.sinusoids import sinusoids
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig


def small_config(**options):
    return ModelConfig(num_layers=1, d_model=6, num_heads=1, d_ff=5, dropout=0.0, **options)


def test_sinusoids_are_section_3_5():
    d_model = 6
    table = sinusoids(40, d_model)
    for position in range(40):
        for i in range(d_model // 2):
            angle = position / 10_000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoids_reach_any_length():
    positions = SinusoidalPositions(6, "paper", 0)
    place = torch.tensor([2_999])
    expected = torch.from_numpy(sinusoids(3_000, 6)[[2_999]])
    assert torch.equal(positions(3_000)[place], expected)


def test_tensor2tensors_sinusoids_from_another_position_on():
    d_model = 8
    table = sinusoids(400, d_model, "tensor2tensor", 2)
    for row in range(0, 400, 7):
        for i in range(d_model // 2):
            angle = (row + 2) / 10_000 ** (i / (d_model // 2 - 1))
            assert table[row, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[row, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    assert np.isfinite(sinusoids(3, 2, "tensor2tensor")).all()
    grown = SinusoidalPositions(d_model, "tensor2tensor", 2)
    assert torch.equal(grown(400)[399], torch.from_numpy(table[399]))


@pytest.mark.parametrize("is_scaled", [True, False])
def test_embedding_is_scaled_by_the_square_root_of_d_model_unless_that_is_off(is_scaled):
    model = Transformer(small_config(scale_embeddings=is_scaled), 11)
    batch = pack(torch.tensor([4, 9, 4]), [2, 1])
    factor = math.sqrt(6) if is_scaled else 1.0
    expected = model.output_weight[[4, 9, 4]] * factor + torch.from_numpy(
        sinusoids(2, 6)[[0, 1, 0]]
    )
    assert torch.allclose(model.source_embedding(batch), expected)


def test_learned_positions_name_what_is_too_long():
    positions = LearnedPositions(5, 6)
    assert positions(5).shape == (5, 6)
    with pytest.raises(ValueError, match=r"7 pieces is longer than model.max_positions 5"):
        positions(7)
