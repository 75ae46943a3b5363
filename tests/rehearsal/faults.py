"""Mistakes that no CPU shows, planted in the product; a rehearsal must find each of them.

A fault replaces a part of a function's source. A part that the product no longer has is an error,
so that a fault which was not planted never counts as found.
"""

import importlib
import inspect
import textwrap
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """A replaced part of a function, and what a rehearsal finds then."""

    scenario: str
    function: str  # module:name or module:Class.name
    old: str
    new: str
    finding: str  # a part of it


LOSS = "nmt_cli.training.loss:_FusedCrossEntropy.forward"
BEAMS = "nmt_cli.search.graphed.device_beams:DeviceBeams"
CACHES = "nmt_cli.search.graphed.caches"
FAULTS = {
    "targets stay on the CPU": Fault(
        "train",
        "nmt_cli.training.gradient:Objective.tensors",
        "on_device(sides, outputs, self.machine.device)",
        "on_device(sides, (), self.machine.device)[0], outputs",
        "copy in a step: to the device, training/loss.py: forward",
    ),
    "positions stay on the CPU": Fault(
        "train",
        "nmt_cli.model.packing:on_device",
        "Packed(next(sent), next(sent),",
        "Packed(next(sent), (next(sent), side.positions)[1],",
        "devices of aten.embedding",
    ),
    "bounds of 64 bits": Fault(
        "train",
        "nmt_cli.model.packing:pack_on_cpu",
        "bounds.int()",
        "bounds",
        "bounds of torch.int64",
    ),
    "bounds stay on the CPU": Fault(
        "train",
        "nmt_cli.model.packing:on_device",
        "side.lengths, next(sent)",
        "side.lengths, (next(sent), side.bounds)[1]",
        "devices of torch_attn._varlen_attn",
    ),
    "batches sent from pageable memory": Fault(
        "train",
        "nmt_cli.hardware.device:sent_together",
        "pin_memory=True",
        "pin_memory=False",
        "copy in a step: to the device, hardware/device.py: sent_together",
    ),
    "a norm read for clipping": Fault(
        "train",
        "nmt_cli.training.trainer:update_weights",
        "torch.as_tensor(gradient.norm,",
        "torch.as_tensor(float(gradient.norm),",
        "wait in a step: item, training/trainer.py: update_weights",
    ),
    "dropout drawn on the CPU": Fault(
        "train",
        "nmt_cli.model.dropout:Dropout.forward",
        'x.device.type != "cpu"',
        "False",
        "devices of aten",
    ),
    "a moment on the CPU": Fault(
        "train",
        "nmt_cli.optimization:Adam.make_moments",
        "exp_avg_sq=torch.zeros_like(parameter)",
        "exp_avg_sq=torch.zeros(parameter.shape)",
        "devices of aten._fused_adam_",
    ),
    "the average on the CPU": Fault(
        "train",
        "nmt_cli.optimization:MovingAverage.__init__",
        "weight.clone()",
        "weight.cpu()",
        "devices of aten._foreach_lerp_",
    ),
    "a product of two types": Fault(
        "train", LOSS, "chunk_rows @ weight.T", "chunk_rows @ output_weight.T", "types of aten.mm"
    ),
    "a sum in another type": Fault(
        "train",
        "nmt_cli.training.loss:_add_product",
        "left.dtype == total.dtype",
        "True",
        "types of aten.addmm_",
    ),
    "casts to fp32 and back": Fault(
        "train",
        "nmt_cli.model.layers:Residual.close",
        "enabled=False",
        "enabled=True",
        "operations in a step",
    ),
    "a look at the device's numbers": Fault(
        "train",
        "nmt_cli.training.loss:_nll",
        'logits.device.type == "cpu"',
        "True",
        "wait in a step: item, training/loss.py: _nll",
    ),
    "a copy within the loss": Fault(
        "train",
        LOSS,
        "torch.arange(num_targets, device=rows.device)",
        "torch.arange(num_targets).to(rows.device)",
        "copy in a step: to the device, training/loss.py: forward",
    ),
    "a boolean index": Fault(
        "train",
        LOSS,
        "if num_targets < len(softmax):",
        "if len(softmax[torch.arange(len(softmax), device=softmax.device) >= num_targets]):",
        "wait in a step: boolean index, training/loss.py: forward",
    ),
    "a wait behind the update": Fault(
        "train",
        "nmt_cli.training.trainer:update_weights",
        "state.optimizer.step()",
        "state.optimizer.step(); torch.cuda.current_stream().synchronize()",
        "wait in a step: stream.synchronize, training/trainer.py: update_weights",
    ),
    "a number read in a recording": Fault(
        "translate",
        f"{CACHES}:FixedPast.advance",
        "free.values - 1",
        "free.values - int(is_used.any())",
        "wait in a recording: item, search/graphed/caches.py: advance",
    ),
    "lengths from the CPU in a recording": Fault(
        "translate",
        f"{CACHES}:FixedMemory.update_masks",
        "self._places < self.lengths[:, None]",
        "self._places < torch.ones(len(self.lengths), 1).pin_memory().to(self.lengths.device, "
        "non_blocking=True)",
        "copy in a recording: to the device, search/graphed/caches.py: update_masks",
    ),
    "a tensor made on the CPU in a recording": Fault(
        "translate",
        f"{BEAMS}._candidates",
        "torch.full_like(values, -torch.inf)",
        "torch.full(values.shape, -torch.inf)",
        "devices of aten",
    ),
    "an order on the CPU": Fault(
        "translate",
        f"{BEAMS}.choose",
        "torch.arange(self._num_candidates, device=scores.device)",
        "torch.arange(self._num_candidates)",
        "devices of aten",
    ),
    "shapes that depend on numbers in a recording": Fault(
        "translate",
        f"{BEAMS}.choose",
        "is_busy = (scores > -torch.inf).any(dim=1, keepdim=True)",
        "is_busy = (scores > -torch.inf).any(dim=1, keepdim=True); is_busy.nonzero()",
        "wait in a recording: nonzero, search/graphed/device_beams.py: choose",
    ),
    "reports in pageable memory": Fault(
        "translate",
        "nmt_cli.hardware.cuda_graphs:Readback.add",
        "pin_memory=True",
        "pin_memory=False",
        "copy beside graphs: from the device, hardware/cuda_graphs.py: add",
    ),
    "reports that are waited for": Fault(
        "translate",
        "nmt_cli.hardware.cuda_graphs:Readback.add",
        "non_blocking=True",
        "non_blocking=False",
        "copy beside graphs: from the device, hardware/cuda_graphs.py: add",
    ),
    "numbers sent from pageable memory": Fault(
        "translate",
        "nmt_cli.hardware.device:sent_to",
        "tensor.pin_memory().to(",
        "tensor.to(",
        "copy beside graphs: to the device, hardware/device.py: sent_to",
    ),
}


def plant(name: str) -> None:
    """Plant a fault in this process. Raises ValueError if the product does not have its place."""
    fault = FAULTS[name]
    module, path = fault.function.split(":")
    owner: Any = importlib.import_module(module)
    for part in path.split("."):
        owner = getattr(owner, part)
    function = inspect.unwrap(owner)
    lines, first = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    if source.count(fault.old) != 1:
        raise ValueError(f"{fault.function} has {source.count(fault.old)} times: {fault.old}")
    source = "\n" * (first - 1) + source.replace(fault.old, fault.new)
    names = dict[str, Any]()
    exec(compile(source, inspect.getfile(function), "exec"), function.__globals__, names)
    function.__code__ = inspect.unwrap(_plain(names[path.rpartition(".")[2]])).__code__


def _plain(function: Any) -> Any:
    return function.__func__ if isinstance(function, staticmethod) else function
