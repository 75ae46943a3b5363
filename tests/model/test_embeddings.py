import math

import pytest
import torch

from nmt_cli.model.embeddings import Embedding, LearnedPositions, SinusoidalPositions, sinusoids
from nmt_cli.model.packing import pack


def test_sinusoids_are_section_3_5():
    d_model = 6
    table = sinusoids(40, d_model)
    for position in range(40):
        for i in range(d_model // 2):
            angle = position / 10_000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoids_reach_any_length():
    positions = SinusoidalPositions(6)
    place = torch.tensor([2_999])
    assert torch.equal(positions(place, 3_000), sinusoids(3_000, 6)[place])


def test_embedding_is_scaled_by_the_square_root_of_d_model():
    weight = torch.nn.Parameter(torch.randn(11, 6))
    embedding = Embedding(weight, SinusoidalPositions(6), dropout=0.0, pre_norm=False)
    batch = pack(torch.tensor([4, 9, 4]), [2, 1])
    expected = weight[[4, 9, 4]] * math.sqrt(6) + sinusoids(2, 6)[[0, 1, 0]]
    assert torch.allclose(embedding(batch), expected)


def test_learned_positions_name_what_is_too_long():
    positions = LearnedPositions(5, 6)
    assert positions(torch.arange(5), 5).shape == (5, 6)
    with pytest.raises(ValueError, match=r"7 pieces is longer than model.max_positions 5"):
        positions(torch.arange(5), 7)
