"""Stand-ins for what asks the driver of a GPU: streams, events, graphs, facts of the device.

They replace torch's own for the rest of the process, which therefore is one of the rehearsal.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _foreach_utils

from nmt_cli.corpus import loader
from nmt_cli.training import saving
from tests.rehearsal.fake_cuda import (
    CUDA,
    FakeCuda,
    storage_of,
)
from tests.search.graphed.replayed_steps import tensors_in

MEMORY = 80 << 30


class _Stream:
    device, device_index = CUDA, 0

    def __init__(self, mode: FakeCuda) -> None:
        self._mode = mode

    def wait_stream(self, other: Any) -> None:
        pass  # the device waits, not the CPU

    def wait_event(self, event: Any) -> None:
        self._mode.arrived |= {(self._mode.stream, storage) for storage in event.sent}

    def synchronize(self) -> None:
        self._mode.note_wait("stream.synchronize")


class _Event:
    def __init__(self, mode: FakeCuda) -> None:
        self._mode, self._is_stuck, self.sent = mode, False, set[int]()

    def record(self, stream: Any = None) -> None:
        self._is_stuck = self._mode.stream is self._mode.stuck
        self.sent = {key for key, (on, _) in self._mode.sent.items() if on is self._mode.stream}

    def query(self) -> bool:
        return not self._is_stuck

    def synchronize(self) -> None:
        self._mode.note_wait("event.synchronize")


class _InTurn:
    """A pool of one thread, for which the caller waits: fake tensors are not for two threads."""

    def __init__(self, *, thread_name_prefix: str, **_: Any) -> None:
        self._name = thread_name_prefix

    def __enter__(self) -> "_InTurn":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future = Future[Any]()

        def run() -> None:
            try:
                future.set_result(function(*arguments))
            except Exception as error:
                future.set_exception(error)

        thread = threading.Thread(target=run, name=self._name)
        thread.start()
        thread.join()
        return future

    def shutdown(self) -> None:
        pass


class _Graph:
    def __init__(self, mode: FakeCuda) -> None:
        self._mode, self.seconds = mode, 0.0

    def replay(self) -> None:
        self._mode.mark("replay")
        self._mode.seconds_launched += self.seconds


def _class_for(mode: FakeCuda, kind: Any) -> type:
    """Return a class, which annotations of other packages name, of ``kind`` with ``mode``."""

    def begin(made: Any, *_: Any, **__: Any) -> None:
        kind.__init__(made, mode)

    return type(kind.__name__, (kind,), {"__init__": begin})


def be_the_driver(mode: FakeCuda) -> None:
    """Let torch find a GPU of which ``mode`` keeps the books."""

    @contextmanager
    def recording(graph: Any, pool: Any = None, **_: Any) -> Iterator[None]:
        mode.mark("recording begins")
        mode.is_recording, before = True, mode.seconds_launched
        try:
            yield
        finally:
            mode.is_recording = False
            mode.mark("recording ends")
            # Kernels take their time when they are replayed.
            graph.seconds, mode.seconds_launched = mode.seconds_launched - before, before

    cuda: Any = torch.cuda
    cuda.device_count = lambda: 1
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.get_device_name = lambda *_: "NVIDIA H100 80GB HBM3"
    cuda.mem_get_info = lambda *_: (MEMORY - (1 << 30), MEMORY)
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.backends.cuda.is_flash_attention_available = lambda: True
    cuda.CUDAGraph = _class_for(mode, _Graph)
    cuda.graph, cuda.set_device = recording, lambda *_: None
    cuda.device = lambda *_: nullcontext()
    cuda.graph_pool_handle = lambda: (0, 1)
    cuda.is_current_stream_capturing = lambda: mode.is_recording
    cuda.empty_cache = cuda._lazy_init = lambda: None
    # A CUDA build would put a tensor on the GPU before the first fake one.
    fake_tensor.init_gpu_context = lambda *_: None  # type: ignore[assignment]
    # Otherwise operations on many tensors would be taken apart, as for tensors of other classes.
    _foreach_utils._foreach_supported_types.append(FakeTensor)
    torch._C._set_only_lift_cpu_tensors(True)
    nn.Module._apply = _moved_with_ties  # type: ignore[method-assign]
    run = threading.Thread.run

    def run_in_mode(thread: threading.Thread) -> None:
        with mode:  # it is that of the thread that enters it
            run(thread)

    threading.Thread.run = run_in_mode  # type: ignore[method-assign, assignment]
    _have_streams(mode)


def _have_streams(mode: FakeCuda) -> None:
    @contextmanager
    def on_stream(stream: Any) -> Iterator[None]:
        before, mode.stream = mode.stream, stream
        try:
            yield
        finally:
            mode.stream = before

    cuda: Any = torch.cuda
    cuda.Stream, cuda.Event = _class_for(mode, _Stream), _class_for(mode, _Event)
    cuda.current_stream = lambda *_: _Stream(mode)
    cuda.stream = on_stream
    cuda.set_stream = lambda stream: setattr(mode, "stream", stream)
    fake: Any = FakeTensor
    fake.record_stream = lambda tensor, _: mode.kept.add(storage_of(tensor))
    pools: Any
    for pools in (loader, saving):
        pools.ThreadPoolExecutor = _InTurn


def _moved_with_ties(
    module: nn.Module,
    move: Callable[[Tensor], Tensor],
    recurse: bool = True,
    moved: dict[int, tuple[Any, Any]] | None = None,
) -> nn.Module:
    """Do what ``nn.Module._apply`` does, by new parameters: a fake one cannot take a place on a
    CPU in memory. Parameters that are tied stay so."""
    moved = {} if moved is None else moved
    for child in module.children():
        _moved_with_ties(child, move, recurse, moved)
    for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
        if tensor is None:
            continue
        if id(tensor) not in moved:
            with torch.no_grad():
                new = move(tensor)
            if isinstance(tensor, nn.Parameter):
                new = nn.Parameter(new, tensor.requires_grad)
            moved[id(tensor)] = new, tensor  # the old one is kept, so that its id stays its own
        store: dict[str, Any] = module._parameters if name in module._parameters else {}
        (store or module._buffers)[name] = moved[id(tensor)][0]
    return module


def bring_triton(mode: FakeCuda) -> None:
    """Let kernels in Triton be launched, which notes them; nothing compiles or computes them."""
    triton: Any = ModuleType("triton")
    triton.__spec__ = ModuleSpec("triton", None)
    triton.language = ModuleType("triton.language")
    triton.language.constexpr = int
    triton.cdiv = lambda number, divisor: -(-number // divisor)
    triton.next_power_of_2 = lambda number: 1 << (number - 1).bit_length()
    triton.jit = functools.partial(_Kernel, mode)
    sys.modules |= {"triton": triton, "triton.language": triton.language}


class _Kernel:
    def __init__(self, mode: FakeCuda, function: Any = None, **_: Any) -> None:
        self._mode, self._function = mode, function

    def __call__(self, function: Any) -> "_Kernel":
        """Decorate ``function``, if the decorator has options."""
        return _Kernel(self._mode, function)

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *args, **_: self._mode.launch(self._function.__name__, tensors_in(args))
