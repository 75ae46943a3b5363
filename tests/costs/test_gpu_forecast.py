"""The forecast of steps on GPUs, against sums of its parts, and the table in the documentation."""

from pathlib import Path

import pytest
import torch

from nmt_cli.costs.gpu_forecast import (
    Machines,
    StepForecast,
    calls_of,
    exchange_seconds,
    operations_of,
    step_forecast,
)
from nmt_cli.costs.training_time import PAPER_BASE, PAPER_BIG, PAPER_VOCABULARY, equal_pairs
from nmt_cli.hardware.flops import peak_flops_of
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.flat_gradient import _buckets

PAGE = Path(__file__).parents[2] / "docs/how-to/several-machines.md"
MODELS = {"base": PAPER_BASE, "big": PAPER_BIG}
# Counted on a simulated GPU at 25,000 tokens, before operations were saved.
OPERATIONS_OF_BASE_BEFORE = 1_201
CLUSTERS = {
    "one": Machines(1, 1),
    "NVLink": Machines(1, 8),
    "400 Gb/s": Machines(8, 1),
    "both": Machines(8, 8),
}


def forecast(model: str, tokens: float, machines: Machines) -> StepForecast:
    peak = peak_flops_of("H100", "bf16")
    assert peak is not None
    lengths = equal_pairs(27, 27, "assumed")
    return step_forecast(MODELS[model], PAPER_VOCABULARY, lengths, tokens, machines, peak)


def row(model: str, name: str) -> str:
    machines = CLUSTERS[name]
    small = forecast(model, 25_000, machines)
    large = forecast(model, 25_000 * machines.gpus, machines)
    cells = [
        model,
        str(machines.gpus),
        "" if name == "one" else name,
        f"{small.memory_bytes / 1e9:.1f} GB",
        f"{small.exchanged_bytes / 1e6:,.0f} MB",
        str(small.calls),
        f"{1e3 * small.device_seconds:.1f}",
        f"{1e3 * small.host_seconds:.1f}",
        f"{1e3 * small.exchange_seconds:.1f}",
        f"{1e3 * small.seconds:.1f} ms",
        f"{small.utilization:.0%}",
        f"{large.utilization:.0%}",
    ]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def test_the_table_in_the_documentation_is_that_of_the_formulas():
    rows = [row(model, name) for model in MODELS for name in CLUSTERS]
    assert "\n".join(rows) in PAGE.read_text()


def test_a_micro_batch_launches_a_quarter_fewer_operations_than_it_did():
    """A rehearsal counts the operations that the formula stands for."""
    assert operations_of(PAPER_BASE, 25_000) <= 0.75 * OPERATIONS_OF_BASE_BEFORE


@pytest.mark.parametrize("members", [2, 5, 8])
def test_an_exchange_takes_as_long_as_the_rounds_of_a_ring(members):
    """Each member sends a part of the gradient in each round: first sums, then what was summed."""
    num_bytes, seconds = 240e6, 0.0
    for _ in range(2 * (members - 1)):
        seconds += num_bytes / members / 40e9
    found = exchange_seconds(num_bytes, 3, Machines(members, 1))
    assert found == pytest.approx(seconds + 3 * 50e-6)


@pytest.mark.parametrize("model", MODELS)
def test_calls_are_those_of_the_parts_that_training_exchanges(model):
    with torch.device("meta"):
        parameters = list(Transformer(MODELS[model], PAPER_VOCABULARY).parameters())
    parts = _buckets([parameter.numel() for parameter in reversed(parameters)], 4)
    assert abs(len(list(parts)) - calls_of(MODELS[model], PAPER_VOCABULARY)) <= 1


def test_one_gpu_exchanges_nothing():
    alone = forecast("base", 25_000, Machines(1, 1))
    assert (alone.exchanged_bytes, alone.calls, alone.exchange_seconds) == (0, 0, 0)
    assert alone.seconds == alone.device_seconds


def test_more_tokens_hide_the_exchange():
    """The matrix of embeddings is exchanged last, when nothing is left to compute."""
    for tokens, is_hidden in ((25_000, False), (1_600_000, True)):
        step = forecast("big", tokens, CLUSTERS["both"])
        wait = step.seconds - max(step.device_seconds, step.host_seconds)
        last = exchange_seconds(4 * 37_000 * 1024, 1, CLUSTERS["both"])
        assert (wait == pytest.approx(last)) == is_hidden
        assert wait >= last * (1 - 1e-9)


def test_what_limits_a_step_is_what_takes_longest():
    assert forecast("big", 25_000, CLUSTERS["one"]).limit == "GPU"
    assert forecast("base", 25_000, CLUSTERS["NVLink"]).limit == "CPU"
    assert forecast("big", 25_000, CLUSTERS["400 Gb/s"]).limit == "exchange"
