"""What a device could do at most, for model FLOP utilization (MFU).

MFU = training FLOPs of the real tokens (``costs.flops``) / (seconds * devices * peak_flops).
"""

import re
from typing import NamedTuple

import torch

TERA = 1e12


def peak_flops(device: torch.device, precision: str) -> float | None:
    """Return the FLOPs a second of the device's datasheet; None where it is not known.

    Dense products (no sparsity): bf16 with fp32 sums on tensor cores, fp32 without TF32, or tf32.
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

    @property
    def tf32(self) -> float | None:
        """Half of bf16 on all of these GPUs."""
        return None if self.bf16 is None else self.bf16 / 2


# NVIDIA's datasheets and architecture whitepapers. Where they print sparse figures, half of them.
PEAK_TERAFLOPS = {
    "P100": Peaks(10.6, None),
    "P100 PCIE": Peaks(9.3, None),
    "V100": Peaks(15.7, None),
    "V100 PCIE": Peaks(14.0, None),
    "V100S PCIE": Peaks(16.4, None),
    "T4": Peaks(8.1, None),
    **dict.fromkeys(("A100", "A100 PCIE"), Peaks(19.5, 312.0)),
    "A30": Peaks(10.3, 165.0),
    "A10": Peaks(31.2, 125.0),
    "A10G": Peaks(31.5, 70.0),
    "A40": Peaks(37.4, 149.7),
    "RTX A6000": Peaks(38.7, 154.8),
    "L4": Peaks(30.3, 121.0),
    "L40": Peaks(90.5, 181.05),
    "L40S": Peaks(91.6, 362.05),
    "RTX 6000 ADA": Peaks(91.1, 364.25),
    **dict.fromkeys(("H100", "H200", "GH200"), Peaks(66.9, 989.4)),
    "H100 PCIE": Peaks(51.2, 756.0),
    **dict.fromkeys(("H100 NVL", "H200 NVL"), Peaks(60.0, 835.5)),
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
