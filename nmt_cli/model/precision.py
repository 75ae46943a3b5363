"""The weights of a model in the precision in which it translates."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt_cli.hardware.choices import DecodingPrecision, choose_decoding_precision
from nmt_cli.hardware.device import DTYPES, bf16_is_fast
from nmt_cli.model.cpu_products import Int8Linear, PackedLinear
from nmt_cli.model.transformer import Transformer


def torch_precision(name: str, device: torch.device | str) -> DecodingPrecision:
    """Return what a ``name`` of --precision means where torch translates; raises UserError."""
    device = torch.device(device)
    return choose_decoding_precision(name, device.type, has_bf16=bf16_is_fast(device))


def at_precision(model: Transformer, precision: DecodingPrecision) -> Transformer:
    """Return ``model`` itself if it has ``precision``, else a copy with rounded weights.

    Raises ValueError if the model has products of another precision already.
    """
    if _has(model, precision):
        return model
    if precision != "int8":
        copied = copy.deepcopy(model)
    else:
        model = at_precision(model, "fp32")
        # These are replaced before anything is written to them, so the copy may share them.
        linears = {id(module): module for module in model.modules() if _is_linear(module)}
        copied = copy.deepcopy(model, linears)
    change_precision(copied, precision)
    return copied


def change_precision(model: Transformer, precision: DecodingPrecision) -> None:
    """Round the weights of ``model`` one after the other; raises as ``at_precision`` does.

    On a CPU, products in bf16 and int8 get layers of their own, for translating only.
    """
    if _has(model, precision):
        return
    if precision == "int8":
        _replace_linears(model.to(torch.float32), Int8Linear)
        return
    model.to(DTYPES[precision])
    if precision == "bf16" and PackedLinear.is_possible(model.output_weight):
        _replace_linears(model, PackedLinear)


def _replace_linears(
    model: Transformer, make: Callable[[Tensor, Tensor | None], nn.Module]
) -> None:
    """Replace each product by a weight; the weight is given up as soon as that is done."""
    places = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if _is_linear(child)
    ]
    for parent, name in places:
        linear = getattr(parent, name)
        setattr(parent, name, make(linear.weight, linear.bias))
        del linear
    model.output_projection = make(model.output_weight, model.output_bias)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear)


def _has(model: Transformer, precision: DecodingPrecision) -> bool:
    is_int8 = isinstance(model.output_projection, Int8Linear)
    if precision == "int8" or is_int8:
        has = precision == "int8" and is_int8
    else:
        has = model.output_weight.dtype == DTYPES[precision]
    if not has and model.output_projection is not None:
        rounded_to = "int8" if is_int8 else str(model.output_weight.dtype).removeprefix("torch.")
        raise ValueError(
            f"the weights of the model are rounded to {rounded_to}, {precision} is impossible"
        )
    return has
