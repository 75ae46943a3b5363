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


LOSS = "nmt_cli.training.gradient.loss:_FusedCrossEntropy.forward"
BEAMS = "nmt_cli.search.graphed.device_beams:DeviceBeams"
CACHES = "nmt_cli.search.attention_cache"
FAULTS = {
    "targets stay on the CPU": Fault(
        "train",
        "nmt_cli.training.gradient.engine:GradientEngine.losses",
        "tensors.target_output,",
        "torch.zeros(tensors.target_output.shape, dtype=torch.int64),",
        "copy in a step: to the device, training/gradient/loss.py: losses_by_torch",
    ),
    "positions stay on the CPU": Fault(
        "train",
        "nmt_cli.model.embeddings:Embedding.forward",
        "batch.positions,",
        "torch.zeros(batch.positions.shape, dtype=torch.int64),",
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
        "nmt_cli.model.attention:attend_varlen",
        "of_queries.bounds",
        "torch.zeros(of_queries.bounds.shape, dtype=torch.int32)",
        "devices of torch_attn._varlen_attn",
    ),
    "batches sent from pageable memory": Fault(
        "train",
        "nmt_cli.hardware.device:sent_together",
        "pin_memory=True",
        "pin_memory=False",
        "copy in a step: to the device, hardware/device.py: sent_together",
    ),
    "batches sent by the thread that trains": Fault(
        "train",
        "nmt_cli.training.batch_cut:ready_ahead",
        "smaller = engine.sent_ahead(smaller, sender)",
        "pass",
        "copy in a step: to the device, hardware/device.py: sent_together",
    ),
    "a batch used before it has arrived": Fault(
        "train",
        "nmt_cli.hardware.device:Sent.received",
        "stream.wait_event(self._arrival)",
        "pass",
        "used before it has arrived, hardware/device.py: ",
    ),
    "an arrival that is not noted": Fault(
        "train",
        "nmt_cli.hardware.device:Sender.send",
        "arrival.record(self._stream)",
        "pass",
        "used before it has arrived, hardware/device.py: ",
    ),
    "memory of a batch that is not kept": Fault(
        "train",
        "nmt_cli.hardware.device:Sent.received",
        "tensor.record_stream(stream)",
        "pass",
        "memory that is given to others while it is used, hardware/device.py: ",
    ),
    "a norm read for clipping": Fault(
        "train",
        "nmt_cli.training.trainer:update_weights",
        "recipe.training.clip_norm, gradient.norm",
        "recipe.training.clip_norm, torch.tensor(gradient.norm.item())",
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
        "name: torch.zeros_like(parameter)",
        "name: torch.zeros(parameter.shape)",
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
        "nmt_cli.training.gradient.loss:_add_product",
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
        "nmt_cli.training.gradient.loss:_nll",
        'logits.device.type == "cpu"',
        "True",
        "wait in a step: item, training/gradient/loss.py: _nll",
    ),
    "a copy within the loss": Fault(
        "train",
        "nmt_cli.training.gradient.loss:losses_by_torch",
        "torch.arange(num_targets, device=logits.device)",
        "torch.arange(num_targets).to(logits.device)",
        "copy in a step: to the device, training/gradient/loss.py: losses_by_torch",
    ),
    "a boolean index": Fault(
        "train",
        "nmt_cli.training.gradient.loss:losses_by_torch",
        "if num_targets < len(softmax):",
        "if len(softmax[torch.arange(len(softmax), device=softmax.device) >= num_targets]):",
        "wait in a step: boolean index, training/gradient/loss.py: losses_by_torch",
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
        f"{CACHES}:Past.advance",
        "free.values - 1",
        "free.values - int(is_used.any())",
        "wait in a recording: item, search/attention_cache.py: advance",
    ),
    "lengths from the CPU in a recording": Fault(
        "translate",
        f"{CACHES}:Memory.update_mask",
        "< self.lengths[:, None]",
        "< torch.ones(len(keys), 1).pin_memory().to(keys.device, non_blocking=True)",
        "copy in a recording: to the device, search/attention_cache.py: update_mask",
    ),
    "a tensor made on the CPU in a recording": Fault(
        "translate",
        f"{BEAMS}._allowed",
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
        "lives = exist > end",
        "lives = exist > end; lives.nonzero()",
        "wait in a recording: nonzero, search/graphed/device_beams.py: choose",
    ),
    "reports in pageable memory": Fault(
        "translate",
        "nmt_cli.hardware.device:Readback.add",
        "pin_memory=True",
        "pin_memory=False",
        "copy beside graphs: from the device, hardware/device.py: add",
    ),
    "reports that are waited for": Fault(
        "translate",
        "nmt_cli.hardware.device:Readback.add",
        "non_blocking=True",
        "non_blocking=False",
        "copy beside graphs: from the device, hardware/device.py: add",
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
