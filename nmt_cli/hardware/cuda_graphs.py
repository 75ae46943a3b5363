"""Work of a GPU that is recorded once and repeated as a whole, without a launch for each kernel."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[], None]

# Only one recording may be under way in a process.
_RECORDING = threading.Lock()


class GraphRecorder:
    """Records steps as CUDA graphs, which share the memory of their intermediate results.

    So two of them must not run at the same time. On a CPU a step is only called.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
        self.forget_graphs()

    def forget_graphs(self) -> None:
        """Share no memory with the graphs so far: that of graphs that are gone cannot be used."""
        if self.device.type == "cuda":
            self._pool = torch.cuda.graph_pool_handle()

    def record(self, step: Step) -> Step:
        """Compute ``step`` once; return a function that computes it again on the same tensors.

        ``step`` must read and write tensors that live on, keep no others, and not wait for the GPU.
        """
        self.compute(step)
        return self.recorded(step)

    def compute(self, step: Step) -> None:
        """Call ``step`` as recordings need it.

        Libraries load kernels and allocate workspaces at their first use.
        """
        if self.device.type != "cuda":
            step()
            return
        present = torch.cuda.current_stream(self.device)
        with _RECORDING, torch.cuda.stream(self._stream):  # which also sets the device
            self._stream.wait_stream(present)
            try:
                step()
            finally:  # also before its tensors are freed
                present.wait_stream(self._stream)

    def recorded(self, step: Step) -> Step:
        """Return a function that computes what ``step`` launches, which does not run here."""
        if self.device.type != "cuda":
            return step
        # The outer context also sets the device, and restores the stream if a recording fails.
        with _RECORDING, torch.cuda.stream(self._stream):
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

    def have_arrived(self) -> bool:
        """Return whether ``read`` would not wait."""
        return self._arrival is None or self._arrival.query()

    def read(self) -> list[Tensor]:
        """Wait for the copies; return them."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._copies
