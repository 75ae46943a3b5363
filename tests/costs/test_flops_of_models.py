"""FLOPs by formula, against torch's counter.

All formulas of costs, against models in which each two options of the architecture meet.
"""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.costs.flops import (
    LengthSums,
    forward_flops,
    sum_lengths,
    sum_of_text,
    training_flops,
    training_flops_of_sums,
)
from nmt_cli.costs.parameters import activation_bytes_per_token, count_parameters
from nmt_cli.model.attention_window import Window, distances
from nmt_cli.model.packing import pack
from nmt_cli.recipe.sections.model import ModelConfig
from tests.architectures import OPTION_SETS, random_model
from tests.costs.test_parameters import saved_bytes

BASE = ModelConfig()
BIG = ModelConfig(d_model=1024, d_ff=4096, num_heads=16)


def counted_by_torch(model, source_length, target_length):
    """Count forward and backward of one pair, which no padding surrounds."""
    source, target = (pack(torch.ones(n), [n]) for n in (source_length, target_length))
    # The other kernels of attention are opaque to the counter.
    math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with FlopCounterMode(display=False) as counter, math:
        model.project(model(source, target)).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("config", "per_token", "softmax_share"), [(BASE, 381e6, 0.30), (BIG, 1.29e9, 0.176)]
)
def test_the_papers_models_have_their_known_cost(config, per_token, softmax_share):
    lengths = [27] * 100
    total = training_flops(config, 37_000, lengths, lengths)
    softmax = total - training_flops(config, 0, lengths, lengths)
    assert total / sum(lengths) == pytest.approx(per_token, rel=0.005)
    assert softmax / total == pytest.approx(softmax_share, abs=0.005)


def test_sums_stand_for_any_number_of_pairs():
    rng = np.random.default_rng(1)
    source, target = rng.integers(1, 200, (2, 3_000))
    one_by_one = sum(
        training_flops(BASE, 8_000, [s], [t]) for s, t in zip(source, target, strict=True)
    )
    halves = [sum_lengths(source[part], target[part]) for part in (slice(999), slice(999, None))]
    added = LengthSums(*map(sum, zip(*halves, strict=True)))
    assert training_flops_of_sums(BASE, 8_000, added) == pytest.approx(one_by_one, rel=1e-12)
    assert training_flops(BASE, 8_000, source, target) == pytest.approx(one_by_one, rel=1e-12)


def test_sums_of_a_huge_corpus_do_not_overflow():
    narrow = np.full(100_000, 60_000, dtype=np.uint16)
    for total in sum_lengths(narrow, narrow)[2:]:
        assert total == 100_000 * 60_000**2


def test_each_part_is_that_of_its_products():
    config = ModelConfig(num_layers=3, d_model=20, d_ff=28, num_heads=5, d_k=3, d_v=7)
    source, target = 11, 6
    flops = forward_flops(config, 37, sum_lengths([source], [target]))

    def projections(rows, memory_rows):
        """Multiply-adds of queries and output for rows, of keys and values for memory_rows."""
        return 2 * 20 * 5 * (rows * (3 + 7) + memory_rows * (3 + 7))

    def core(queries, keys):
        return 2 * 5 * queries * keys * (3 + 7)

    assert tuple(flops.encoder) == (
        3 * projections(source, source),
        0,
        3 * core(source, source),
        3 * source * 2 * 2 * 20 * 28,
    )
    assert tuple(flops.decoder) == (
        3 * projections(target, target),
        3 * projections(target, source),
        3 * (core(target, target) + core(target, source)),
        3 * target * 2 * 2 * 20 * 28,
    )
    assert flops.softmax == 2 * target * 20 * 37
    assert flops.total == sum(flops.encoder) + sum(flops.decoder) + flops.softmax
    assert 3 * flops.total == training_flops(config, 37, [source], [target])


@pytest.mark.parametrize("window", [1, 3, 10, 11, 1_000_000])
def test_within_a_window_the_pairs_of_the_mask_count(window):
    config = ModelConfig(num_layers=2, d_model=20, d_ff=28, num_heads=5, attention_window=window)
    recurrent = config.model_copy(update={"decoder": "ssru"})
    source, target = [1, 2, 11, 4, 40], [7, 1, 10, 12, 30]
    seen = {
        side: sum(
            int(Window(window, ahead).reaches(distances(n, n, torch.device("cpu"))).sum())
            for n in lengths
        )
        for side, lengths, ahead in (("source", source, window), ("target", target, 0))
    }
    to_memory = sum(s * t for s, t in zip(source, target, strict=True))
    sums = sum_lengths(source, target, window)
    flops, of_recurrent = (forward_flops(each, 37, sums) for each in (config, recurrent))
    of_pair = 2 * 2 * 20 * 2  # layers, multiply-adds, width, keys and values
    assert flops.encoder.attention_core == of_pair * seen["source"]
    assert flops.decoder.attention_core == of_pair * (seen["target"] + to_memory)
    assert of_recurrent.decoder.attention_core == of_pair * to_memory
    assert training_flops(config, 37, source, target) == 3 * flops.total
    assert sum_of_text(np.array(source), np.array(target), window) == sums


SIZE = 37


@pytest.mark.parametrize("options", OPTION_SETS)
def test_the_formulas_give_what_the_model_takes(options):
    model = random_model(options, SIZE).train()
    config = model.config
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(config, SIZE).total == counted
    unrestricted = config.model_copy(update={"attention_window": None})  # torch masks a window
    assert training_flops(unrestricted, SIZE, [7], [4]) == counted_by_torch(model, 7, 4)
    side = pack(torch.randint(SIZE, (24 * 8,)), [24] * 8)
    at_most = 24 * 8 * activation_bytes_per_token(config, 24)
    assert at_most / 4 < saved_bytes(model, side, side) <= at_most
