"""What a GPU computes the parts of a gradient with, once ``backend_choice`` has chosen."""

from typing import Any, Literal, NamedTuple


class Backends(NamedTuple):
    """The backend of each part of a gradient; None on a CPU, and before it is chosen."""

    attention: Literal["varlen", "padded", "triton"] | None = None
    # Of a micro-batch: one CUDA graph; kernel by kernel; or kernel by kernel over padded shapes, as
    # in a graph, which manifests of checkpoints call "rooms".
    launches: Literal["graph", "single", "rooms"] | None = None
    residuals: Literal["torch", "triton"] | None = None
    activation: Literal["torch", "triton"] | None = None
    loss: Literal["torch", "triton"] | None = None

    def chosen(self) -> dict[str, Any]:
        """Return the backends that were chosen, by the names of the parts."""
        return {part: backend for part, backend in self._asdict().items() if backend is not None}
