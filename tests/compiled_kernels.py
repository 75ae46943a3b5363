"""Compiles our kernels for GPUs that are not here, as they are launched for several models.

Each line of stdout is a kernel in JSON: its name, the width of a head of the model, what it was
compiled for, the warps and the bytes of memory of a block of threads, the registers of a thread,
the bytes of a thread that these do not hold, and how often each size of a load or a store, in bits,
occurs in its machine code.
"""

import inspect
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
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
# Widths of a head, and the size of a vocabulary; the first one is that of base.
MODELS = ((64, 37_000), (16, 301), (32, 5_003), (128, 37_001))
HEADS, LENGTHS = 8, (20, 50, 120, 300)
RATE = 0.1  # of dropout
AS_TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": True}
seen = set[str]()
d_head = 0  # of the model whose kernels are launched


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
            "d_head": d_head,
            "capability": capability,
            "warps": options.get("num_warps", 4),
            "constants": constants,
            "shared": compiled.metadata.shared,
            **resources(compiled.asm["cubin"]),
        }
        if (line := json.dumps(found)) not in seen:
            seen.add(line)
            sys.stdout.write(f"{line}\n")


def resources(machine_code: bytes) -> dict[str, Any]:
    """Return the registers and the spilled bytes of a thread, and the sizes of its accesses."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(machine_code)
        file.flush()
        usage, code = (
            subprocess.run([str(TOOLS / tool), *words, file.name], **AS_TEXT).stdout
            for tool, *words in (("cuobjdump", "-res-usage"), ("nvdisasm",))
        )
    accesses = Counter[str]()
    for kind, flags in re.findall(r"\b(LDG|STG)\.([A-Z0-9.]+)", code):
        size = re.search(r"\b(U?8|S8|U?16|S16|64|128)\b", flags)
        accesses[f"{kind} {size[0].lstrip('US') if size else 32}"] += 1
    return {
        "registers": sum(map(int, re.findall(r"REG:(\d+)", usage))),
        "spilled": sum(map(int, re.findall(r"STACK:(\d+)", usage))),
        "accesses": dict(sorted(accesses.items())),
    }


def rows(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True)


def main() -> None:
    """Compile what a micro-batch and a step of beam 4 launch, for each of ``MODELS``."""
    global d_head
    torch.set_num_threads(1)
    triton.runtime.JITFunction.run = compile_only
    for d_head, vocabulary_size in MODELS:
        d_model, d_ff = HEADS * d_head, 4 * HEADS * d_head
        for rate in (0.0, RATE):
            drawn = KernelDropout(rate, torch.zeros(1, dtype=torch.int64), 1)
            for length in LENGTHS:
                sentences = pack(torch.zeros(length, dtype=torch.int64), [length])
                layout = AttentionLayout(sentences, sentences)
                heads = Heads(HEADS, d_head, d_head, drawn)
                attend(layout, THE_PAST, heads, rows(length, 3 * d_model)).sum().backward()
            for norm in (Norm(rows(d_model), rows(d_model), 1e-5), None):  # post-norm, pre-norm
                both = rows(64, d_model), rows(64, d_model)
                add_dropout_norm(*both, drawn, norm).sum().backward()
        linear_relu(rows(64, d_model), rows(d_ff, d_model), rows(d_ff))[0].sum().backward()
        losses_in_place(rows(8, vocabulary_size).detach(), torch.zeros(8, dtype=torch.int64), 0.1)
        search(d_head, vocabulary_size)


def search(d_head: int, vocabulary_size: int) -> None:
    """Compile the kernels of a step with beam 4."""
    d_model = HEADS * d_head
    keys, values = rows(2, HEADS, d_head, 48).detach(), rows(2, HEADS, 48, d_head).detach()
    places = torch.zeros(2, 4, dtype=torch.int64)
    of_new = rows(8, 3 * d_model).detach().split(d_model, 1)
    is_past = torch.zeros(2, 4, 48, dtype=torch.bool)
    attend_to_past(of_new, keys, values, is_past, places, places[:, 0])
    attend_to_sources(of_new[0], keys, values, places[:, 0])
    best_entries(torch.zeros(8, vocabulary_size), 8, 1)


if __name__ == "__main__":
    main()
