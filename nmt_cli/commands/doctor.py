"""``nmt-cli doctor``: the facts of the machine for bug reports, and advice on what is slow."""

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from nmt_cli import __version__
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.hardware.cpu import Cores, set_num_threads
from nmt_cli.hardware.system_facts import system_facts, version_of
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.extras import LEFT_OUT, install_command
from nmt_cli.messages.figures import counted

Facts = Mapping[str, Any]

LEAST_HERE, LEAST_TEMPORARY, LEAST_SHARED = 10.0, 1.0, 0.125  # GiB
LEAST_MEMORY = 4.0  # GiB
LEAST_SHARE_FREE = 0.8  # of a GPU's memory


def run(*, output_format: str = "text") -> None:
    """Write the facts, then the advice, to stdout. Raises OutputError if that fails."""
    facts = {**system_facts(), **_torch_facts(), **_library_facts()}
    advice = advice_on(facts)
    if output_format == "json":
        text = json.dumps({"facts": facts, "advice": advice}, indent=2, ensure_ascii=False)
    else:
        lines = [f"{name}: {_shown_value(value)}" for name, value in facts.items()]
        lines += [f"advice: {sentence}" for sentence in advice or ["none"]]
        text = "\n".join(logs.printable(line) for line in lines)
    StandardOutput().write(f"{text}\n".encode(errors="replace"))


def versions() -> str:
    """Return a line with the versions of nmt-cli and torch, and the level of the library.

    torch is not imported for that.
    """
    level = _library_facts()["translating.level"]
    return (
        f"nmt-cli, version {__version__} (library: {level or 'none'}, "
        f"torch: {version_of('torch') or 'none'})"
    )


def _torch_facts() -> dict[str, Any]:
    """Return the facts of torch, or only the reason why torch cannot be imported."""
    if find_spec("torch") is None:
        return {"torch.version": None}
    try:
        from nmt_cli.hardware.torch_facts import torch_facts
    except (ImportError, OSError) as error:  # OSError is a shared library that does not load
        return {"torch.problem": " ".join(str(error).split())}
    set_num_threads(None)  # as every command does
    return torch_facts()


def _library_facts() -> dict[str, Any]:
    """Return the level of CPU of the library that translates, or why there is none."""
    from nmt_cli.model.compiled.c_library import load_library

    try:
        return {"translating.level": load_library().level}
    except UserError as error:
        return {"translating.level": None, "translating.problem": str(error)}


def _shown_value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace("\n", " ")


def advice_on(facts: Facts) -> list[str]:
    """Return one sentence for each problem; a fact that is unknown (None) gives none."""
    rules = (_on_builds, _on_threads, _on_cpu, _on_missing_gpus, _on_gpus, _on_space)
    return [sentence for rule in rules for sentence in rule(facts)]


def _lacks_torch(facts: Facts) -> bool:
    return "torch.version" in facts and facts["torch.version"] is None


def _on_builds(facts: Facts) -> Iterator[str]:
    if problem := facts.get("torch.problem"):
        yield f"torch cannot be imported, without which nothing is trained: {problem}"
    if _lacks_torch(facts):
        does = "cannot train" if facts.get("translating.problem") else "only translates on a CPU"
        yield (
            f"torch is not installed, so this installation {does}; to train, run: "
            f"{install_command(*LEFT_OUT)}"
        )
    for name in ("python", "torch"):
        if facts.get(f"{name}.debug_build"):
            yield f"this is a debug build of {name}, many times slower; install a release."


def _on_threads(facts: Facts) -> Iterator[str]:
    cores, allowed = facts["cpu.cores"], facts["cpu.cores_allowed"]
    usable = Cores(allowed, facts["cpu.quota_cores"]).worth_a_thread
    if cores is not None and usable < cores:
        yield (
            f"this process may use {usable} of the machine's {cores} cores; a job scheduler, "
            "taskset or a container limits it."
        )
    threads = facts.get("torch.threads")
    if threads is None:
        return
    names = [n for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if facts[f"environment.{n}"]]
    # By default torch uses one thread per physical core, which the system may count as two cores.
    if threads < usable and (names or 2 * threads < usable):
        reason = f" because of {' and '.join(names)}" if names else ""
        yield (
            f"torch computes with {counted(threads, 'thread')} on {usable} cores{reason}; "
            f"give --threads {usable}."
        )
    if threads > usable:
        yield (
            f"torch computes with {threads} threads, which wait for one another on "
            f"{counted(usable, 'core')}; give --threads {usable}."
        )


