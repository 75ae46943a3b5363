"""The forecast of a training: by formula from the rate of products, and in words."""

import pytest

from nmt_cli.costs import this_machine
from nmt_cli.costs.flops import PlannedWork
from nmt_cli.costs.this_machine import forecast, seconds_here
from nmt_cli.hardware.cpu import Cpu

WORK = PlannedWork(steps=4500, target_tokens_per_step=4000, flops_per_step=2e11, epochs=41.98)


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A CPU of 100 GFLOP/s without a GPU."""
    monkeypatch.setattr(this_machine, "GPU", tmp_path / "none")
    monkeypatch.setattr(this_machine, "_flops_per_second", lambda: 1e11)


@pytest.mark.parametrize(
    ("flags", "share"),
    [({"avx2"}, 0.8), ({"avx512_bf16"}, 1.3), ({"avx512_bf16", "amx_bf16"}, 1.6)],
)
def test_instructions_for_bf16_make_training_faster(monkeypatch, flags, share):
    monkeypatch.setattr(this_machine, "read_cpu", lambda: Cpu(None, None, frozenset(flags)))
    found = seconds_here(WORK)
    assert found is not None
    seconds, basis = found
    assert seconds == pytest.approx(4500 * 2e11 / 1e11 / share)
    assert basis == "estimated: products run at 100 GFLOP/s"


def test_a_forecast_has_epochs_tokens_and_hours(monkeypatch):
    monkeypatch.setattr(this_machine, "read_cpu", lambda: Cpu(None, None, frozenset()))
    assert forecast(WORK) == (
        "The training has 4,500 steps, 42.0 epochs, 18.0 million target tokens; about 3 h 08 min "
        "on this machine (estimated: products run at 100 GFLOP/s)."
    )
    without = "The training has 4,500 steps, 18.0 million target tokens"
    assert forecast(WORK._replace(epochs=None)).startswith(f"{without}; about 3 h")
    assert forecast(WORK._replace(epochs=None), on_cpu=False) == f"{without}."
    assert "To shorten it, lower training.max_steps" in forecast(WORK._replace(steps=36_000))
    monkeypatch.setattr(this_machine, "GPU", this_machine.GPU.parent)
    assert forecast(WORK._replace(epochs=None)) == f"{without}."


def test_the_rate_is_that_of_a_product_of_this_size(monkeypatch):
    monkeypatch.undo()
    assert 1e8 < this_machine._flops_per_second() < 1e14
