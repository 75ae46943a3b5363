"""The device on which torch computes, its precision, and work of a GPU that is recorded."""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar, cast

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.torch_version import TorchVersion

from nmt_cli.hardware.machine_options import AUTO, device_name
from nmt_cli.hardware.torch_private import cpu_has_amx, cpu_has_avx512_bf16, fp32_precision
from nmt_cli.launch.python_process import collecting_no_garbage
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError, means_full_memory

Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
RECOVERS = "2.13"  # the first torch that goes on after a recording without enough memory
ALIGNMENT = 64  # bytes; kernels read up to 16 at a time
FIRST_CUDA_WITH_BF16 = (8, 0)  # Ampere

Parts = TypeVar("Parts")


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; "auto" is the first GPU, or else the CPU."""
    return torch.device(device_name(name))


def sent_to(device: torch.device, numbers: Sequence[Any] | NDArray[Any] | Tensor) -> Tensor:
    """Return ``numbers`` as a tensor on ``device``, without waiting for a GPU."""
    tensor = numbers if isinstance(numbers, Tensor) else torch.tensor(numbers)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def sent_together(device: torch.device, parts: Parts) -> Parts:
    """Return ``parts`` on ``device``, by a single copy, without waiting for a GPU.

    ``parts`` are tensors of the CPU in tuples within tuples; all else in them stays as it is.
    """
    if device.type != "cuda":
        return parts
    tensors = list({id(tensor): tensor for tensor in tensors_in(parts)}.values())
    sizes = [-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors]
    buffer = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=True)
    for part, tensor in zip(buffer.split(sizes), tensors, strict=True):
        _as_in(part, tensor).copy_(tensor)
    sent = buffer.to(device, non_blocking=True).split(sizes)
    there = {id(old): _as_in(part, old) for part, old in zip(sent, tensors, strict=True)}
    return cast(Parts, _replaced(parts, there))


def copied(parts: Parts) -> Parts:
    """Return ``parts`` with copies of their tensors in memory of their own."""
    return cast(Parts, _replaced(parts, {id(each): each.clone() for each in tensors_in(parts)}))


def tensors_in(parts: Any) -> Iterator[Tensor]:
    """Yield the tensors in tuples within tuples, in their order."""
    if isinstance(parts, Tensor):
        yield parts
    elif isinstance(parts, tuple):
        for part in parts:
            yield from tensors_in(part)


def _replaced(parts: Any, by_id: dict[int, Tensor]) -> Any:
    """Return ``parts`` with other tensors in place of its own."""
    if isinstance(parts, Tensor):
        return by_id[id(parts)]
    if not isinstance(parts, tuple):
        return parts
    replaced = [_replaced(part, by_id) for part in parts]
    return type(parts)(*replaced) if hasattr(parts, "_fields") else tuple(replaced)


def _as_in(part: Tensor, tensor: Tensor) -> Tensor:
    """Return the bytes of ``part`` in the type and shape of ``tensor``."""
    return part[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)


class Sent(Generic[Parts]):
    """Parts of a batch on their way to a GPU."""

    def __init__(self, parts: Parts, arrival: "Mark") -> None:
        self._parts, self._arrival = parts, arrival

    def received(self) -> Parts:
        """Return the parts; the GPU's current stream waits for them, the CPU does not."""
        tensor = next(tensors_in(self._parts))
        stream = torch.cuda.current_stream(tensor.device)
        stream.wait_event(self._arrival)
        # All parts share the memory of one copy. Once they are given up, torch must not use it
        # again before this stream has done its work.
        tensor.record_stream(stream)
        return self._parts


class Sender:
    """Sends to a GPU on a stream of its own, beside the computations on the other streams.

    It may be used in another thread than what it sends.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)

    def send(self, parts: Parts) -> Sent[Parts]:
        """Begin to send ``parts``, tensors and all else in tuples, by a single copy."""
        with torch.cuda.stream(self._stream):  # which also makes its GPU that of this thread
            sent = sent_together(self._device, parts)
            arrival = torch.cuda.Event()
            arrival.record(self._stream)
        return Sent(sent, arrival)


def prefer_flash_attention(device: torch.device) -> None:
    """Turn off cuDNN's attention in this process, which torch prefers on new GPUs.

    It makes a plan for each shape, and the shapes of our batches all differ.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


