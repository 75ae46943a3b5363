"""Linear layers for translating on a CPU: with packed weights, and with 8-bit integers.

``PackedLinear`` has the weights in the order that oneDNN reads. In ``Int8Linear``, a weight matrix
has one scale for each of its outputs, and every row of activations has its own, so that the result
of a row does not depend on the rows beside it. Sums of the integers are exact. All that is not a
product by a weight stays fp32.

Legend: R rows, I inputs, O outputs.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

# Of a step of the search. Products of other numbers of rows are as right, and about as fast.
USUAL_ROWS = 256


class PackedLinear(nn.Module):
    """x W^T + b. The plain layer packs its weights at each call.

    In bf16 with AMX that takes as long again for 16 to 64 rows, and a quarter of the time for 512.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), USUAL_ROWS)
        self.bias = None if bias is None else bias.detach()

    @property
    def weight(self) -> Tensor:
        """A copy of the weight [O, I]."""
        return self._packed.to_dense()

    @staticmethod
    def is_possible(weight: Tensor) -> bool:
        """Return whether products by ``weight`` can be packed by torch's operators for oneDNN.

        They are not part of torch's interface.
        """
        operators = torch.ops.mkldnn
        return (
            weight.device.type == "cpu"
            and weight.dtype in {torch.bfloat16, torch.float32}
            and bool(torch.backends.mkldnn.is_available())
            and operators._is_mkldnn_bf16_supported()
            and hasattr(operators, "_reorder_linear_weight")
            and hasattr(operators, "_linear_pointwise")
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return the product [R, O] of ``rows`` [R, I]."""
        return self._product(rows, "none")

    def relu(self, rows: Tensor) -> Tensor:
        """Return max(0, product) of ``rows``, which takes no longer than the product."""
        return self._product(rows, "relu")

    def _product(self, rows: Tensor, activation: str) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self.bias, activation, [], ""
        )
        return product


# Of rows [R, I] in int8 and the weight's scales [O]: the product [R, O] in fp32.
Product = Callable[[Tensor, Tensor], Tensor]
LARGEST = 127
SMALLEST_SCALE = 1e-30  # of a row that is zero


def rounded_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scale [R, 1] of each of ``rows`` [R, I], and the rows over it as int8."""
    # These two are faster than the maximum of absolute values, or than both in one call.
    largest, smallest = rows.amax(dim=1, keepdim=True), rows.amin(dim=1, keepdim=True)
    scales = largest.maximum(smallest.neg_()).clamp_(min=SMALLEST_SCALE).div_(LARGEST)
    # By the reciprocal, as layers.c does, so that both round to the same integers.
    return scales, (rows * scales.reciprocal()).round_().to(torch.int8)


class Int8Linear(nn.Module):
    """x W^T + b with rounded ``x`` and ``W``, which oneDNN keeps in the order that it reads."""

    scales: Tensor  # O, fp32
    bias: Tensor | None  # O, fp32

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        scales, rounded = rounded_rows(weight.detach().float())
        self.register_buffer("scales", scales.squeeze(1))
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())
        packed = _packed(rounded)
        stored = rounded.t() if packed is None else packed  # I O
        self._multiply = _plain_product(rounded) if packed is None else _packed_product(packed)
        self._unpack = stored.to_dense  # not a tensor: a packed one cannot be copied by deepcopy

    @property
    def integers(self) -> Tensor:
        """The rounded weight [O, I]; a copy if it is packed."""
        return self._unpack().t()

    def forward(self, rows: Tensor) -> Tensor:
        """Return the product [R, O] in fp32 of ``rows`` [R, I]."""
        row_scales, rounded = rounded_rows(rows)
        product = self._multiply(rounded, self.scales)
        if self.bias is None:
            return product.mul_(row_scales)
        return torch.addcmul(self.bias, product, row_scales, out=product)


def _packed(weight: Tensor) -> Tensor | None:
    """Return ``weight`` [O, I] as [I, O] in the order that oneDNN reads.

    None without torch's operators for it, which are not part of torch's interface.
    """
    operators = torch.ops.onednn
    if not (hasattr(operators, "qlinear_prepack") and hasattr(operators, "qlinear_pointwise")):
        return None
    packed: Tensor = operators.qlinear_prepack(weight, [USUAL_ROWS, weight.shape[1]])
    return packed


def _packed_product(packed: Tensor) -> Product:
    """Return the product by a ``packed`` weight; sums are scaled before they leave the cache."""
    zeros = torch.zeros(packed.shape[1], dtype=torch.int64)
    # Only AMX multiplies signed rows. On a CPU with VNNI alone oneDNN has no kernel for them, and
    # the code that it uses instead takes thousands of times as long.
    zero_point = 0 if torch.cpu._is_amx_tile_supported() else 128

    def multiply(rows: Tensor, scales: Tensor) -> Tensor:
        if zero_point:
            rows = rows.view(torch.uint8) ^ zero_point  # rows + 128, whose sign was the highest bit
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rows, 1.0, zero_point, packed, scales, zeros),
            *(None, 1.0, 0, torch.float32, "none", [], ""),
        )
        return product

    return multiply


def _plain_product(weight: Tensor) -> Product:
    def multiply(rows: Tensor, scales: Tensor) -> Tensor:
        return torch._int_mm(rows, weight.t()).float().mul_(scales)

    return multiply
