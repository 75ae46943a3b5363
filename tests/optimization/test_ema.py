import math
from typing import Any

import pytest
import torch
from torch import nn

from nmt_cli.messages.errors import DamagedError
from nmt_cli.model.stored_weights import check_weights
from nmt_cli.optimization import MovingAverage, decay_at


def new_model(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7))


def values(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def bit_equal(first, second):
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def move(model, step):
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))


def trained(model, average, steps):
    for step in steps:
        move(model, step)
        average.update(model, step)
    return average


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.999])
def test_it_is_the_weighted_sum_of_all_weights_so_far(decay):
    model = new_model()
    average = MovingAverage(model, decay)
    history = [values(model)]
    for step in range(1, 41):
        trained(model, average, [step])
        history.append(values(model))
    decays = [1.0] + [min(decay, (1 + n) / (10 + n)) for n in range(1, 41)]
    shares = [(1 - decays[n]) * math.prod(decays[n + 1 :]) for n in range(1, 41)]
    shares.insert(0, math.prod(decays))
    assert sum(shares) == pytest.approx(1)
    for name, found in average.weights().items():
        expected = sum(w[name].double() * s for w, s in zip(history, shares, strict=True))
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6)


def test_the_weights_of_the_start_are_soon_forgotten():
    model = nn.Linear(1, 1)
    nn.init.zeros_(model.weight)
    average = MovingAverage(model, 0.9999)
    nn.init.ones_(model.weight)
    for step in range(1, 31):
        average.update(model, step)
        left = math.factorial(10) * math.factorial(step + 1) / math.factorial(step + 10)
        assert average.weights()["weight"].item() == pytest.approx(1 - left, abs=1e-6)
    assert left < 1e-7


def test_the_decay_rises_to_the_recipes():
    decays = [decay_at(step, 0.9) for step in range(1, 200)]
    assert decays == sorted(decays)
    assert decays[0] < 0.2
    assert decays.count(0.9) == 199 - 79  # (1 + n) / (10 + n) is 0.9 where n is 80


def test_the_model_holds_the_averages_for_a_while():
    model = new_model()
    average = trained(model, MovingAverage(model, 0.9), range(1, 6))
    before, averages = values(model), {n: w.clone() for n, w in average.weights().items()}
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    rows = torch.randn(3, 5)
    with average.in_place_of(model) as weights:
        assert bit_equal(values(model), averages)
        assert bit_equal(weights, before)
        assert [parameter.data_ptr() for parameter in model.parameters()] == addresses
        inside = model(rows)
    assert bit_equal(values(model), before)
    assert bit_equal(average.weights(), averages)
    witness = new_model()
    witness.load_state_dict(averages)
    assert torch.equal(inside, witness(rows))


def test_an_error_inside_gives_the_trained_weights_back():
    model = new_model()
    average = trained(model, MovingAverage(model, 0.9), range(1, 6))
    before = values(model)
    with pytest.raises(KeyboardInterrupt), average.in_place_of(model):
        raise KeyboardInterrupt
    assert bit_equal(values(model), before)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("validated_at", [(), (3, 7, 8)])
def test_continuing_from_saved_averages_changes_no_bit(tmp_path, validated_at):
    model = new_model()
    undisturbed = trained(model, MovingAverage(model, 0.95), range(1, 13)).weights()

    model = new_model()
    average = MovingAverage(model, 0.95)
    for step in range(1, 9):
        trained(model, average, [step])
        if step in validated_at:
            with average.in_place_of(model):
                pass
    torch.save((values(model), average.weights()), tmp_path / "saved.pt")

    weights, averages = torch.load(tmp_path / "saved.pt", weights_only=True)
    model = new_model(seed=2)
    model.load_state_dict(weights)
    resumed = MovingAverage(model, 0.95)
    resumed.restore(averages)
    assert bit_equal(trained(model, resumed, range(9, 13)).weights(), undisturbed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda saved: saved.pop("1.bias"), "1.bias is in one and not in the other"),
        (lambda saved: saved.update(other=torch.zeros(2)), "other is in one and not in the other"),
        (lambda saved: saved.update({"0.bias": torch.zeros(1)}), r"\[1\], not float32 \[7\]"),
        (
            lambda saved: saved.update({"0.bias": torch.zeros(7).double()}),
            "0.bias is float64",
        ),
        (lambda saved: saved["0.weight"].fill_(math.nan), "0.weight is not finite"),
    ],
)
def test_averages_that_do_not_fit_their_model_are_refused(tmp_path, change, message):
    model: Any = new_model()
    average = MovingAverage(model, 0.9)
    saved = {name: weight.clone() + 1 for name, weight in average.weights().items()}
    change(saved)
    wanted = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    arrays = {name: weight.numpy() for name, weight in saved.items()}
    with pytest.raises(DamagedError, match=message):
        check_weights(wanted, arrays, tmp_path)
