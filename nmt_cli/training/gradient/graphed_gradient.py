"""The gradient of a micro-batch as one CUDA graph: forward pass, loss and backward pass.

A host needs longer to launch the kernels of a small micro-batch than a GPU to compute them. A graph
launches all of them at once. It always computes on the same tensors, so micro-batches are padded
to shapes (``model/packing.py``), and each shape has graphs of its own, recorded at its first use.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.hardware.device import GraphRecorder, Work, copied, tensors_in
from nmt_cli.hardware.memory import FullMemoryError, noticing_full_memory
from nmt_cli.model.packing import PaddedShape
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.gradient.gradient_sum import GradientSum
from nmt_cli.training.gradient.loss import LossSums
from nmt_cli.training.gradient.micro_batch import MicroBatch

MOST_GRAPHS = 128

Losses = Callable[[MicroBatch], LossSums]


class _Graph(NamedTuple):
    """The work of a micro-batch on tensors that stay where they are."""

    inputs: Sequence[Tensor]
    kept: Sequence[Tensor]  # which the model may replace
    replay: Work


class GraphedGradient:
    """The gradients of micro-batches, each by one launch, added up in a ``GradientSum``.

    The draws of dropout depend on the seed that torch's generator has before ``add``, and on the
    shape. On a CPU nothing is recorded, and the same is computed.
    """

    def __init__(self, model: Transformer, total: GradientSum, device: torch.device) -> None:
        self._model, self._total, self._recorder = model, total, GraphRecorder(device)
        self._graphs = dict[tuple[PaddedShape, bool], _Graph]()  # the one used last comes last

    def add(self, tensors: MicroBatch, losses: Losses) -> None:
        """Add the losses of a micro-batch, ``losses(tensors)``, and their gradient.

        Raises FullMemoryError if memory is full, without any graph left, and UserError if no graph
        can be recorded.
        """
        assert tensors.shape is not None
        key = tensors.shape, self._total.is_empty
        try:
            with noticing_full_memory():
                graph = self._graphs.pop(key, None)
                if graph is None:
                    graph = self._first(tensors, losses)
                else:
                    torch._foreach_copy_(list(graph.inputs), list(tensors_in(tensors)))
                    graph.replay()
                    self._total.is_empty = False
        except FullMemoryError:
            self.forget()
            raise
        self._graphs[key] = graph
        if len(self._graphs) > MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]

    def forget(self) -> None:
        """Give up all graphs and their memory."""
        self._graphs.clear()
        self._recorder.forget_graphs()

    def _first(self, tensors: MicroBatch, losses: Losses) -> _Graph:
        """Compute the first micro-batch of a shape; return the graph for those that follow."""
        own, is_first = copied(tensors), self._total.is_empty

        def step() -> None:
            self._total.add(losses(own), is_first=is_first)

        self._recorder.compute(step)
        self._total.wait_for_ranks()  # a recording waits for all work, also of a lost rank
        replay = self._recorder.recorded(step)
        return _Graph(list(tensors_in(own)), list(self._model.buffers()), replay)
