"""The precision in which torch translates: that of the weights."""

import copy

import torch

from nmt_cli.hardware.choices import DecodingPrecision, choose_decoding_precision
from nmt_cli.hardware.device import DTYPES, bf16_is_fast
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer


def torch_precision(name: str, device: torch.device | str) -> DecodingPrecision:
    """Return what a ``name`` of --precision means where torch translates; on a CPU it is fp32.

    Raises UserError if there is no such precision, or if ``device`` does not have it.
    """
    device = torch.device(device)
    is_gpu = device.type != "cpu"
    if not is_gpu and name in {"bf16", "int8"}:
        raise UserError(
            f"--precision {name} on a CPU needs nmt-cli's library, which is missing here (nmt-cli "
            "doctor says why); give fp32."
        )
    return choose_decoding_precision(name, device.type, has_bf16=is_gpu and bf16_is_fast(device))


def at_precision(model: Transformer, precision: DecodingPrecision) -> Transformer:
    """Return ``model`` itself if its weights have ``precision``, else a copy."""
    dtype = DTYPES[precision]
    return model if model.output_weight.dtype is dtype else copy.deepcopy(model).to(dtype)
