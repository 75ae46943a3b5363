"""What is asked of logits in a tensor, against plain lists of numbers."""

import math

import numpy as np
import pytest
import torch

from nmt_cli.search.logits import Banned, Permitted
from nmt_cli.search.sentences import Sampling
from nmt_cli.search.torch_logits import TorchLogits, log_normalizers, top_k


def test_equal_candidates_come_by_parent_then_by_token():
    """Two slots; in the second, one hypothesis lives. All tokens of a row are equally probable."""
    logits = TorchLogits(torch.zeros(4, 7), torch.full((4,), 2.0))
    scores = np.array([[-1.0, -1.0], [-3.0, -np.inf]], np.float32)
    found = logits.best_of_slots(scores, 4)
    assert found.scores.tolist() == [[-3.0] * 4, [-5.0] * 4]
    assert found.parents.tolist() == [[0] * 4, [0] * 4]
    assert found.tokens.tolist() == [[0, 1, 2, 3]] * 2


def test_candidates_of_all_hypotheses_compete():
    rows = torch.tensor([[0.0, 4.0, 1.0], [3.0, 0.5, -torch.inf]])
    found = TorchLogits(rows, torch.zeros(2)).best_of_slots(np.array([[-1.0, -2.0]], "f"), 4)
    assert found.scores.tolist() == [[3.0, 1.0, 0.0, -1.0]]
    assert found.parents.tolist() == [[0, 1, 0, 0]]
    assert found.tokens.tolist() == [[1, 0, 2, 0]]


def log_probability(row, token):
    return row[token] - math.log(sum(map(math.exp, row)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", range(3))
def test_restrictions_hold_together_and_leave_other_probabilities_as_they_are(seed, dtype):
    """As sets of tokens, row by row; some are banned and permitted, and some rows are read anew."""
    rng = np.random.default_rng(seed)
    num_rows, num_tokens = 7, 31
    rows = torch.from_numpy(rng.normal(size=(num_rows, num_tokens))).to(dtype)
    allowed = [set(range(num_tokens)) for _ in range(num_rows)]
    before, logits = rows.double().tolist(), TorchLogits(rows)
    for _ in range(2):
        banned = Banned(rng.integers(0, num_rows, 40), rng.integers(0, num_tokens, 40))
        of_rows = rng.permutation(num_rows)[:4]
        each = [rng.permutation(num_tokens)[:number] for number in (25, 0, 1, 28)]
        bounds = np.cumsum([0, *map(len, each)])
        logits.restrict(banned)
        logits.restrict(Permitted(of_rows, bounds, np.concatenate(each)))
        for row, token in zip(*banned, strict=True):
            allowed[row].discard(token)
        for row, tokens in zip(of_rows, each, strict=True):
            allowed[row] &= set(tokens.tolist())
    order = np.array([3, 3, *range(num_rows)])
    for found, names in ((logits, range(num_rows)), (logits.select(order), order)):
        at, tokens = (each.ravel() for each in np.indices((len(names), num_tokens)))
        values = found.log_probabilities(at, tokens).reshape(len(names), -1)
        best, of_best = found.best_of_rows(5)
        for place, row in enumerate(names):
            expected = [
                log_probability(before[row], token) if token in allowed[row] else -math.inf
                for token in range(num_tokens)
            ]
            assert values[place].tolist() == pytest.approx(expected, abs=1e-5)
            assert best[place].tolist() == sorted(values[place].tolist(), reverse=True)[:5]
            assert values[place, of_best[place]].tolist() == best[place].tolist()
        expected = [math.log(sum(map(math.exp, before[row]))) for row in names]
        assert found.normalizers().tolist() == pytest.approx(expected, abs=1e-5)


def test_a_draw_has_the_log_probability_of_its_token():
    rows = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    logits, places = TorchLogits(rows.clone()), np.arange(5)
    logits.restrict(Banned(places, places))
    tokens, values = logits.draw(Sampling(temperature=2.0, top_p=0.9), np.linspace(0, 0.99, 5))
    expected = [
        log_probability(row, token) for row, token in zip(rows.tolist(), tokens, strict=True)
    ]
    assert values.tolist() == pytest.approx(expected, abs=1e-5)
    assert (tokens != places).all()


def test_the_mean_is_that_of_the_probabilities():
    several = [torch.randn(4, 9, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    mean = TorchLogits(several[0].clone()).mean_with(map(TorchLogits, several[1:]))
    expected = torch.stack([each.double().softmax(1) for each in several]).mean(0)
    assert torch.allclose(mean.values.double().exp(), expected, atol=1e-6)


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
