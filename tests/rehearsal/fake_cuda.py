"""A GPU that is not there: tensors on "cuda" are fake, with shapes and types but no numbers.

Tensors on the CPU stay real. Every kernel, copy and wait is noted with the function of the product
that asked for it, and what a real GPU would refuse is an error. Numbers that come back from the
device are invented.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.search.graphed.replayed_steps import tensors_in

LOADER = "loader"  # the name of the thread that reads ahead
aten = torch.ops.aten
CUDA = torch.device("cuda", 0)  # the device of all scenarios but one
PRODUCTS = {aten.mm, aten.addmm, aten.addmm_, aten.bmm, aten.baddbmm, aten.dot, aten.mv, aten.addmv}
EQUAL_TYPES = {*PRODUCTS, aten.native_layer_norm, aten.native_layer_norm_backward}
INDEXING = {aten.index, aten.index_put_, aten.index_put, aten._index_put_impl_}
# Their shapes depend on numbers, so the CPU waits for those.
DYNAMIC = {
    aten.nonzero,
    aten.masked_select,
    aten.bincount,
    aten._unique2,
    aten.unique_dim,
    aten.repeat_interleave,
}
LOOKING_UP = {aten.embedding, aten.index, aten.index_select, aten.gather}
ALLOCATIONS = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.detach}
VIEWS = {aten._unsafe_view, aten._reshape_alias, aten.lift_fresh}


class IllegalError(Exception):
    """What a GPU, or a recording on it, would refuse or compute wrongly."""


class Event(NamedTuple):
    """What happened on the device, or between it and the CPU, in the order of the CPU's calls."""

    kind: str  # kernel | wait | copy | mark
    what: str
    where: str  # the file and the function of the product
    # Of a copy: pinned (asynchronous) or blocking, which includes copies of pageable memory. Of a
    # product: the type of its factors.
    how: str = ""
    is_recorded: bool = False  # in a CUDA graph
    is_ahead: bool = False  # in the thread of the loader
    num_bytes: int = 0  # that a kernel reads and writes; 0 for products and attention


def place() -> str:
    """Return the file and the function of the product that is running."""
    frame = sys._getframe(2)
    while frame is not None:
        _, found, path = frame.f_code.co_filename.partition("/nmt_cli/")
        if found:
            return f"{path}: {frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "backward"  # autograd calls it from a thread of its own


