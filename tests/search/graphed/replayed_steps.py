"""A stand-in for CUDA graphs on a CPU: a step's operations, repeated without its Python code."""

from functools import cached_property, partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# On a GPU these wait for its results, or copy from the CPU, which no graph can contain.
WAITING = {
    aten._local_scalar_dense,
    aten.nonzero,
    aten.masked_select,
    aten.bincount,
    aten.lift_fresh,
    aten.repeat_interleave,
}
INDEXING = {aten.index, aten.index_put_, aten.index_put, aten._index_put_impl_}


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in lists and dictionaries, faster than torch's ``tree_iter``."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, tuple | list):
        return [tensor for each in tree for tensor in tensors_in(each)]
    return []


def storages_of(tree: Any) -> set[int]:
    return {tensor.untyped_storage()._cdata for tensor in tensors_in(tree)}


class Recording(TorchDispatchMode):
    """Runs operations and keeps them with the tensors that they read and wrote."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        assert func.overloadpacket not in WAITING, f"{func} in a step"
        if func.overloadpacket in INDEXING:
            assert all(index.dtype is not torch.bool for index in tensors_in(args[1])), func
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out

    @cached_property
    def _computing(self):
        """The calls that compute something, not a view, and the tensors for their results."""
        found = list[tuple[Any, list[torch.Tensor]]]()
        for func, args, kwargs, out in self.calls:
            if func._schema.is_mutable:
                found.append((partial(func, *args, **kwargs), []))
            elif not storages_of(out) & storages_of((args, kwargs)):
                found.append((partial(func, *args, **kwargs), tensors_in(out)))
        return found

    @torch.no_grad()
    def replay(self):
        """Run the operations again; results go to where they went before."""
        for compute, places in self._computing:
            again = compute()
            if places:
                for old, new in zip(places, tensors_in(again), strict=True):
                    old.copy_(new)


class ReplayingRecorder:
    """Takes the place of ``GraphRecorder``."""

    num_recorded, num_repeated = 0, 0  # steps of all recorders

    def __init__(self, device):
        assert device.type == "cpu"
        self.device = device

    def forget_graphs(self):
        pass

    def compute(self, step):
        step()  # as libraries on a GPU need it

    def recorded(self, step):
        type(self).num_recorded += 1
        with Recording() as recording:
            step()

        def repeat():
            type(self).num_repeated += 1
            recording.replay()

        return repeat
