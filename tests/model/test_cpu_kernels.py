"""The kernels of --compile compute what torch does, row by row, and say what they need."""

import shutil

import pytest
import torch
from torch import nn

from nmt_cli.messages.errors import UserError
from nmt_cli.model.cpu_kernels import COMPILERS, can_attend, load_kernels, use_kernels
from nmt_cli.model.int8_products import rounded_rows
from nmt_cli.search.attention_cache import additive_mask, attend
from nmt_cli.search.slot_parts import KeysValues
from nmt_cli.search.top_k import log_normalizers


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    if not any(map(shutil.which, COMPILERS)):
        pytest.skip("there is no C compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        load_kernels.cache_clear()
        yield load_kernels()
        load_kernels.cache_clear()


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
    cached = KeysValues(torch.randn(1, 3, 16, 20), torch.randn(1, 3, 20, 16))
    queries = torch.randn(2, 48)
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
    assert all(can_attend(*part) for part in parts)
    with use_kernels(kernels):
        found = attend(queries, parts, masks)
        last = attend(
            queries[-beam_size:], [KeysValues(*(x[-1:] for x in cached))], [mask[-heads:]]
        )
    assert found.isnan().any()
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert torch.equal(found[-beam_size:], last)


def test_a_slot_that_attends_to_nothing_gets_no_number(kernels):
    cached = KeysValues(torch.randn(1, 1, 16, 20), torch.randn(1, 1, 20, 16))
    mask = torch.full((1, 2, 20), -torch.inf)
    with use_kernels(kernels):
        assert attend(torch.randn(2, 16), [cached], [mask]).isnan().all()


def test_the_sum_is_normalized_as_by_torch(kernels):
    rows, branch, norm = torch.randn(7, 48), torch.randn(7, 48), nn.LayerNorm(48)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
        found = kernels.add_norm(rows, branch, norm)
        assert torch.allclose(found, norm(rows + branch), rtol=1e-5, atol=1e-5)
        assert kernels.add_norm(rows[:, :40], branch[:, :40], nn.LayerNorm(40)) is None


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
    with pytest.raises(UserError, match="none cannot be run: No such file"):
        load_kernels.__wrapped__()


def test_what_was_compiled_is_used_again(monkeypatch, tmp_path, kernels):
    del kernels
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_kernels.__wrapped__()
    (library,) = (tmp_path / "nmt-cli/kernels").iterdir()
    made = library.stat().st_mtime_ns
    load_kernels.__wrapped__()
    assert [each.stat().st_mtime_ns for each in library.parent.iterdir()] == [made]
