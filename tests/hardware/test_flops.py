import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.hardware.flops import (
    LengthSums,
    peak_flops,
    peak_flops_of,
    sum_lengths,
    training_flops,
    training_flops_of_sums,
)
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.schema import ModelConfig

BASE = ModelConfig()
BIG = ModelConfig(d_model=1024, d_ff=4096, num_heads=16)
VARIATIONS = {
    "small": {},
    "narrow keys": {"d_k": 3, "d_v": 7},
    "three matrices": {"tied_embeddings": "none"},
    "pre-norm": {"norm": "pre"},
}


def counted_by_torch(model, source_length, target_length):
    """Count forward and backward of one pair, which no padding surrounds."""
    source, target = (pack(torch.ones(n), [n]) for n in (source_length, target_length))
    # The other kernels of attention are opaque to the counter.
    math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with FlopCounterMode(display=False) as counter, math:
        model.project(model(source, target)).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("changes", VARIATIONS.values(), ids=VARIATIONS)
def test_flops_are_those_of_the_products_that_torch_runs(changes):
    small = {"num_layers": 2, "d_model": 20, "d_ff": 28, "num_heads": 5, "dropout": 0.0}
    config = ModelConfig(**small | changes)
    model = Transformer(config, vocabulary_size=37)
    sources, targets = [7, 3, 1], [4, 9, 2]
    counted = sum(counted_by_torch(model, *pair) for pair in zip(sources, targets, strict=True))
    assert training_flops(config, 37, sources, targets) == counted


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


@pytest.mark.parametrize(
    ("name", "fp32", "bf16"),
    [
        ("NVIDIA H200", 66.9, 989.4),
        ("NVIDIA H100 80GB HBM3", 66.9, 989.4),
        ("NVIDIA H100 PCIe", 51.2, 756),
        ("NVIDIA A100-SXM4-80GB", 19.5, 312),
        ("NVIDIA A100-PCIE-40GB", 19.5, 312),
        ("NVIDIA GH200 480GB", 66.9, 989.4),
        ("Tesla V100-SXM2-16GB", 15.7, None),
        ("NVIDIA L4", 30.3, 121),
        ("NVIDIA L40S", 91.6, 362.05),
        ("NVIDIA GeForce RTX 4090", 82.6, 165.2),
        ("NVIDIA RTX 6000 Ada Generation", 91.1, 364.25),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("NVIDIA GeForce RTX 4090 D", None, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, None),
        ("NVIDIA L", None, None),
        ("", None, None),
    ],
)
def test_a_peak_is_known_of_exactly_this_gpu(name, fp32, bf16):
    for precision, teraflops in (("fp32", fp32), ("bf16", bf16)):
        expected = None if teraflops is None else pytest.approx(teraflops * 1e12)
        assert peak_flops_of(name, precision) == expected


def test_the_peak_of_a_gpu_is_that_of_its_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA H20{device.index}")
    assert peak_flops(torch.device("cuda:0"), "bf16") == pytest.approx(989.4e12)
    assert peak_flops(torch.device("cuda:1"), "bf16") is None


def test_the_peak_of_a_cpu_is_unknown():
    assert peak_flops(torch.device("cpu"), "fp32") is None
