"""How a batch is cut into micro-batches that fit the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch

from nmt_cli.costs.parameters import BYTES_OF_FP32, activation_bytes_per_token, count_parameters
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import allowed_memory
from nmt_cli.launch.node_workers import Worker
from nmt_cli.messages import logs
from nmt_cli.messages.figures import GIBIBYTE, counted
from nmt_cli.model.cpu_attention import MAX_KEYS
from nmt_cli.recipe.model_config import ModelConfig
from nmt_cli.recipe.schema import Recipe

MAX_TOKENS_ON_CPU = 8_192  # larger products are not faster
SHARE_OF_CPU_MEMORY = 1 / 3  # of what the weights leave
SHARE_OF_GPU_MEMORY = 0.8

LimitedBy = Literal["estimate", "option", "full memory"]
WHY: dict[LimitedBy, str] = {
    "estimate": "what fits the memory",
    "option": "--max-tokens-per-device",
    "full memory": "lowered because memory was full",
}
# A limit of before that is smaller by less is used again, so that a resumed run draws the same
# dropout although a GPU has a little more free memory.
SHARE_TO_KEEP = 0.75


class BatchCut(NamedTuple):
    """The size and the number of the micro-batches."""

    max_tokens: int  # of either side of a micro-batch
    multiple_of: int = 1  # divides the number of micro-batches; every rank then gets as many
    limited_by: LimitedBy = "estimate"  # what max_tokens comes from

    @property
    def is_limit_chosen(self) -> bool:
        """Whether the user gave ``max_tokens``, so that training never changes it."""
        return self.limited_by == "option"

    def facts(self) -> dict[str, Any]:
        """Return the facts for a checkpoint: the random draws of dropout depend on them."""
        return {
            "max_tokens_per_device": self.max_tokens,
            "micro_batches_multiple_of": self.multiple_of,
            "micro_batches_limited_by": self.limited_by,
        }


def choose_cut(
    recipe: Recipe,
    vocabulary_size: int,
    longest: int,
    machine: Machine,
    worker: Worker | None,
    max_tokens: int | None,
) -> BatchCut:
    """Return the cut for one rank: at most ``max_tokens``, or if None an estimate of what fits.

    The estimate is never below the ``longest`` sentence; a warning is logged if that may not fit.
    """
    if max_tokens is not None:
        return BatchCut(max_tokens, machine.ranks.size, limited_by="option")
    processes = worker.local_size if worker is not None else 1
    fitting = default_max_tokens(
        recipe.model, vocabulary_size, machine.device, recipe.training.tokens_per_step, processes
    )
    if fitting < longest and machine.device.type == "cpu":  # on a GPU a probe finds what fits
        _warn_of_little_memory(recipe, vocabulary_size, fitting, longest, processes)
    return BatchCut(max(fitting, longest), machine.ranks.size)


def default_max_tokens(
    config: ModelConfig,
    vocabulary_size: int,
    device: torch.device,
    tokens_per_step: int,
    processes: int = 1,
) -> int:
    """Return the tokens of either side that one micro-batch may have on ``device``.

    On a CPU, ``processes`` share the memory; on GPUs, each process has one of its own. Returns 0 if
    not even the weights and what belongs to them fit.
    """
    state = training_state_bytes(config, vocabulary_size)
    if device.type == "cuda":
        left = int(torch.cuda.mem_get_info(device)[0] * SHARE_OF_GPU_MEMORY) - state
        limit = tokens_per_step
    else:
        left = int((allowed_memory() / processes - state) * SHARE_OF_CPU_MEMORY)
        limit = MAX_TOKENS_ON_CPU
    fitting = left // activation_bytes_per_token(config, MAX_KEYS)
    return max(0, min(limit, tokens_per_step, fitting))


def training_state_bytes(config: ModelConfig, vocabulary_size: int) -> int:
    """Return the bytes of the weights, their gradient and two moments in each process."""
    return 4 * BYTES_OF_FP32 * count_parameters(config, vocabulary_size).total


def _warn_of_little_memory(
    recipe: Recipe, vocabulary_size: int, fitting: int, longest: int, processes: int
) -> None:
    state = training_state_bytes(recipe.model, vocabulary_size) / GIBIBYTE
    share = f", shared by {processes} processes" if processes > 1 else ""
    fewer = ", fewer --devices" if processes > 1 else ""
    logs.warning(
        f"{allowed_memory() / GIBIBYTE:.1f} GiB of memory are allowed{share}. Weights, gradient "
        f"and Adam's moments take {state:.1f} GiB of each, which leaves room for micro-batches of "
        f"about {counted(fitting, 'token')} a side; {longest:,} are used, the longest sentence. If "
        f"the system ends training, choose a smaller model{fewer} or a lower data.max_length."
    )


def cut_as_before(cut: BatchCut, facts: Mapping[str, Any], num_ranks: int) -> BatchCut:
    """Return the cut of the checkpoint with these ``facts``, as far as it suits this machine.

    The number of micro-batches must be a multiple of ``num_ranks``.
    """
    before = facts.get("micro_batches_multiple_of", 1)
    multiple_of = before if before % num_ranks == 0 else num_ranks
    return limit_as_before(cut, facts)._replace(multiple_of=multiple_of)


def limit_as_before(cut: BatchCut, facts: Mapping[str, Any]) -> BatchCut:
    """Return ``cut`` with the limit of the checkpoint with these ``facts``, if it is used again.

    It is used again if it was an estimate and is about what fits here. A limit that the user chose
    now comes first.
    """
    before = facts["max_tokens_per_device"]
    is_similar = SHARE_TO_KEEP * cut.max_tokens <= before <= cut.max_tokens
    if is_similar and _limited_by(facts) == "estimate" and not cut.is_limit_chosen:
        return cut._replace(max_tokens=before)
    return cut


def report_other_limit(cut: BatchCut, facts: Mapping[str, Any]) -> None:
    """Log one line if the limit of ``cut`` is not that of the checkpoint with these ``facts``."""
    before = facts["max_tokens_per_device"]
    if before != cut.max_tokens:
        logs.info(
            f"Micro-batches have at most {cut.max_tokens:,} tokens a side ({WHY[cut.limited_by]}), "
            f"before {before:,} ({WHY[_limited_by(facts)]}). The sentences of each step stay the "
            "same; rounding and the draws of dropout may not."
        )


def _limited_by(facts: Mapping[str, Any]) -> LimitedBy:
    limited_by: LimitedBy = facts.get("micro_batches_limited_by", "estimate")
    return limited_by
