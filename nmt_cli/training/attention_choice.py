"""How a GPU computes attention in training: the faster of two ways on batches of this corpus.

Varlen attention takes sentences as they are, but its kernel works on tiles of 128 rows, which short
sentences leave nearly empty. Padded groups of sentences of similar length have to be gathered.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.hardware.device import DTYPES, finish_work, sent_together
from nmt_cli.hardware.machine import Attention, Machine
from nmt_cli.hardware.memory import largest_that_runs
from nmt_cli.messages import logs
from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient import Objective

NAMES: dict[Attention, str] = {"varlen": "varlen attention", "padded": "padded groups"}
NUM_BATCHES = 3  # that are timed, a micro-batch of each
TURNS = 4  # of both ways; the first is not timed, because libraries load kernels in it


def choose_attention(
    objective: Objective,
    corpus: PreparedCorpus,
    plan: BatchPlan,
    first_index: int,
    cut: BatchCut,
    before: Mapping[str, Any] | None = None,
) -> Machine:
    """Return the machine of ``objective`` with the way in which a GPU computes attention.

    It is that of the checkpoint with the facts ``before``, if they name one. Otherwise it is the
    faster one for the batches from ``first_index`` on, cut by ``cut`` or smaller; one line reports
    it. With ``--deterministic`` nothing is measured, because two runs may find different ways
    faster: it is varlen where the model and the GPU suit it. On a CPU there is no choice.
    """
    machine = objective.machine
    if machine.device.type != "cuda":
        return machine
    objective.model.train()
    if not all(machine.ranks.gather(_supports_varlen(objective))):
        return machine._replace(attention="padded")
    kept: Attention | None = (before or {}).get("attention")
    if kept is None and machine.is_deterministic:
        kept = "varlen"
    if kept is None:
        batches = list(_first_batches(corpus, plan, first_index))
        kept = _faster(objective, batches, cut, corpus.longest)
    return machine._replace(attention=kept)


def _supports_varlen(objective: Objective) -> bool:
    device, dtype = objective.machine.device, DTYPES[objective.machine.precision]
    return any(
        module.supports_varlen(device, dtype)
        for module in objective.model.modules()
        if isinstance(module, MultiHeadAttention)
    )


def _first_batches(corpus: PreparedCorpus, plan: BatchPlan, first_index: int) -> Iterator[Batch]:
    for index in range(first_index, first_index + NUM_BATCHES):
        numbers = plan.batch(index)
        sides = (side.gather(numbers) for side in (corpus.source, corpus.target))
        yield Batch(index, (SentencePairs(*sides),))


def _faster(
    objective: Objective, batches: Sequence[Batch], cut: BatchCut, longest: int
) -> Attention:
    """Return the way that is faster on the rank where it is slowest; varlen if no memory is left.

    A rank whose memory is full times smaller micro-batches.
    """
    seconds = dict.fromkeys(NAMES, math.inf)

    def attempt(max_tokens: int) -> None:
        smaller = [cut._replace(max_tokens=max_tokens).of(batch) for batch in batches]
        # A batch may have fewer pairs than micro-batches.
        pairs = [max(each.micro_batches, key=lambda p: len(p.target.tokens)) for each in smaller]
        seconds.update(_seconds(objective, pairs))

    largest_that_runs(cut.max_tokens, longest, attempt)
    of_ranks = objective.machine.ranks.gather(seconds)
    slowest = {way: max(each[way] for each in of_ranks) for way in NAMES}
    faster, slower = sorted(NAMES, key=lambda way: slowest[way])  # varlen comes first if equal
    if math.isfinite(slowest[faster]):
        logs.info(
            f"Attention is computed by {NAMES[faster]}: the gradient of a micro-batch of this text "
            f"takes {1_000 * slowest[faster]:.1f} ms, by {NAMES[slower]} "
            f"{1_000 * slowest[slower]:.1f} ms."
        )
    return faster


def _seconds(objective: Objective, pairs: Sequence[SentencePairs]) -> dict[Attention, float]:
    """Return the mean seconds of a gradient of one of the micro-batches ``pairs``, by each way."""
    machine = objective.machine
    objectives = {way: objective._replace(machine=machine._replace(attention=way)) for way in NAMES}
    tensors = {
        way: [sent_together(machine.device, each.on_cpu(part)) for part in pairs]
        for way, each in objectives.items()
    }
    seconds = dict.fromkeys(NAMES, 0.0)
    for turn in range(TURNS):
        for way in NAMES:
            finish_work(machine.device)
            started = perf_counter()
            for micro_batch in tensors[way]:
                objective.try_gradient(micro_batch)
                objective.model.zero_grad(set_to_none=True)
            finish_work(machine.device)
            if turn > 0:
                seconds[way] += perf_counter() - started
    return {way: total / (TURNS - 1) / len(pairs) for way, total in seconds.items()}
