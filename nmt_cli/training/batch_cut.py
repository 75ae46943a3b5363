"""How a batch is cut into micro-batches that fit the memory.

Before the model is made, the size is estimated (``choose_cut``). Before the first step,
``fit_to_memory`` probes a GPU, and takes the size of the checkpoint if that is about the same. If
memory is full later, ``gradient_within_memory`` lowers the size.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch

from nmt_cli.corpus.batching import PAIRS_AT_ONCE, Lengths
from nmt_cli.corpus.binarized import BinarizedText, Indices
from nmt_cli.corpus.loader import Batch, CutAhead, SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.costs.parameters import BYTES_OF_FP32, activation_bytes_per_token, count_parameters
from nmt_cli.hardware import memory
from nmt_cli.hardware.device import Sender
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.ranks import Ranks
from nmt_cli.launch.worker import Worker
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import GIBIBYTE, counted
from nmt_cli.model.cpu_attention import MAX_KEYS
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.training_state import TrainingState
from nmt_cli.training.gradient.engine import GradientEngine

MAX_TOKENS_ON_CPU = 8_192  # larger products are not faster
SHARE_OF_CPU_MEMORY = 1 / 3  # of what the weights leave
SHARE_OF_GPU_MEMORY = 0.8
HEADROOM = 0.1  # share of a GPU's memory that the probe leaves free for fragmentation

Result = TypeVar("Result")

LimitedBy = Literal["estimate", "option", "full memory"]
WHY: dict[LimitedBy, str] = {
    "estimate": "what fits the memory",
    "option": "--max-tokens-per-device",
    "full memory": "lowered because memory was full",
}
# A resumed run keeps the limit of its checkpoint if that is at least this share of what fits now.
# So it draws the same dropout although a GPU has a little more free memory.
SHARE_TO_KEEP = 0.75


class BatchCut(NamedTuple):
    """The size and the number of the micro-batches."""

    max_tokens: int  # of either side of a micro-batch
    multiple_of: int = 1  # divides the number of micro-batches, so all ranks get equally many
    limited_by: LimitedBy = "estimate"  # what max_tokens comes from

    @property
    def is_limit_chosen(self) -> bool:
        """Whether the user gave ``max_tokens``, so that training never changes it."""
        return self.limited_by == "option"

    def of(self, batch: Batch) -> Batch:
        """Return ``batch`` in micro-batches of this size."""
        return batch.into_micro_batches(self.max_tokens, self.multiple_of)

    def as_manifest(self) -> dict[str, Any]:
        """Return what is kept in checkpoints: the random draws of dropout depend on it."""
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

    The processes of a machine share the memory of its CPUs; on GPUs each has one of its own. The
    estimate is never below the ``longest`` sentence; a warning is logged if that may not fit.
    """
    num_ranks = machine.ranks.size
    if max_tokens is not None:
        return BatchCut(max_tokens, num_ranks, limited_by="option")
    processes = worker.local_size if worker is not None else 1
    # Muon has fewer moments than Adam, but needs memory for the updates of a step.
    state = 4 * BYTES_OF_FP32 * count_parameters(recipe.model, vocabulary_size).total
    limit = recipe.training.tokens_per_step
    if machine.device.type == "cuda":
        left = int(torch.cuda.mem_get_info(machine.device)[0] * SHARE_OF_GPU_MEMORY) - state
    else:
        left = int((memory.allowed_memory() / processes - state) * SHARE_OF_CPU_MEMORY)
        limit = min(limit, MAX_TOKENS_ON_CPU)
    fitting = max(0, min(limit, left // activation_bytes_per_token(recipe.model, MAX_KEYS)))
    if fitting < longest and machine.device.type == "cpu":  # on a GPU a probe finds what fits
        share = f", shared by {processes} processes" if processes > 1 else ""
        fewer = ", fewer --devices" if processes > 1 else ""
        logs.warning(
            f"{memory.allowed_memory() / GIBIBYTE:.1f} GiB of memory are allowed{share}. Weights, "
            f"gradient and Adam's moments take {state / GIBIBYTE:.1f} GiB of each, which leaves "
            f"room for micro-batches of about {counted(fitting, 'token')} a side; {longest:,} are "
            "used, the longest sentence. If the system ends training, choose a smaller "
            f"model{fewer} or a lower data.max_length."
        )
    return BatchCut(max(fitting, longest), num_ranks)


def cut_as_before(cut: BatchCut, manifest: Mapping[str, Any], num_ranks: int) -> BatchCut:
    """Return the cut of the checkpoint with this ``manifest``, as far as it suits this machine.

    The number of micro-batches must be a multiple of ``num_ranks``.
    """
    before = manifest["micro_batches_multiple_of"]
    multiple_of = before if before % num_ranks == 0 else num_ranks
    return _limit_as_before(cut, manifest)._replace(multiple_of=multiple_of)


def _limit_as_before(cut: BatchCut, manifest: Mapping[str, Any]) -> BatchCut:
    """Return ``cut`` with the limit of the checkpoint with this ``manifest``, if it is kept.

    It is kept if it was an estimate and is about what fits here, unless the user chose a limit.
    """
    before = manifest["max_tokens_per_device"]
    is_similar = SHARE_TO_KEEP * cut.max_tokens <= before <= cut.max_tokens
    was_estimated = manifest["micro_batches_limited_by"] == "estimate"
    if is_similar and was_estimated and not cut.is_limit_chosen:
        return cut._replace(max_tokens=before)
    return cut


def report_other_limit(cut: BatchCut, manifest: Mapping[str, Any]) -> None:
    """Log one line if the limit of ``cut`` is not that of the checkpoint with this ``manifest``."""
    before = manifest["max_tokens_per_device"]
    if before != cut.max_tokens:
        logs.info(
            f"Micro-batches have at most {cut.max_tokens:,} tokens a side ({WHY[cut.limited_by]}), "
            f"before {before:,} ({WHY[manifest['micro_batches_limited_by']]}). The sentences of "
            "each step stay the same; rounding and the draws of dropout may not."
        )


def fit_to_memory(
    cut: BatchCut,
    state: TrainingState,
    engine: GradientEngine,
    corpus: PreparedCorpus,
    tokens_per_step: int | None,
    before: Mapping[str, Any] | None = None,
) -> BatchCut:
    """Return ``cut``, lowered until its micro-batches fit the memory of every rank.

    On a GPU they are halved until the gradient of the largest ones can be computed, of those that a
    rank gets of steps of ``tokens_per_step``, if steps have a limit. On a CPU there is no probe,
    because the kernel kills a process that takes too much; the estimate is used as it is.
    ``before`` is the manifest of the checkpoint that the run continues from: its limit is used
    again if it is about the one found here, and one line reports any other. Raises UserError if a
    single sentence pair does not fit, or micro-batches of the ``--max-tokens-per-device`` that the
    user chose.
    """
    longest, machine = corpus.longest, engine.machine
    if before is not None:
        cut = cut_as_before(cut, before, machine.ranks.size)
    fitting = cut.max_tokens
    is_too_low = cut.is_limit_chosen and cut.max_tokens < longest  # refused later, on any device
    if machine.device.type == "cuda" and not is_too_low:

        def attempt(max_tokens: int) -> None:
            if tokens_per_step is not None:
                # The parts of a step have equal costs, except for the pairs on their borders.
                max_tokens = min(max_tokens, -(-tokens_per_step // cut.multiple_of) + longest)
            for pairs in largest_micro_batches(corpus.source, corpus.target, max_tokens):
                try_micro_batch(pairs, state, engine)

        fitting = memory.largest_that_runs(cut.max_tokens, longest, attempt)
    fitting = min(machine.ranks.gather(fitting))
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
    cut = cut._replace(max_tokens=fitting)
    if before is not None:
        cut = _limit_as_before(cut, before)
        report_other_limit(cut, before)
    return cut


def try_micro_batch(pairs: SentencePairs, state: TrainingState, engine: GradientEngine) -> None:
    """Compute and discard the gradient of a micro-batch, beside what later steps allocate.

    Raises an error of a full memory if it does not fit.
    """
    if engine.guidance is not None:  # the weights of the head need memory, too
        pairs = pairs.with_some_links()
    state.model.train()
    reserved = memory_to_reserve(state, engine.machine)
    engine.try_gradient(engine.on_device(pairs))
    if engine.graphed is not None:
        # The first micro-batch of another shape is computed beside the memory of this graph.
        eager = engine._replace(graphed=None)
        eager.try_gradient(eager.on_device(pairs))
    engine.forget_graphs()  # those of steps have other padded shapes
    del reserved


def largest_micro_batches(
    source: BinarizedText, target: BinarizedText, max_tokens: int
) -> Iterator[SentencePairs]:
    """Yield the micro-batches that need the most memory.

    The pairs with the longest longer side need the most for attention, those that are long on both
    sides for everything else, because only they fill both sides of a micro-batch.
    """
    sides = (source.lengths, target.lengths)
    for key in (np.maximum, np.minimum):
        pairs = largest_pairs(sides, key, max_tokens)
        ends = [np.cumsum(lengths[pairs], dtype=np.int64) for lengths in sides]
        count = min(int(end.searchsorted(max_tokens, side="right")) for end in ends)
        pairs = pairs[: max(1, count)]
        yield SentencePairs(source.gather(pairs), target.gather(pairs))


def largest_pairs(sides: tuple[Lengths, Lengths], key: np.ufunc, number: int) -> Indices:
    """Return the ``number`` pairs with the largest ``key(source, target)``, the largest first.

    Of equal ones, the last in the corpus come first. The corpus is read in parts, and not sorted.
    """
    largest, values = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for start in range(0, len(sides[0]), PAIRS_AT_ONCE):
        part = key(*(side[start : start + PAIRS_AT_ONCE] for side in sides))
        new = np.flatnonzero(part >= (values.min() if len(values) == number else 0))
        largest, values = np.append(largest, start + new), np.append(values, part[new])
        kept = np.sort(np.argsort(values, kind="stable")[-number:])  # in the order of the corpus
        largest, values = largest[kept], values[kept]
    return largest[np.argsort(values, kind="stable")[::-1]]


def memory_to_reserve(state: TrainingState, machine: Machine) -> list[torch.Tensor]:
    """Return tensors as large as what a probe must leave free.

    That is what steps allocate later (the optimizer's moments, the trained weights while their
    average is validated), and on a GPU the headroom.
    """
    room = []
    for parameter in state.model.parameters():
        moments = () if state.optimizer.state else state.optimizer.moments_of(parameter)
        copies = len(moments) + (state.average is not None)
        room += [torch.empty_like(parameter) for _ in range(copies)]
    if machine.device.type == "cuda":
        spare = int(HEADROOM * torch.cuda.mem_get_info(machine.device)[1])
        room.append(torch.empty(spare, dtype=torch.uint8, device=machine.device))
    return room


def own_pairs(batch: Batch, ranks: Ranks) -> Iterator[SentencePairs]:
    """Yield the micro-batches of a ``batch`` that was cut which this rank computes."""
    yield from (pairs for _, pairs in ranks.own(batch.micro_batches))


def ready_ahead(
    batch: Batch, cut: BatchCut, engine: GradientEngine, sender: Sender | None
) -> Batch:
    """Return ``batch``, cut by ``cut``, with what this rank computes read or on its way to a GPU.

    Another cut reads or sends it again. So does the trainer if the GPU's memory is full now: it can
    cut the batch smaller.
    """
    smaller = cut.of(batch)
    if sender is None:
        for pairs in own_pairs(smaller, engine.machine.ranks):
            for column in pairs.columns:
                _ = column.tokens
    else:
        with suppress(memory.FullMemoryError), memory.noticing_full_memory():
            smaller = engine.sent_ahead(smaller, sender)
    return batch._replace(cut_ahead=CutAhead(cut.max_tokens, cut.multiple_of, smaller))


def computed_within_memory(
    batch: Batch,
    cut: BatchCut,
    compute: Callable[[Batch], Result],
    is_shared: Callable[[memory.FullMemoryError], bool] = lambda error: True,
) -> tuple[Result, BatchCut]:
    """Return ``compute(batch)`` of the batch cut by ``cut``, or smaller while memory is full.

    The second result is ``cut``, or the one with which the batch fitted. It is cut smaller only if
    ``is_shared(error)``: then every rank that computes this batch has failed in the same way and
    cuts it too. Raises FullMemoryError if a single pair does not fit.
    """
    while True:
        smaller = cut.of(batch)
        try:
            with memory.noticing_full_memory():
                return compute(smaller), cut
        except memory.FullMemoryError as error:
            if not is_shared(error) or smaller.largest_side <= batch.longest:
                raise
            memory.give_up_memory_of(error)
        max_tokens = max(batch.longest, smaller.largest_side // 2)
        cut = cut._replace(max_tokens=max_tokens, limited_by="full memory")


def gradient_within_memory(
    batch: Batch, cut: BatchCut, compute: Callable[[Batch], object], longest: int, num_ranks: int
) -> BatchCut:
    """Compute the gradient of ``batch`` by ``compute``; return the cut for the batches to come.

    If memory is full, all ranks cut the batch in the same way and try again. Later batches are then
    cut to this size from the start, but never below the ``longest`` sentence, unless the user chose
    the limit. Raises FullMemoryError on all ranks if single sentence pairs do not fit.
    """
    _, fitting = computed_within_memory(
        batch, cut, compute, lambda error: error.on_all_ranks or num_ranks == 1
    )
    if fitting is cut:
        return cut
    text = (
        f"batch {batch.number:,} ran out of memory with micro-batches of "
        f"{cut.of(batch).largest_side:,} tokens a side and was computed with "
        f"{fitting.of(batch).largest_side:,}"
    )
    if cut.is_limit_chosen:
        logs.warning(f"{text}; --max-tokens-per-device stays {cut.max_tokens:,}.")
        return cut
    fitting = fitting._replace(max_tokens=max(fitting.max_tokens, longest))
    logs.warning(f"{text}; later batches are computed with at most {fitting.max_tokens:,}.")
    return fitting
