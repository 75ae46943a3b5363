"""Whether our kernels in Triton compute what torch computes in a step of a search, on this GPU."""

import functools

import torch
from torch import Tensor

from nmt_cli.messages import logs
from nmt_cli.model.triton_support import error_of_kernel, failure_of_kernel, has_triton
from nmt_cli.recipe.model_values import StackShape
from nmt_cli.search.attention_cache import KeysValues, Memory, Past
from nmt_cli.search.graphed.device_beams import best_continuations
from nmt_cli.search.sentences import SearchSettings

LARGEST_BEAM = 32  # a program compares all candidates of a hypothesis with each other
SLOTS, ROOM = 2, 4 * LARGEST_BEAM  # a multiple of 16, as the rooms of graphs are


@functools.cache
def kernels_work(
    shape: StackShape,
    settings: SearchSettings,
    dtype: torch.dtype,
    vocabulary_size: int,
    device: torch.device,
) -> bool:
    """Return whether the kernels can be used for this decoder; one line says why not.

    They are tried on random numbers, in the shapes for which they are compiled. Each of their
    results may be off by twice what torch's is off.
    """
    is_small = settings.beam_size <= LARGEST_BEAM
    if device.type != "cuda" or not is_small or not has_triton(device):
        return False
    with torch.cuda.device(device):  # Triton launches on the current one of a thread
        why = _why_not(shape._replace(num_layers=1), settings, dtype, vocabulary_size, device)
    if why is not None:
        logs.warning(
            "The search attends and finds the best pieces by torch, not by our kernels in Triton: "
            f"{why}."
        )
    return why is None


def _why_not(
    shape: StackShape,
    settings: SearchSettings,
    dtype: torch.dtype,
    vocabulary_size: int,
    device: torch.device,
) -> str | None:
    def drawn(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(device, dtype).to(computed)

    beam_size = settings.beam_size
    heads, d_k, d_v = (SLOTS, shape.num_heads), shape.key_width, shape.value_width
    widths = [shape.num_heads * each for each in (d_k, d_k, d_v)]
    found = []
    try:
        for computed, by_kernel in ((torch.float64, False), (dtype, False), (dtype, True)):
            generator = torch.Generator().manual_seed(1)
            entries = KeysValues(drawn(*heads, d_k, ROOM), drawn(*heads, ROOM, d_v))
            past = Past([entries], beam_size, by_kernel=by_kernel)
            past.start(range(SLOTS), drawn(SLOTS, 1, sum(widths[1:])))
            past.is_past[:, :, ::2] = True  # up to the end of the room
            parents = torch.zeros(SLOTS, beam_size, dtype=torch.int64, device=device)
            past.advance(parents, parents[:, 0] + 1)
            memory = Memory([entries], beam_size, by_kernel=by_kernel)
            memory.make_room(range(SLOTS), [ROOM, ROOM // 2])
            memory.update_mask()
            rows = drawn(SLOTS * beam_size, sum(widths)).split(widths, dim=1)
            attended = past.attended(0, *rows), memory.attended(0, rows[0].contiguous())
            logits = drawn(SLOTS * beam_size, vocabulary_size)
            logits = logits if computed == torch.float64 else logits.float()
            best = best_continuations(logits, 2 * beam_size, settings, by_kernel=by_kernel)
            found.append((*attended, best[2], *best[:2]))
        are_equal = all(map(torch.equal, found[-1][3:], found[1][3:]))
        # Logits and normalizers are in fp32.
        names = {"attention to the past": dtype, "attention": dtype, "normalizers": torch.float32}
        errors = [
            error_of_kernel(f"the result of {name}", [of_name], *computations)
            for (name, of_name), *computations in zip(names.items(), *found, strict=False)
        ]
    except Exception as error:  # of Triton, its compilers, the driver
        return failure_of_kernel(error)
    if not are_equal:
        return "they find other pieces"
    worst = max(errors)
    return None if worst.multiple <= 1.0 else worst.text
