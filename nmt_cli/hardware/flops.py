"""Arithmetic of a training step, and what a device could do at most: model FLOP utilization.

MFU = training FLOPs of the real tokens / (seconds * devices * peak_flops).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from nmt_cli.recipe.schema import ModelConfig

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

BACKWARD_AND_FORWARD = 3  # a product's gradient is two products of its size
TERA = 1e12


class LengthSums(NamedTuple):
    """All that FLOPs depend on, of sentence pairs with S source and T target tokens."""

    source: int  # sum of S
    target: int  # sum of T
    source_squared: int  # sum of S * S
    target_squared: int  # sum of T * T
    product: int  # sum of S * T


def sum_lengths(source_lengths: ArrayLike, target_lengths: ArrayLike) -> LengthSums:
    """Return the sums of pairs with these lengths, both [pairs]; sums of batches can be added."""
    source = np.asarray(source_lengths, dtype=np.int64)
    target = np.asarray(target_lengths, dtype=np.int64)
    products = (source @ source, target @ target, source @ target)
    return LengthSums(int(source.sum()), int(target.sum()), *map(int, products))


def training_flops(
    config: ModelConfig,
    vocabulary_size: int,
    source_lengths: ArrayLike,
    target_lengths: ArrayLike,
) -> float:
    """Return the matrix FLOPs of forward and backward for pairs of these lengths, both [pairs].

    A multiplication with its addition is two. Real tokens count, padding does not, nor do
    recomputation and whatever is not a matrix product. Causal attention counts in full, as the
    field does; the attention core is about 1 % of base.
    """
    return training_flops_of_sums(
        config, vocabulary_size, sum_lengths(source_lengths, target_lengths)
    )


def training_flops_of_sums(config: ModelConfig, vocabulary_size: int, lengths: LengthSums) -> float:
    """Return ``training_flops`` of a batch from its sums, whatever the number of its pairs."""
    d_model = config.d_model
    heads = config.num_heads * (config.key_width + config.value_width)  # 2 d_model in the paper
    feed_forward = 4 * d_model * config.d_ff
    # For each token: queries and output are half of attention's projections, keys and values half.
    encoder = 4 * d_model * heads + feed_forward
    memory = 2 * d_model * heads
    decoder = 4 * d_model * heads + 2 * d_model * heads + feed_forward
    core = 2 * heads * (lengths.source_squared + lengths.target_squared + lengths.product)
    layer = lengths.source * (encoder + memory) + lengths.target * decoder + core
    softmax = lengths.target * 2 * d_model * vocabulary_size
    return float(BACKWARD_AND_FORWARD * (config.num_layers * layer + softmax))


def peak_flops(device: torch.device, precision: str) -> float | None:
    """Return the FLOPs a second of the device's datasheet; None where it is not known.

    Dense products (no sparsity), bf16 with fp32 sums on tensor cores, fp32 without TF32.
    """
    if device.type != "cuda":
        return None  # a CPU's depends on its clock, which depends on its work
    return peak_flops_of(torch.cuda.get_device_name(device), precision)


def peak_flops_of(device_name: str, precision: str) -> float | None:
    """Return ``peak_flops`` of the GPU with this name."""
    peaks = PEAK_TERAFLOPS.get(_model_of(device_name))
    teraflops = getattr(peaks, precision, None)
    return None if teraflops is None else teraflops * TERA


class Peaks(NamedTuple):
    """Dense teraFLOPs a second; None where the hardware has no such units."""

    fp32: float
    bf16: float | None


# NVIDIA's datasheets and architecture whitepapers. Where they print sparse figures, half of them.
PEAK_TERAFLOPS = {
    "P100": Peaks(10.6, None),
    "P100 PCIE": Peaks(9.3, None),
    "V100": Peaks(15.7, None),
    "V100 PCIE": Peaks(14.0, None),
    "V100S PCIE": Peaks(16.4, None),
    "T4": Peaks(8.1, None),
    "A100": Peaks(19.5, 312.0),
    "A100 PCIE": Peaks(19.5, 312.0),
    "A30": Peaks(10.3, 165.0),
    "A10": Peaks(31.2, 125.0),
    "A10G": Peaks(31.5, 70.0),
    "A40": Peaks(37.4, 149.7),
    "RTX A6000": Peaks(38.7, 154.8),
    "L4": Peaks(30.3, 121.0),
    "L40": Peaks(90.5, 181.05),
    "L40S": Peaks(91.6, 362.05),
    "RTX 6000 ADA": Peaks(91.1, 364.25),
    "H100": Peaks(66.9, 989.4),
    "H100 PCIE": Peaks(51.2, 756.0),
    "H100 NVL": Peaks(60.0, 835.5),
    "H200": Peaks(66.9, 989.4),
    "H200 NVL": Peaks(60.0, 835.5),
    "GH200": Peaks(66.9, 989.4),
    "B200": Peaks(75.0, 2250.0),
    "GB200": Peaks(80.0, 2500.0),
    "RTX 3070": Peaks(20.3, 40.6),
    "RTX 3080": Peaks(29.8, 59.5),
    "RTX 3090": Peaks(35.6, 71.0),
    "RTX 4070 TI": Peaks(40.1, 80.2),
    "RTX 4080": Peaks(48.7, 97.5),
    "RTX 4090": Peaks(82.6, 165.2),
    "RTX 5070": Peaks(30.9, 61.7),
    "RTX 5070 TI": Peaks(43.9, 87.9),
    "RTX 5080": Peaks(56.3, 112.6),
    "RTX 5090": Peaks(104.8, 209.5),
}
# Words of a name besides the model. Any other word ("Laptop", "MIG", "D") is another model.
NOT_THE_MODEL = re.compile(r"NVIDIA|TESLA|GEFORCE|GENERATION|SXM\d?|HBM3E?|\d+GB")


def _model_of(device_name: str) -> str:
    words = re.split(r"[\s-]+", device_name.upper())
    return " ".join(word for word in words if not NOT_THE_MODEL.fullmatch(word))
