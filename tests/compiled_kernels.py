"""Compiles our kernels for GPUs that are not here, as they are launched for the base model.

Each line of stdout is a kernel in JSON: its name, what it was compiled for, the bytes of memory of
a block of threads, and the bytes of a thread that its registers do not hold.
"""

import inspect
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.attention_window import THE_PAST
from nmt_cli.model.dropout import KernelDropout
from nmt_cli.model.packing import pack
from nmt_cli.model.triton_kernels.attention import Heads, attend
from nmt_cli.model.triton_kernels.beam_attention import attend_to_past, attend_to_sources
from nmt_cli.model.triton_kernels.best_entries import best_entries
from nmt_cli.model.triton_kernels.cross_entropy import losses_in_place
from nmt_cli.model.triton_kernels.relu import linear_relu
from nmt_cli.model.triton_kernels.residual import Norm, add_dropout_norm

CAPABILITIES = (80, 90)  # A100, H100
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
TYPES = {
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
}
D_MODEL, D_FF, VOCABULARY, LENGTHS = 512, 2048, 37_000, (20, 50, 120, 300)
seen = set[str]()


def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """Take the place of the launch of a kernel."""
    options = {name: kwargs.pop(name) for name in ("num_warps", "num_stages") if name in kwargs}
    given = inspect.signature(kernel.fn).bind(*args, **kwargs).arguments
    signature, constants, attributes = {}, {}, {}
    for number, parameter in enumerate(kernel.params):
        value = given[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = f"*{TYPES[value.dtype]}"
            attributes[number,] = [["tt.divisibility", 16]]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
            if not parameter.do_not_specialize and value % 16 == 0:
                attributes[number,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    for capability in CAPABILITIES:
        target = GPUTarget("cuda", capability, 32)
        compiled = triton.compile(source, target=target, options=options)
        found = {
            "kernel": f"{Path(kernel.fn.__code__.co_filename).stem}.{kernel.fn.__name__}",
            "capability": capability,
            "constants": constants,
            "shared": compiled.metadata.shared,
            "spilled": spilled(compiled.asm["cubin"]),
        }
        if (line := json.dumps(found)) not in seen:
            seen.add(line)
            sys.stdout.write(f"{line}\n")


def spilled(machine_code: bytes) -> int:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(machine_code)
        file.flush()
        command = [str(TOOLS / "cuobjdump"), "-res-usage", file.name]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sum(map(int, re.findall(r"STACK:(\d+)", report)))


def rows(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True)


def main() -> None:
    torch.set_num_threads(1)
    triton.runtime.JITFunction.run = compile_only
    drawn = KernelDropout(0.1, torch.zeros(1, dtype=torch.int64), 1)
    for length in LENGTHS:
        sentences = pack(torch.zeros(length, dtype=torch.int64), [length])
        layout = AttentionLayout(sentences, sentences)
        heads = Heads(8, 64, 64, KernelDropout(0.0, None, 0))
        attend(layout, THE_PAST, heads, rows(length, 3 * D_MODEL)).sum().backward()
    norm = Norm(rows(D_MODEL), rows(D_MODEL), 1e-5)
    add_dropout_norm(rows(64, D_MODEL), rows(64, D_MODEL), drawn, norm).sum().backward()
    linear_relu(rows(64, D_MODEL), rows(D_FF, D_MODEL), rows(D_FF)).sum().backward()
    targets = torch.zeros(8, dtype=torch.int64)
    losses_in_place(rows(8, VOCABULARY).detach(), targets, 0.1)
    search()


def search() -> None:
    """Compile the kernels of a step with beam 4."""
    keys, values = rows(2, 8, 64, 48).detach(), rows(2, 8, 48, 64).detach()
    places = torch.zeros(2, 4, dtype=torch.int64)
    of_new = rows(8, 3 * D_MODEL).detach().split(D_MODEL, 1)
    is_past = torch.zeros(2, 4, 48, dtype=torch.bool)
    attend_to_past(of_new, keys, values, is_past, places)
    attend_to_sources(of_new[0], keys, values, places[:, 0])
    best_entries(torch.zeros(8, VOCABULARY), 8, 1)


if __name__ == "__main__":
    main()