def _on_cpu(facts: Facts) -> Iterator[str]:
    if facts.get("torch.gpus"):
        return
    if facts.get("device.cpu.bf16_is_fast") is False:
        yield "this CPU has neither AVX512_BF16 nor AMX; bf16 would be slow, so auto is fp32."
    if facts.get("torch.cpu_capability") == "DEFAULT":
        yield "torch uses no vector instructions of this CPU; everything is slow on it."
    if problem := facts.get("translating.problem"):
        what = "torch translates on this CPU, several times as slowly"
        yield f"{'nothing translates on this CPU' if _lacks_torch(facts) else what}: {problem}"
    if facts["memory.huge_pages"] == "never":
        yield "the kernel gives no huge pages, which costs some speed; set them to madvise."


def _on_missing_gpus(facts: Facts) -> Iterator[str]:
    if "torch.gpus" not in facts or facts["torch.gpus"]:
        return
    has_gpu = bool(facts["gpu.on_bus"] or facts["gpu.driver"])
    hidden = facts["environment.CUDA_VISIBLE_DEVICES"]
    if facts["torch.cuda"] is None and facts["torch.hip"] is None:
        if has_gpu:
            yield "there is an NVIDIA GPU, but this is torch's CPU build; install a CUDA build."
    elif hidden is not None and has_gpu:
        yield f'CUDA_VISIBLE_DEVICES is "{hidden}" and hides the GPUs; unset it.'
    elif has_gpu and facts["gpu.driver"] is None:
        yield "there is an NVIDIA GPU without a driver; install it until nvidia-smi lists the GPU."
    elif problem := facts["torch.gpu_problem"]:
        yield f"torch cannot use the GPU: {problem}"
    elif not has_gpu:
        yield "this is torch's GPU build, but there is no GPU; its CPU build is far smaller."
    else:
        yield "there is a GPU with a driver, but torch sees none; a container may hide it."


def _on_gpus(facts: Facts) -> Iterator[str]:
    for index in range(facts.get("torch.gpus", 0)):
        of = {
            name.rpartition(".")[2]: value
            for name, value in facts.items()
            if name.startswith(f"device.cuda.{index}.")
        }
        gpu = f"cuda:{index} ({of['name']})"
        if not of["is_built_for"]:
            yield f"{gpu} has capability {of['capability']}, for which this torch is not built."
        if not of["bf16_is_fast"]:
            yield f"{gpu} is slow in bf16, so auto is fp32; capability 8.0 and up are fast."
        if of["free_gib"] is None:
            yield f"{gpu} cannot be used by this process; another one may use it exclusively."
        elif of["free_gib"] < LEAST_SHARE_FREE * of["memory_gib"]:
            yield (
                f"{gpu} has {of['free_gib']} of {of['memory_gib']} GiB free; other programs "
                "use the rest."
            )


def _on_space(facts: Facts) -> Iterator[str]:
    memory = facts.get("memory.allowed_gib")
    if memory is not None and memory < LEAST_MEMORY:
        yield f"{memory} GiB of memory are allowed; micro-batches will be small, big models fail."
    places = (
        ("disk.here_gib", LEAST_HERE, "this disk; checkpoints of base take 3 GiB, of big 20"),
        ("disk.temporary_gib", LEAST_TEMPORARY, "the disk of temporary files; set TMPDIR"),
        ("disk.shared_memory_gib", LEAST_SHARED, "/dev/shm; several devices may not train "
         "together (docker run --shm-size 1g)"),
    )  # fmt: skip
    for name, least, what in places:
        free = facts[name]
        if free is None and name == "disk.temporary_gib":
            yield "there is no place for temporary files; set TMPDIR."
        elif free is not None and free < least:
            yield f"{free} GiB are free on {what}."
