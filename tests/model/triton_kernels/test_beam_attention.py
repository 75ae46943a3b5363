"""Attention of a beam to its past and its source, against torch's formula in fp64."""

import pytest
import torch

from tests.kernels_in_triton import DEVICE, MARKS
from tests.units_in_the_last_place import errors

from nmt_cli.model.triton_kernels.beam_attention import (  # isort: skip
    ENTRIES,
    attend_to_past,
    attend_to_sources,
)

pytestmark = MARKS
UNITS = {torch.bfloat16: 2.0, torch.float32: 1e-5 * 2**23}
TYPES = [torch.float32, torch.bfloat16]
SIZES = [  # slots, beam, heads, d_k, d_v, room
    (3, 4, 2, 16, 16, 32),
    (2, 1, 1, 64, 64, ENTRIES + 7),
    (2, 17, 1, 20, 64, 2 * ENTRIES),
]


def by_formula(queries, keys, values, is_seen):
    """softmax(QK^T / sqrt(D)) V in fp64, of what is seen [S, K, E]."""
    num_slots, num_heads, d_k, _ = keys.shape
    q = queries.double().view(num_slots, -1, num_heads, d_k).transpose(1, 2)  # S H K D
    scores = q @ keys.double() / d_k**0.5
    weights = scores.masked_fill(~is_seen[:, None], -torch.inf).softmax(-1)
    return (weights @ values.double()).transpose(1, 2).flatten(2).flatten(0, 1)


def caches(sizes, dtype):
    num_slots, _, num_heads, d_k, d_v, room = sizes
    keys = torch.randn(num_slots, num_heads, d_k, room).to(DEVICE, dtype)
    return keys, torch.randn(num_slots, num_heads, room, d_v).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_each_hypothesis_attends_to_its_past_and_itself(sizes, dtype):
    torch.manual_seed(2)
    num_slots, beam_size, num_heads, d_k, d_v, room = sizes
    keys, values = caches(sizes, dtype)
    widths = [num_heads * d_k, num_heads * d_k, num_heads * d_v]
    together = torch.randn(num_slots * beam_size, sum(widths)).to(DEVICE, dtype)
    rows = together.split(widths, 1)
    used = [beam_size, room, room // 2 + beam_size][:num_slots]
    places = torch.stack([torch.randperm(each)[:beam_size] for each in used]).to(DEVICE)
    is_past = (torch.rand(num_slots, beam_size, room) < 0.4).to(DEVICE)
    lengths = torch.tensor(used, device=DEVICE)
    is_past &= (torch.arange(room, device=DEVICE) < lengths[:, None])[:, None]
    is_past[0] = False  # has no past yet
    for hypothesis in range(beam_size):  # places are free, so they are in no other past
        is_past.scatter_(2, places[:, hypothesis, None, None].expand(-1, beam_size, 1), False)
    is_past.scatter_(2, places[:, :, None], True)
    expected_keys, expected_values = keys.clone(), values.clone()
    for slot in range(num_slots):
        for hypothesis, place in enumerate(places[slot].tolist()):
            row = slot * beam_size + hypothesis
            expected_keys[slot, :, :, place] = rows[1][row].view(num_heads, d_k)
            expected_values[slot, :, place] = rows[2][row].view(num_heads, d_v)
    found = attend_to_past(rows, keys, values, is_past, places, torch.full_like(lengths, room))
    assert torch.equal(keys, expected_keys)
    assert torch.equal(values, expected_values)
    assert errors(found, by_formula(rows[0], keys, values, is_past)) <= UNITS[dtype]
    for slot, length in enumerate(used):  # nothing behind it counts
        keys[slot, :, :, length:], values[slot, :, length:] = torch.nan, torch.nan
    assert torch.equal(attend_to_past(rows, keys, values, is_past, places, lengths), found)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_a_beam_attends_to_its_source_whatever_lies_behind_it(sizes, dtype):
    torch.manual_seed(3)
    num_slots, beam_size, num_heads, d_k, _, room = sizes
    keys, values = caches(sizes, dtype)
    lengths = torch.tensor([1, room, room // 2])[:num_slots].to(DEVICE)
    queries = torch.randn(num_slots * beam_size, num_heads * d_k).to(DEVICE, dtype)
    is_own = (torch.arange(room, device=DEVICE) < lengths[:, None])[:, None]
    expected = by_formula(queries, keys, values, is_own)
    keys[0, :, :, 1:], values[0, :, 1:] = torch.nan, torch.nan
    assert errors(attend_to_sources(queries, keys, values, lengths), expected) <= UNITS[dtype]
