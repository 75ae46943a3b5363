import pytest
import torch

from nmt_cli.model.attention_layout import AttentionLayout, repack, unpack
from nmt_cli.model.packing import pack

LENGTHS = [3, 7, 1, 5, 7, 2, 11]


def packed(lengths, first_token=0):
    return pack(torch.arange(first_token, first_token + sum(lengths)), lengths)


@pytest.mark.parametrize("overhead", [0, 10, 2_000])
def test_groups_hold_each_sentence_once_at_its_place(overhead, monkeypatch):
    monkeypatch.setattr("nmt_cli.model.attention_layout.GROUP_OVERHEAD", overhead)
    queries, keys = packed(LENGTHS), packed(LENGTHS[::-1], first_token=100)
    layout = AttentionLayout(queries, keys)
    shown_queries = queries.tokens[layout.padded.queries.to_padded]
    shown_keys = keys.tokens[layout.padded.keys.to_padded]
    seen = []
    query_place = key_place = 0
    for group in layout.padded.groups:
        for sentence in range(group.num_sentences):
            q = shown_queries[query_place : query_place + group.query_length].tolist()
            k = shown_keys[key_place : key_place + group.key_length]
            if group.keep is not None:
                k = k[group.keep[sentence, 0, 0]]
            index = int(torch.tensor(LENGTHS).cumsum(0).le(q[0]).sum())
            length, key_length = LENGTHS[index], LENGTHS[::-1][index]
            first_query, first_key = sum(LENGTHS[:index]), 100 + sum(LENGTHS[::-1][:index])
            assert q[:length] == list(range(first_query, first_query + length))
            assert k.tolist() == list(range(first_key, first_key + key_length))
            seen.append(index)
            query_place += group.query_length
            key_place += group.key_length
    assert sorted(seen) == list(range(len(LENGTHS)))


def test_without_overhead_nothing_is_padded(monkeypatch):
    monkeypatch.setattr("nmt_cli.model.attention_layout.GROUP_OVERHEAD", 0)
    layout = AttentionLayout(packed(LENGTHS), packed(LENGTHS))
    assert len(layout.padded.queries.holes) == 0
    assert all(group.keep is None for group in layout.padded.groups)


def test_moving_there_and_back_is_the_identity_with_autograds_own_gradient():
    batch = packed(LENGTHS)
    side = AttentionLayout(batch, batch).padded.queries
    assert len(side.holes) > 0
    rows = torch.randn(sum(LENGTHS), 3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(repack(unpack(rows, side), side), rows)

    places = torch.randn(len(side.to_padded), 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(sum(LENGTHS), 3, dtype=torch.float64)
    (ours,) = torch.autograd.grad((repack(places, side) * weights).sum(), places)
    (autograds,) = torch.autograd.grad((places[side.to_packed] * weights).sum(), places)
    assert torch.equal(ours, autograds)

    # Holes receive no gradient in attention, so none is given here either.
    weights = torch.randn(len(side.to_padded), 3, dtype=torch.float64)
    weights[side.holes] = 0.0
    (ours,) = torch.autograd.grad((unpack(rows, side) * weights).sum(), rows)
    (autograds,) = torch.autograd.grad((rows[side.to_padded] * weights).sum(), rows)
    assert torch.allclose(ours, autograds, atol=1e-15)
