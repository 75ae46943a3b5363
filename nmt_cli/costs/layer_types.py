"""Table 1 of the paper with numbers: what each kind of layer computes for one length and width.

The paper gives orders of growth only, and every constant factor is 1 here. So these numbers compare
kinds of layers with each other; they are no operation counts of a real layer.
"""

from typing import NamedTuple

# The paper gives no numbers for these two.
KERNEL_WIDTH = 3  # k
NEIGHBOURHOOD = 10  # r


class LayerType(NamedTuple):
    """A row of Table 1."""

    name: str
    order: str  # of the operations
    operations: int
    sequential: int  # operations that cannot run in parallel
    longest_path: int  # of a signal between two positions


def layer_types(length: int, width: int) -> list[LayerType]:
    """Return the rows of Table 1 for sentences of ``length`` tokens (n) and ``width`` (d)."""
    n, d, k, r = length, width, KERNEL_WIDTH, min(NEIGHBOURHOOD, length)
    return [
        LayerType("self-attention", "n² d", n * n * d, 1, 1),
        LayerType("recurrent", "n d²", n * d * d, n, n),
        LayerType("convolutional", "k n d²", k * n * d * d, 1, _layers_to_reach(n, k)),
        LayerType("self-attention (restricted)", "r n d", r * n * d, 1, -(-n // r)),
    ]


def _layers_to_reach(length: int, kernel_width: int) -> int:
    """Return log_k(n), rounded up: how many dilated layers connect all positions."""
    layers, reach = 1, kernel_width
    while reach < length:
        layers, reach = layers + 1, reach * kernel_width
    return layers
