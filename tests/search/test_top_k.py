import pytest
import torch

from nmt_cli.search.top_k import log_normalizers, top_k


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_entries", [1, 3, 63, 64, 65, 700, 1027])
@pytest.mark.parametrize("k", [1, 2, 5, 8, 20])
def test_equals_the_head_of_a_stable_sort(num_entries, k, dtype):
    generator = torch.Generator().manual_seed(num_entries * k)
    rows = torch.randn(7, num_entries, generator=generator).to(dtype)
    rows[0] = 0.5  # equals everywhere
    rows[1] = torch.randint(0, 3, (num_entries,), generator=generator).to(dtype)
    rows[2, : num_entries // 2] = -torch.inf
    witness = rows.float().sort(dim=1, descending=True, stable=True)
    best = top_k(rows, k)
    assert torch.equal(best.values, witness.values[:, :k])
    assert torch.equal(best.indices, witness.indices[:, :k])


@pytest.mark.parametrize("k", [1, 8, 1026, 1027])
def test_rows_without_equal_entries(k):
    rows = torch.stack([torch.randperm(1027) for _ in range(3)]).float() - 500
    rows[1, 4] = torch.nan  # comes first
    witness = rows.sort(dim=1, descending=True)
    best = top_k(rows, k)
    assert torch.equal(best.indices, witness.indices[:, :k])
    assert torch.equal(best.values.nan_to_num(1e9), witness.values[:, :k].nan_to_num(1e9))


def test_wide_rows_in_which_little_is_possible_name_only_real_entries():
    rows = torch.full((1, 1000), -torch.inf)
    rows[0, 999] = 1.0
    best = top_k(rows, 5)
    assert best.indices[0, 0] == 999
    assert best.indices.max() < 1000


def test_not_a_number_comes_first():
    rows = torch.zeros(1, 1000)
    rows[0, 700] = torch.nan
    assert top_k(rows, 2).values[0, 0].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_normalizers_are_those_of_logsumexp_in_double_precision(dtype):
    logits = (100 * torch.randn(5, 301)).to(dtype)
    witness = logits.double().logsumexp(dim=1)
    assert log_normalizers(logits).tolist() == pytest.approx(witness.tolist(), rel=1e-6)


def test_normalizers_of_extreme_rows_leave_the_others_as_they_are():
    rows = torch.randn(6, 301, generator=torch.Generator().manual_seed(1))
    usual = log_normalizers(rows)
    rows[0] += 500  # exponentials overflow
    rows[1] -= 500  # all are 0
    rows[2, 5] = torch.nan
    rows[3] = -torch.inf
    found = log_normalizers(rows)
    witness = rows[:2].double().logsumexp(dim=1)
    assert found[:2].tolist() == pytest.approx(witness.tolist(), rel=1e-6)
    assert found[2:4].isnan().all()
    assert torch.equal(found[4:], usual[4:])
