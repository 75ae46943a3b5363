"""How a batch is cut into micro-batches that fit the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import default_max_tokens
from nmt_cli.launch import Worker
from nmt_cli.recipe.schema import Recipe


class BatchCut(NamedTuple):
    """The size and the number of the micro-batches."""

    max_tokens: int  # of either side of a micro-batch
    multiple_of: int = 1  # divides the number of micro-batches; every rank then gets as many
    is_limit_chosen: bool = False  # the user gave max_tokens, so training never changes it

    def facts(self) -> dict[str, Any]:
        """Return the facts for a checkpoint: the random draws of dropout depend on them."""
        return {
            "max_tokens_per_device": self.max_tokens,
            "micro_batches_multiple_of": self.multiple_of,
        }


def choose_cut(
    recipe: Recipe,
    vocabulary_size: int,
    machine: Machine,
    worker: Worker | None,
    max_tokens: int | None,
) -> BatchCut:
    """Return the cut for one rank: at most ``max_tokens``, or if None an estimate of what fits."""
    if max_tokens is not None:
        return BatchCut(max_tokens, is_limit_chosen=True)
    local_size = worker.local_size if worker is not None else 1
    fitting = default_max_tokens(
        recipe.model, vocabulary_size, machine.device, recipe.training.tokens_per_step, local_size
    )
    return BatchCut(fitting)


def cut_as_before(cut: BatchCut, facts: Mapping[str, Any], num_ranks: int) -> BatchCut:
    """Return the cut of the checkpoint with these ``facts``, as far as it can be used again.

    A limit that the user chose stays, and so does one that is lower on this machine. The number of
    micro-batches must be a multiple of ``num_ranks``.
    """
    max_tokens, multiple_of = cut.max_tokens, num_ranks
    if not cut.is_limit_chosen:
        max_tokens = min(max_tokens, facts["max_tokens_per_device"])
    before = facts.get("micro_batches_multiple_of", 1)
    if before % num_ranks == 0:
        multiple_of = before
    return cut._replace(max_tokens=max_tokens, multiple_of=multiple_of)
