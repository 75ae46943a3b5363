"""Work of a GPU that is recorded once and repeated as a whole, without a launch for each kernel."""

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

Step = Callable[[], None]


class GraphRecorder:
    """Records steps as CUDA graphs, which share the memory of their intermediate results.

    So two of them must not run at the same time. On a CPU a step is only called.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(device)

    def record(self, step: Step) -> Step:
        """Call ``step``; return a function that repeats it with what its tensors hold by then.

        It must read and write tensors that live on, at the same addresses, and must not wait for
        the GPU.
        """
        if self._device.type != "cuda":
            step()
            return step
        with torch.cuda.device(self._device):
            return self._recorded(step)

    def _recorded(self, step: Step) -> Step:
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            step()  # libraries load kernels and allocate workspaces at their first use
        present.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # The default mode forbids other threads to allocate memory meanwhile.
        recording = torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        )
        with recording:
            step()
        return graph.replay


class Readback:
    """Copies of tensors from a GPU, which the CPU reads later, when they have arrived."""

    def __init__(self) -> None:
        self._copies: list[Tensor] = []
        self._arrival: torch.cuda.Event | None = None

    def add(self, tensor: Tensor) -> None:
        """Copy what ``tensor`` holds after all work so far."""
        if tensor.device.type != "cuda":
            self._copies.append(tensor.clone())
            return
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._copies.append(copy.copy_(tensor, non_blocking=True))
        if self._arrival is None:
            self._arrival = torch.cuda.Event()
        self._arrival.record(torch.cuda.current_stream(tensor.device))

    def read(self) -> list[Tensor]:
        """Wait for the copies; return them."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._copies


def sent_to(device: torch.device, numbers: NDArray[Any]) -> Tensor:
    """Return a copy of ``numbers`` on ``device``, without waiting for a GPU."""
    tensor = torch.tensor(numbers)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
