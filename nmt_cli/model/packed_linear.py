"""A linear layer whose weights oneDNN has put in the order that it reads, for a CPU."""

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
        self._bias = None if bias is None else bias.detach()

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
            rows, self._packed, self._bias, activation, [], ""
        )
        return product
