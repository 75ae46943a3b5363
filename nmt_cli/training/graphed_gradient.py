"""The gradient of a micro-batch as one CUDA graph: forward pass, loss and backward pass.

A host needs longer to launch the kernels of a small micro-batch than a GPU to compute them. A graph
launches all of them at once. It always computes on the same tensors, so micro-batches are padded
to rooms (``model/packing.py``), and each room has graphs of its own, recorded at its first use.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.hardware.cuda_graphs import GraphRecorder, Step
from nmt_cli.hardware.device import copied, tensors_in
from nmt_cli.hardware.memory import FullMemoryError, noticing_full_memory
from nmt_cli.messages import logs
from nmt_cli.model.packing import Room
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.flat_gradient import FlatGradient
from nmt_cli.training.loss import LossSums
from nmt_cli.training.micro_batch import MicroBatch

MOST_GRAPHS = 128

Losses = Callable[[MicroBatch], LossSums]


class _Graph(NamedTuple):
    """The work of a micro-batch on tensors that stay where they are."""

    inputs: Sequence[Tensor]
    kept: Sequence[Tensor]  # which the model may replace
    arrivals: Sequence[torch.cuda.Event]  # of the buckets of the gradient, if ranks exchange it
    replay: Step


class GraphedGradient:
    """The gradients of micro-batches, each by one launch, added up in a ``FlatGradient``.

    Call ``begin`` for each batch, and ``add`` for each of its micro-batches. The draws of dropout
    depend on the seed that torch's generator has before ``add``, and on the room. On a CPU nothing
    is recorded, and the same is computed.
    """

    def __init__(self, model: Transformer, flat: FlatGradient, device: torch.device) -> None:
        self._model, self._flat, self._recorder = model, flat, GraphRecorder(device)
        self._graphs = dict[tuple[Room, bool], _Graph]()  # the one used last comes last
        self.cannot_record = False  # then kernels are launched one by one, with the same numbers
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)  # of loss and nll
        self._share = torch.ones_like(self._model.output_weight[0, 0], requires_grad=False)

    def begin(self, num_target_tokens: int) -> None:
        """Begin the gradient of a batch of so many target tokens."""
        self.sums.zero_()
        self._share.fill_(1.0 / num_target_tokens)

    def add(self, tensors: MicroBatch, losses: Losses, *, is_last: bool) -> None:
        """Add the gradient of a micro-batch, and to ``sums`` its ``losses(tensors)``.

        After the last one of this rank, the gradient is sent to the others. Raises FullMemoryError
        if memory is full, without any graph left.
        """
        assert tensors.room is not None
        key = tensors.room, self._flat.is_empty
        try:
            with noticing_full_memory():
                graph = self._graphs.pop(key, None)
                if graph is None:
                    graph = self._first(tensors, losses)
                else:
                    torch._foreach_copy_(list(graph.inputs), list(tensors_in(tensors)))
                    graph.replay()
        except FullMemoryError:
            self.forget()
            raise
        self._graphs[key] = graph
        if len(self._graphs) > MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        self._flat.note_received(graph.arrivals, self.sums if is_last else None)

    def forget(self) -> None:
        """Give up all graphs and their memory."""
        self._graphs.clear()
        self._recorder.forget_graphs()

    def _first(self, tensors: MicroBatch, losses: Losses) -> _Graph:
        """Compute the first micro-batch of a room; return the graph for those that follow."""
        own, arrivals = copied(tensors), self._flat.new_arrivals()
        step = functools.partial(self._compute, own, losses, arrivals, is_first=self._flat.is_empty)
        self._recorder.compute(step)
        replay = step if self.cannot_record else self._recorded(step)
        return _Graph(list(tensors_in(own)), list(self._model.buffers()), arrivals, replay)

    def _compute(
        self,
        tensors: MicroBatch,
        losses: Losses,
        arrivals: Sequence[torch.cuda.Event],
        *,
        is_first: bool,
    ) -> None:
        loss, nll, _ = losses(tensors)
        self.sums.add_(torch.stack([loss.detach(), nll]))
        self._flat.add(loss, self._share, is_first=is_first, arrivals=arrivals)

    def _recorded(self, step: Step) -> Step:
        """Return the replay of ``step``; ``step`` itself if it cannot be recorded."""
        try:
            with noticing_full_memory():
                return self._recorder.recorded(step)
        except RuntimeError as error:
            self._flat.drop_unfinished()
            if isinstance(error, FullMemoryError):
                raise
            self.cannot_record = True
            _warn_once(str(error).partition("\n")[0])
            return step


@functools.cache  # before the first step, several ways to compute a gradient are tried
def _warn_once(reason: str) -> None:
    logs.warning(
        "Kernels are launched one by one, because a CUDA graph of a micro-batch could not be "
        f"recorded: {reason}"
    )
