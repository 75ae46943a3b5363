"""Full memory: a probe before training, and smaller micro-batches if memory is full later."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from nmt_cli.corpus.binarized import BinarizedText, PreparedCorpus
from nmt_cli.corpus.loader import Batch, ParallelTokens
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import (
    FullMemoryError,
    give_up_memory_of,
    largest_that_runs,
    noticing_full_memory,
)
from nmt_cli.hardware.ranks import ALONE, Ranks
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.runs.batch_cut import BatchCut, limit_as_before, report_other_limit
from nmt_cli.runs.checkpoint import TrainingState
from nmt_cli.training.gradient import Gradient, Objective

HEADROOM = 0.1  # share of a GPU's memory that the probe leaves free for fragmentation

Result = TypeVar("Result")


class Computed(NamedTuple, Generic[Result]):
    """The result for a batch, and the sizes of the micro-batches with which it was tried."""

    result: Result
    max_tokens: int  # of a side, the limit with which it fitted
    sizes: list[int]  # tokens of the largest side at each attempt; only the last one fitted


def fit_to_memory(
    state: TrainingState,
    objective: Objective,
    corpus: PreparedCorpus,
    before: Mapping[str, Any] | None = None,
) -> None:
    """Lower ``state.cut`` until its micro-batches fit the memory of every rank.

    On a GPU they are halved until the gradient of the largest ones can be computed. On a CPU there
    is no probe, because the kernel kills a process that takes too much; the estimate is used as it
    is. ``before`` are the facts of the checkpoint that the run continues from: its limit is used
    again if it is about the one found here, and one line reports any other. Raises UserError if a
    single sentence pair does not fit, or micro-batches of the ``--max-tokens-per-device`` that the
    user chose.
    """
    cut, longest, machine = state.cut, corpus.longest, objective.machine
    fitting = cut.max_tokens
    is_too_low = cut.is_limit_chosen and cut.max_tokens < longest  # refused later, on any device
    if machine.device.type == "cuda" and not is_too_low:

        def attempt(max_tokens: int) -> None:
            for tokens in largest_micro_batches(corpus.source, corpus.target, max_tokens):
                try_micro_batch(tokens, state, objective)

        fitting = largest_that_runs(cut.max_tokens, longest, attempt)
    fitting = machine.ranks.minimum(fitting)
    if fitting == 0:
        raise UserError(
            "the longest sentence pair does not fit the GPU's memory; lower data.max_length, "
            "or choose a smaller model."
        )
    if cut.is_limit_chosen and fitting < cut.max_tokens:
        raise UserError(
            f"--max-tokens-per-device {cut.max_tokens:,} does not fit the GPU's memory; give "
            f"--max-tokens-per-device {fitting}, which does, or leave the option out."
        )
    state.cut = cut._replace(max_tokens=fitting)
    if before is not None:
        state.cut = limit_as_before(state.cut, before)
        report_other_limit(state.cut, before)


def try_micro_batch(tokens: ParallelTokens, state: TrainingState, objective: Objective) -> None:
    """Compute and discard the gradient of a micro-batch, beside what later steps allocate.

    Raises an error of a full memory if it does not fit.
    """
    state.model.train()
    machine = objective.machine
    room = room_to_leave(state, machine)
    alone = objective._replace(machine=machine._replace(ranks=ALONE))
    alone.gradient(Batch(0, (tokens,)))
    state.model.zero_grad(set_to_none=True)
    del room


def largest_micro_batches(
    source: BinarizedText, target: BinarizedText, max_tokens: int
) -> Iterator[ParallelTokens]:
    """Yield the micro-batches that need the most memory.

    The pairs with the longest longer side need the most for attention, those that are long on both
    sides for everything else, because only they fill both sides of a micro-batch.
    """
    sides = (source.lengths, target.lengths)
    for key in (np.maximum(*sides), np.minimum(*sides)):
        pairs = np.argsort(key, kind="stable")[::-1][:max_tokens].astype(np.int64)
        ends = [np.cumsum(lengths[pairs], dtype=np.int64) for lengths in sides]
        count = min(int(end.searchsorted(max_tokens, side="right")) for end in ends)
        pairs = pairs[: max(1, count)]
        yield ParallelTokens(*source.gather(pairs), *target.gather(pairs))


def room_to_leave(state: TrainingState, machine: Machine) -> list[torch.Tensor]:
    """Return tensors as large as what a probe must leave free.

    That is what steps allocate later (Adam's moments, gradients in one tensor for the exchange, the
    trained weights while their average is validated), and on a GPU the headroom.
    """
    copies = (0 if state.optimizer.state else 2) + (machine.ranks.size > 1)
    copies += state.average is not None
    parameters = list(state.model.parameters())
    room = [torch.empty_like(parameter) for parameter in parameters for _ in range(copies)]
    if machine.device.type == "cuda":
        spare = int(HEADROOM * torch.cuda.mem_get_info(machine.device)[1])
        room.append(torch.empty(spare, dtype=torch.uint8, device=machine.device))
    return room


def computed_within_memory(
    batch: Batch,
    cut: BatchCut,
    compute: Callable[[Batch], Result],
    is_shared: Callable[[FullMemoryError], bool] = lambda error: True,
) -> Computed[Result]:
    """Return ``compute(batch)``, with the batch cut by ``cut``, and smaller while memory is full.

    It is cut smaller only if ``is_shared(error)``: then every rank that computes this batch has
    failed in the same way and cuts it too. Raises FullMemoryError if a single pair does not fit.
    """
    max_tokens, sizes = cut.max_tokens, list[int]()
    while True:
        smaller = batch.cut(max_tokens, cut.multiple_of)
        sizes.append(smaller.largest_side)
        try:
            with noticing_full_memory():
                return Computed(compute(smaller), max_tokens, sizes)
        except FullMemoryError as error:
            if not is_shared(error) or sizes[-1] <= batch.longest:
                raise
            give_up_memory_of(error)
        max_tokens = max(batch.longest, sizes[-1] // 2)


def gradient_within_memory(
    batch: Batch, cut: BatchCut, ranks: Ranks, longest: int, compute: Callable[[Batch], Gradient]
) -> tuple[Gradient, BatchCut]:
    """Return the gradient of ``batch``, and the cut for the batches to come.

    If memory is full, all ranks cut the batch in the same way and try again. Later batches are then
    cut to this size from the start, but never below the ``longest`` sentence, unless the user chose
    the limit. Raises FullMemoryError on all ranks if single sentence pairs do not fit either.
    """
    gradient, max_tokens, sizes = computed_within_memory(
        batch, cut, compute, lambda error: error.on_all_ranks or ranks.size == 1
    )
    if len(sizes) == 1:
        return gradient, cut
    text = (
        f"batch {batch.number:,} ran out of memory with micro-batches of {sizes[0]:,} "
        f"tokens a side and was computed with {sizes[-1]:,}"
    )
    if cut.is_limit_chosen:
        logs.warning(f"{text}; --max-tokens-per-device stays {cut.max_tokens:,}.")
        return gradient, cut
    max_tokens = max(max_tokens, longest)
    logs.warning(f"{text}; later batches are computed with at most {max_tokens:,}.")
    return gradient, cut._replace(max_tokens=max_tokens, limited_by="full memory")
