import pytest
import torch

from nmt_cli.hardware.memory import rounded_up
from nmt_cli.model.packing import STEPS_OF_ROWS, pack


def test_positions_count_from_zero_in_each_sentence():
    batch = pack(torch.arange(6), [3, 1, 2])
    assert batch.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.longest == 3


@pytest.mark.parametrize("count", [1, 2, 31, 63, 64, 65, 100, 1_000, 4_095, 4_096, 4_097, 25_000])
def test_rounding_up_adds_at_most_a_32nd(count):
    assert count <= rounded_up(count, STEPS_OF_ROWS) <= count * 33 / 32
    assert len({rounded_up(n, STEPS_OF_ROWS) for n in range(count, 2 * count)}) <= 34