def changed_tensors(tree: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return ``tree`` with each tensor changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: changed_tensors(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)([changed_tensors(each, change) for each in tree])
    return tree


def bytes_of_kernel(func: Any, args: Any, inputs: list[Tensor], out: Any) -> int:
    """Return the bytes that a kernel reads and writes; 0 for products and attention."""
    packet = func.overloadpacket
    if packet in PRODUCTS or any(part in str(packet) for part in ("attn", "attention")):
        return 0
    written = tensors_in(out)
    if func._schema.is_mutable:
        pairs = zip(func._schema.arguments, args, strict=False)
        changed = [value for argument, value in pairs if argument.is_write]
        written = tensors_in(changed)
    read = written if packet in LOOKING_UP else inputs
    # Of an expanded tensor only what is in memory.
    return sum(min(each.nbytes, each.untyped_storage().nbytes()) for each in [*read, *written])


def is_fake(tensor: Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class FakeCuda(TorchDispatchMode):
    """While it is entered, "cuda" is a device whose tensors have no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.illegal: list[str] = []
        self.devices = set[str]()  # that have computed
        self.is_recording = False
        self.stream: object = None  # the current one; None is the default stream
        self.stuck: object = ()  # the stream that waits forever for a rank that has died
        # What was sent on a stream of its own, by storage; kept, so that its address stays valid.
        self.sent = dict[int, tuple[object, Tensor]]()
        self.arrived = set[tuple[object, int]]()  # for which a stream has waited
        self.kept = set[int]()  # until the stream that uses it has done its work
        self.costs: Mapping[str, float] = {}  # seconds of a kernel, by the place that launches it
        self.seconds = self.seconds_launched = 0.0  # the clock after the last wait
        # Fills a tensor on the CPU as if the device had written it.
        self.invent: Callable[[Tensor], object] = Tensor.zero_
        self._num_searches = Counter[str]()  # for entries that are not zero, by place
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._pinned = dict[int, Tensor]()  # by the address of the storage; kept, so it stays valid

    def mark(self, what: str) -> None:
        """Note that a part of the work begins or ends."""
        self.events.append(Event("mark", what, ""))

    def note_wait(self, what: str) -> None:
        """Note that the CPU waits for the device."""
        if self.stream is self.stuck:
            self.refuse(f"{what} waits forever, {place()}")
        self.seconds = self.seconds_launched
        self._note(Event("wait", what, place(), is_recorded=self.is_recording))

    def _note(self, event: Event) -> None:
        if threading.current_thread().name == LOADER:
            event = event._replace(is_ahead=True)
        is_repeated = event.kind == "wait" and self.events and self.events[-1] == event
        if not is_repeated:  # the items of one list arrive together
            self.events.append(event)
        if self.is_recording and event.kind != "kernel":
            self.refuse(f"{event.kind} in a recording: {event.what}, {event.where}")

    def refuse(self, why: str) -> None:
        """Raise IllegalError; the product may handle it, so it is also noted."""
        self.illegal.append(why)
        raise IllegalError(why)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.ops.prim.device.default:
            return args[0].fake_device if is_fake(args[0]) else args[0].device
        packet, tensors = func.overloadpacket, tensors_in((args, kwargs))
        device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        if packet is aten._pin_memory:
            if is_fake(args[0]):
                self.refuse(f"a tensor of the device is pinned, {place()}")
            return self._kept_as_pinned(args[0].clone())
        if packet is aten.is_pinned:
            return self._is_pinned(args[0])
        if any(map(is_fake, tensors)) or (device is not None and device.type == "cuda"):
            return self._on_device(func, args, kwargs, device)
        if kwargs.pop("pin_memory", None):
            return self._kept_as_pinned(func(*args, **kwargs))
        return func(*args, **kwargs)

    def _on_device(self, func: Any, args: Any, kwargs: dict[str, Any], device: Any) -> Any:
        packet = func.overloadpacket
        if packet in (aten._to_copy, aten.copy_):
            if (copied := self._copied(func, args, kwargs, device)) is not None:
                return copied
        elif packet is aten._local_scalar_dense:
            self.note_wait("item")
            return self._invented_item(args[0].dtype)
        elif packet is aten.equal:
            self.note_wait("equal")
            return True
        elif packet in DYNAMIC:
            return self._of_unknown_length(packet, args, kwargs)
        elif packet in INDEXING:
            args = self._with_indices_on_device(func, args)
        else:
            self._refuse_mixed_devices(func, args, kwargs)
        self._refuse_mixed_types(func, args, kwargs)
        return self._run(func, args, kwargs)

    def _copied(self, func: Any, args: Any, kwargs: dict[str, Any], device: Any) -> Tensor | None:
        """Note a copy between CPU and device; return what comes back, None for the other ways."""
        if func.overloadpacket is aten._to_copy:
            if device is not None and device.type == "cpu":
                return self._brought_back(args[0], kwargs)
            source, non_blocking = args[0], kwargs.get("non_blocking", False)
        else:
            target, source, *others = args
            non_blocking = others[0] if others else kwargs.get("non_blocking", False)
            if not is_fake(target):
                self._note_copy("from the device", target, non_blocking)
                self.invent(target)
                return target
        if not is_fake(source):
            self._note_copy("to the device", source, non_blocking)
        return None

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        packet, inputs = func.overloadpacket, tensors_in((args, kwargs))
        is_sent = packet is aten._to_copy and not is_fake(args[0]) and self.stream is not None
        if not all(map(is_fake, inputs)):
            args, kwargs = changed_tensors((args, kwargs), self._faked)
        with self._fake:
            out = func(*args, **kwargs)
        if is_sent:
            self.sent[storage_of(out)] = self.stream, out
        if not (func.is_view or packet in ALLOCATIONS or packet in VIEWS):
            self._refuse_unsynchronized(inputs)
            how = str(inputs[0].dtype).removeprefix("torch.") if packet in PRODUCTS else ""
            name = str(packet).removeprefix("aten.")
            self.seconds_launched += self.costs.get(place(), 0.0)
            size = bytes_of_kernel(func, args, tensors_in((args, kwargs)), out)
            event = Event("kernel", name, place(), how, self.is_recording, num_bytes=size)
            self._note(event)
            self.devices |= {str(each.device) for each in tensors_in(out)}
        return out

    def launch(self, name: str, tensors: list[Tensor]) -> None:
        """Note the launch of a kernel that torch does not know, on these tensors."""
        for each in tensors:
            if not is_fake(each):
                self.refuse(f"{name} of a tensor on the CPU, {place()}")
        self._refuse_unsynchronized(tensors)
        self.seconds_launched += self.costs.get(place(), 0.0)
        self._note(Event("kernel", name, place(), is_recorded=self.is_recording))

    def _refuse_unsynchronized(self, inputs: list[Tensor]) -> None:
        """Refuse the use of what was sent on another stream, unless this one has waited for it."""
        for storage in {storage_of(tensor) for tensor in inputs if is_fake(tensor)}:
            if self.sent.get(storage, (self.stream,))[0] is self.stream:
                continue
            if (self.stream, storage) not in self.arrived:
                self.refuse(f"used before it has arrived, {place()}")
            if storage not in self.kept:
                self.refuse(f"memory that is given to others while it is used, {place()}")

    def _faked(self, tensor: Tensor) -> Tensor:
        return tensor if is_fake(tensor) else self._fake.from_tensor(tensor)

    def _kept_as_pinned(self, tensor: Tensor) -> Tensor:
        self._pinned[tensor.untyped_storage()._cdata] = tensor
        return tensor

    def _is_pinned(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._pinned

    def _note_copy(self, direction: str, of_cpu: Tensor, non_blocking: bool) -> None:
        is_asynchronous = non_blocking and self._is_pinned(of_cpu)
        how = "pinned" if is_asynchronous else "blocking"
        self._note(Event("copy", direction, place(), how, self.is_recording))

    def _brought_back(self, tensor: Tensor, kwargs: dict[str, Any]) -> Tensor:
        back = torch.zeros(tensor.shape, dtype=kwargs.get("dtype") or tensor.dtype)
        self._note_copy("from the device", back, False)
        self.invent(back)
        return back

    def _invented_item(self, dtype: torch.dtype) -> bool | float | int:
        if dtype is torch.bool:
            # Weights are finite, so that they are saved; no logits of a search are NaN.
            return not place().startswith("search/")
        return 1.0 if dtype.is_floating_point else 1

    def _indices(self, of: Any, *shape: int) -> Tensor:
        kwargs = {"dtype": torch.int64, "device": of.device}
        return self._run(aten.zeros.default, (list(shape),), kwargs)

    def _of_unknown_length(self, packet: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        self.note_wait(str(packet).removeprefix("aten."))
        if packet is aten.nonzero:
            self._num_searches[place()] += 1
            # One is found and none is found in turns, so that recursions end.
            return self._indices(args[0], self._num_searches[place()] % 2, args[0].dim())
        if packet is aten.bincount:
            return self._indices(args[0], max(1, kwargs.get("minlength", 0)))
        raise NotImplementedError(f"{packet} at {place()}")

    def _with_indices_on_device(self, func: Any, args: Any) -> Any:
        indices: list[Any] = []
        for index in args[1]:
            if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
                self.note_wait("boolean index")
                indices += [self._indices(args[0], 1)] * index.dim()
            elif isinstance(index, Tensor) and not is_fake(index):
                self._note_copy("to the device", index, False)
                indices.append(self._indices(args[0], *index.shape))
            else:
                indices.append(index)
        if len(args) > 2 and isinstance(args[2], Tensor) and args[2].dtype != args[0].dtype:
            self.refuse(f"types of {func}: {args[0].dtype} and {args[2].dtype}, {place()}")
        return (args[0], indices, *args[2:])

    def _refuse_mixed_devices(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        for tensor in tensors_in((args, kwargs)):
            if not is_fake(tensor) and tensor.dim() > 0:
                shape = tuple(tensor.shape)
                self.refuse(f"devices of {func}: {shape} is on the CPU, {place()}")

    def _refuse_mixed_types(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Refuse what kernels check and the formulas of shapes do not."""
        name, packet = str(func), func.overloadpacket
        dtypes = {tensor.dtype for tensor in tensors_in((args, kwargs))}
        if packet in EQUAL_TYPES and "backward" not in name and len(dtypes) > 1:
            self.refuse(f"types of {func}: {sorted(map(str, dtypes))}, {place()}")
        if "_scaled_dot_product" in name and len({each.dtype for each in args[:3]}) > 1:
            self.refuse(f"types of {func}: {[each.dtype for each in args[:3]]}, {place()}")
        is_flash = "_varlen_attn" in name or packet is torch.ops.aten._flash_attention_forward
        if is_flash and "backward" not in name:
            self._refuse_unfit_for_flash(args)

    def _refuse_unfit_for_flash(self, args: Any) -> None:
        for rows in args[:3]:
            width = rows.shape[-1]
            is_half = rows.dtype in (torch.bfloat16, torch.float16)
            if not (is_half and rows.dim() == 3 and rows.stride(-1) == 1 and width % 8 == 0):
                self.refuse(f"varlen attention of {rows.dtype} {tuple(rows.shape)}, {place()}")
        for bounds in args[3:5]:
            if bounds.dtype is not torch.int32 or bounds.device.type != "cuda":
                self.refuse(f"bounds of {bounds.dtype} on {bounds.device}, {place()}")