@contextmanager
def tf32_allowed(device: torch.device, precision: str) -> Iterator[None]:
    """Let products of ``precision`` fp32 be in TF32 on a GPU that has it; log that.

    The setting is that of the whole process; after the block it is as before.
    """
    if training_products(device, precision) != "tf32":
        yield
        return
    logs.info("fp32 products are computed in TF32, with 10 bits after the point instead of 23.")
    with fp32_precision(torch.backends.cuda.matmul, "tf32"):
        yield


def training_products(device: torch.device, precision: str) -> str:
    """Return the type of the products of a training in ``precision``: fp32, tf32 or bf16."""
    has_tf32 = device.type == "cuda" and bf16_is_fast(device)  # both came with Ampere
    return "tf32" if precision == "fp32" and has_tf32 else precision


def finish_work(device: torch.device) -> None:
    """Wait until a GPU has done all work on its current stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


Mark = torch.cuda.Event


def mark_of_work(device: torch.device) -> Mark | None:
    """Return a mark behind all work of a GPU so far; None on a CPU, whose work is done."""
    if device.type != "cuda":
        return None
    mark = torch.cuda.Event()
    mark.record(torch.cuda.current_stream(device))
    return mark


def use_new_stream(device: torch.device, after: Mark | None) -> None:
    """Let later work on a GPU wait for the mark ``after``, and for nothing else."""
    if device.type == "cuda":
        stream = torch.cuda.Stream(device)
        if after is not None:
            stream.wait_event(after)
        torch.cuda.set_stream(stream)


def choose_precision(name: str, device: torch.device) -> Precision:
    """Return what ``name`` means on ``device``; "auto" is bf16 where that is fast."""
    if name == AUTO:
        return "bf16" if bf16_is_fast(device) else "fp32"
    if name not in DTYPES:
        raise WrongUsageError(f"--precision must be auto, fp32 or bf16, but is {name}.")
    return cast(Precision, name)


def bf16_is_fast(device: torch.device) -> bool:
    """Return whether the hardware multiplies bf16; without that, bf16 is far slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FIRST_CUDA_WITH_BF16
    return cpu_has_avx512_bf16() or cpu_has_amx()


Work = Callable[[], None]

# Only one recording may be under way in a process.
_RECORDING = threading.Lock()


@functools.cache
def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    # torch has 32 streams, which it gives in turn: a new one may be that of a sender.
    return torch.cuda.Stream(device)


class GraphRecorder:
    """Records steps as CUDA graphs: all of a step is launched at once.

    They share the memory of their intermediate results, so two of them must not run at the same
    time. On a CPU a step is only called.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            self._stream = _recording_stream(device)
        self.forget_graphs()

    def forget_graphs(self) -> None:
        """Share no memory with the graphs so far: that of graphs that are gone cannot be used."""
        if self.device.type == "cuda":
            self._pool = torch.cuda.graph_pool_handle()

    def compute(self, step: Work) -> None:
        """Call ``step`` before it is recorded.

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

    def recorded(self, step: Work) -> Work:
        """Return a function that computes what ``step`` launches, which does not run here.

        ``step`` must read and write tensors that live on, keep no others, and not wait for the GPU.
        Raises an error of a full memory where torch can go on after it, and otherwise UserError.
        """
        if self.device.type != "cuda":
            return step
        # The outer context also sets the device, and restores the stream if a recording fails. An
        # old graph that is collected as garbage would end the recording.
        with _RECORDING, torch.cuda.stream(self._stream), collecting_no_garbage():
            graph = torch.cuda.CUDAGraph()
            try:
                # The default mode forbids other threads to allocate memory meanwhile.
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                ):
                    step()
            except Exception as error:
                raise _why_not_recorded(error) from None
        return graph.replay


def _why_not_recorded(error: BaseException) -> BaseException:
    """Return the error to raise where a graph could not be recorded.

    The end of a recording raises an error of its own, in whose context is the first one. Before
    torch 2.13 no random numbers can be drawn after a failed recording.
    """
    while error.__context__ is not None:
        error = error.__context__
    if means_full_memory(error) and TorchVersion(torch.__version__) >= RECOVERS:
        return error
    reason = str(error).partition("\n")[0]
    return UserError(
        f"a CUDA graph could not be recorded ({type(error).__name__}: {reason}); give "
        "--no-cuda-graphs, and the kernels are launched one by one."
    )


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
