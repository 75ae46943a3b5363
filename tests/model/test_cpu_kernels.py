"""The kernels of --compile compute what torch does, row by row, and say what they need."""

import numpy as np
import pytest
import torch
from torch import nn

from nmt_cli.messages.errors import UserError
from nmt_cli.model.cpu_kernels import COMPILERS, load_kernels, use_kernels
from nmt_cli.model.cpu_products import rounded_rows
from nmt_cli.search.attention_cache import additive_mask, attend
from nmt_cli.search.choice import BestCandidates
from nmt_cli.search.rules.logits_rule import SlotStates
from nmt_cli.search.slot_parts import KeysValues
from nmt_cli.search.top_k import log_normalizers

# They are not read.
NO_STATES = SlotStates(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0), {})


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.mark.parametrize("width", [7, 32, 50, 64])
def test_normalizers_are_those_of_torch_for_each_row_alone(kernels, width):
    logits = torch.randn(9, width) * 20
    logits[1] -= 1e4
    logits[2] += 100.0
    logits[3, 0] = torch.inf
    logits[4, -1] = torch.nan
    logits[5, 1:] = -torch.inf
    with use_kernels(kernels):
        found = log_normalizers(logits)
        alone = torch.cat([log_normalizers(row[None]) for row in logits])
    assert torch.equal(found.nan_to_num(), alone.nan_to_num())
    expected = log_normalizers(logits)
    assert torch.allclose(found, expected, rtol=1e-6, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("width", [5, 16, 50])
def test_rows_are_rounded_to_the_same_integers(kernels, width):
    rows = torch.randn(6, width)
    rows[1], rows[2, -1], rows[3, 0] = 0.0, torch.nan, torch.inf
    expected_scales, expected = rounded_rows(rows)
    with use_kernels(kernels):
        scales, found = rounded_rows(rows)
    finite = [0, 1, 4, 5]
    assert torch.equal(found[finite], expected[finite])
    assert torch.equal(scales[finite], expected_scales[finite])
    assert scales[2:4].isnan().all()


def test_the_mask_of_one_slot_is_the_same_memory_for_all_heads(kernels):
    cached = KeysValues(torch.randn(1, 3, 32, 20), torch.randn(1, 3, 20, 32))
    queries = torch.randn(2, 96)
    mask = additive_mask(torch.rand(1, 2, 20) < 0.5, 3, queries)
    assert mask.stride(0) == 0
    expected = attend(queries, [cached], [mask])
    with use_kernels(kernels):
        assert torch.allclose(attend(queries, [cached], [mask]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("beam_size", [1, 4, 6])
@pytest.mark.parametrize("room", [3, 16, 37])
def test_attention_is_that_of_torch_for_each_slot_alone(kernels, beam_size, room):
    slots, heads, width = 5, 2, 32
    queries = torch.randn(slots * beam_size, 3 * heads * width)[:, : heads * width]
    cached = KeysValues(
        torch.randn(slots, heads, width, room), torch.randn(slots, heads, room, width)
    )
    is_kept = torch.rand(slots, beam_size, room) < 0.7
    is_kept[:, :, 0] = True
    mask = additive_mask(is_kept, heads, queries)
    cached.values[3, 0, 0, 0] = torch.nan
    parts = [KeysValues(*(each[some] for each in cached)) for some in (slice(2), slice(2, 5))]
    masks = [mask[: 2 * heads], mask[2 * heads :]]
    expected = attend(queries, parts, masks)
    assert kernels.can_attend(parts)
    with use_kernels(kernels):
        found = attend(queries, parts, masks)
        last = attend(
            queries[-beam_size:], [KeysValues(*(x[-1:] for x in cached))], [mask[-heads:]]
        )
    assert found.isnan().any()
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert torch.equal(found[-beam_size:], last)


def test_a_slot_that_attends_to_nothing_gets_no_number(kernels):
    cached = KeysValues(torch.randn(1, 1, 32, 20), torch.randn(1, 1, 20, 32))
    mask = torch.full((1, 2, 20), -torch.inf)
    with use_kernels(kernels):
        assert attend(torch.randn(2, 32), [cached], [mask]).isnan().all()


def test_entries_behind_the_last_one_of_a_slot_are_not_read(kernels):
    cached = KeysValues(torch.randn(2, 1, 32, 40), torch.randn(2, 1, 40, 32))
    queries, mask = torch.randn(4, 32), torch.zeros(2, 2, 40)
    mask[0, :, 5:], mask[1, 0, 20:], mask[1, 1, 18:] = -torch.inf, -torch.inf, -torch.inf
    expected = attend(queries, [cached], [mask])
    for slot, last in ((0, 5), (1, 20)):
        cached.keys[slot, :, :, last:] = torch.nan
        cached.values[slot, :, last:] = torch.nan
    with use_kernels(kernels):
        assert torch.allclose(attend(queries, [cached], [mask]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("beam_size", [1, 4, 5])
def test_new_entries_are_written_at_their_places(kernels, beam_size):
    slots, heads, width, room = 3, 2, 32, 24
    projected = torch.randn(slots * beam_size, 3 * heads * width)
    _, new_keys, new_values = projected.split(heads * width, dim=1)
    cached = KeysValues(
        torch.randn(slots, heads, width, room), torch.randn(slots, heads, room, width)
    )
    places = torch.stack([torch.randperm(room)[:beam_size] for _ in range(slots)])
    expected = KeysValues(*(each.clone() for each in cached))
    for slot in range(slots):
        for k in range(beam_size):
            row, place = slot * beam_size + k, places[slot, k]
            expected.keys[slot, :, :, place] = new_keys[row].view(heads, width)
            expected.values[slot, :, place] = new_values[row].view(heads, width)
    kernels.append(new_keys, new_values, places, cached)
    assert torch.equal(cached.keys, expected.keys)
    assert torch.equal(cached.values, expected.values)


@pytest.mark.parametrize("number", [2, 8, 40])
@pytest.mark.parametrize("num_entries", [7, 64, 200, 1003])
def test_the_best_continuations_are_those_of_torch(kernels, num_entries, number):
    """Whole numbers, so that many are equal."""
    choice, (slots, beam_size) = BestCandidates(number), (6, 4)
    logits = torch.randint(-3, 4, (slots * beam_size, num_entries)).float()
    logits[:4, 3:] = -torch.inf
    logits[5] = -torch.inf
    scores = np.random.default_rng(1).integers(-2, 1, (slots, beam_size)).astype(np.float32)
    scores[2, 1:], scores[3] = -np.inf, -np.inf
    normalizers = torch.randint(0, 3, (slots * beam_size,)).float()
    expected = choice.candidates(logits, normalizers, scores, NO_STATES)
    with use_kernels(kernels):
        found = choice.candidates(logits, normalizers, scores, NO_STATES)
    assert np.array_equal(found.scores, expected.scores)
    exist = found.scores > -np.inf
    assert np.array_equal(found.tokens[exist], expected.tokens[exist])
    assert np.array_equal(found.parents[exist], expected.parents[exist])


def test_the_sum_is_normalized_as_by_torch(kernels):
    rows, branch, norm = torch.randn(7, 48), torch.randn(7, 48), nn.LayerNorm(48)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
        assert kernels.can_add_norm(rows, branch, norm)
        found = kernels.add_norm(rows, branch, norm)
    assert torch.allclose(found, norm(rows + branch), rtol=1e-5, atol=1e-5)


def test_what_kernels_do_not_know_is_left_to_torch(kernels):
    rows = torch.randn(7, 48)
    assert not kernels.can_add_norm(rows[:, :40], rows[:, :40], nn.LayerNorm(40))
    assert not kernels.can_add_norm(rows, rows, nn.LayerNorm(48, bias=False))
    assert not kernels.can_add_norm(rows.bfloat16(), rows, nn.LayerNorm(48))
    narrow = KeysValues(torch.randn(1, 2, 48, 9), torch.randn(1, 2, 9, 48))
    unlike = KeysValues(torch.randn(1, 2, 32, 9), torch.randn(1, 2, 9, 64))
    assert not kernels.can_attend([narrow])
    assert not kernels.can_attend([unlike])
    assert not kernels.can_choose(rows.bfloat16(), 8)
    assert not kernels.can_choose(rows, 10_000)


def test_a_sum_of_very_many_exponentials_is_exact_to_fp32(kernels):
    logits = torch.randn(3, 300_000) * 3
    logits[1] = -torch.inf
    logits[1, 7] = -60.0
    with use_kernels(kernels):
        found = log_normalizers(logits)
    assert torch.allclose(found.double(), logits.double().logsumexp(1), rtol=0, atol=3e-6)


def test_without_a_compiler_the_message_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UserError, match=f"none of {', '.join(COMPILERS)} was found: install one"):
        load_kernels.__wrapped__()


def test_a_compiler_that_fails_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(UserError, match="--compile: false failed: exit status 1"):
        load_kernels.__wrapped__()
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"cannot run .*none: No such file"):
        load_kernels.__wrapped__()
    monkeypatch.setenv("CC", "gcc '")
    with pytest.raises(UserError, match="CC is gcc ', which is no command: No closing quotation"):
        load_kernels.__wrapped__()
    monkeypatch.setenv("CC", "true")
    with pytest.raises(UserError, match="what true made cannot be loaded"):
        load_kernels.__wrapped__()
    assert list(tmp_path.glob("nmt-cli/kernels/*")) == []


def test_the_error_of_a_compiler_is_shown(kernels, monkeypatch, tmp_path):
    del kernels
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "cc -D__builtin_convertvector=nothing")
    with pytest.raises(UserError, match=r"--compile: cc failed: .*cpu_kernels.c:.* error: "):
        load_kernels.__wrapped__()


def test_what_was_compiled_is_used_again(monkeypatch, tmp_path, kernels):
    del kernels
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_kernels.__wrapped__()
    (library,) = (tmp_path / "nmt-cli/kernels").iterdir()
    made = library.stat().st_mtime_ns
    load_kernels.__wrapped__()
    assert [each.stat().st_mtime_ns for each in library.parent.iterdir()] == [made]


def test_a_damaged_library_is_compiled_again(monkeypatch, tmp_path, kernels):
    del kernels
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "whole"))
    load_kernels.__wrapped__()
    (whole,) = (tmp_path / "whole/nmt-cli/kernels").iterdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "damaged"))
    damaged = tmp_path / "damaged/nmt-cli/kernels" / whole.name
    damaged.parent.mkdir(parents=True)
    damaged.touch()
    load_kernels.__wrapped__()
    assert damaged.stat().st_size == whole.stat().st_size
