"""Chooses what computes gradients on a GPU: our kernels in Triton or torch's, whichever is faster.

Our kernels are first tried: they must compute what torch computes, within rounding.
"""

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, get_args

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.hardware.device import finish_work
from nmt_cli.hardware.machine_options import Kernels
from nmt_cli.hardware.memory import largest_that_runs
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model.triton_support import failure_of_kernel, has_triton
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.kernel_trials import worst_result

NUM_BATCHES = 3  # that are timed, a micro-batch of each
TURNS = 4  # of each; the first is not timed, because libraries load kernels in it
WORDS: Mapping[Kernels, str] = {"ours": "our kernels in Triton", "torch": "torch's kernels"}


def choose_kernels(
    engine: GradientEngine,
    corpus: PreparedCorpus,
    plan: BatchPlan,
    first_index: int,
    cut: BatchCut,
    before: Mapping[str, Any] | None = None,
) -> GradientEngine:
    """Return ``engine`` with the kernels of a GPU, and with CUDA graphs; on a CPU as it is.

    They are those of ``--kernels``, else with ``--deterministic`` torch's, else those of the
    checkpoint with the manifest ``before``, else the faster ones for the batches from
    ``first_index`` on, cut by ``cut`` or smaller. Ours are not taken where a trial shows that they
    fail or compute something else on any rank; there, ``--kernels ours`` raises UserError.
    """
    machine, kept = engine.machine, (before or {}).get("kernels")
    if machine.device.type != "cuda":
        if machine.kernels is not None:
            raise UserError(f"--kernels is for GPUs, the device is {machine.device}; leave it out.")
        return engine
    engine.model.train()
    wanted = machine.kernels or ("torch" if machine.is_deterministic else kept)
    if wanted not in get_args(Kernels):
        wanted = None
    if before is not None and kept is None and "attention" in before:
        logs.info("The checkpoint names kernels for each part of the gradient: one choice is made.")
    if wanted != "torch" and (why := _why_not_ours(engine)) is not None:
        if machine.kernels == "ours":
            raise UserError(f"--kernels ours cannot be used: {why}; leave --kernels out.")
        log = logs.warning if has_triton(machine.device) else logs.info
        log(f"Gradients are computed by {WORDS['torch']}: {why}.")
        wanted = "torch"
    if wanted is None:
        batches = list(_first_batches(corpus, plan, first_index))
        wanted = _faster(engine, batches, cut, corpus.longest)
    return engine.with_kernels(wanted)


def _why_not_ours(engine: GradientEngine) -> str | None:
    """Return why our kernels cannot be used on one of the ranks; None if they can."""
    why: str | None = "ours need the package triton and a GPU of compute capability 8.0 or later"
    if has_triton(engine.machine.device):
        why = _trial(engine)
    return next((each for each in engine.machine.ranks.gather(why) if each is not None), None)


def _trial(engine: GradientEngine) -> str | None:
    """Return why our kernels cannot be used; None if they can. One line says how exact they are.

    They are compiled for all sizes of tiles here, so that no later sentence can make them fail.
    """
    try:
        worst = worst_result(engine)
    except Exception as error:  # of Triton, its compilers, the driver
        return failure_of_kernel(error)
    if not worst.multiple <= 1.0:
        return worst.text
    logs.info(
        f"Our kernels in Triton were tried: the largest of their errors is {worst.multiple:.0%} of "
        f"what is allowed ({worst.text})."
    )
    return None


def _first_batches(corpus: PreparedCorpus, plan: BatchPlan, first_index: int) -> Iterator[Batch]:
    # Not those of the next epoch: this one would have to be planned again.
    of_epoch = plan.batches_of(plan.locate(first_index)[0])
    for index in range(first_index, min(first_index + NUM_BATCHES, of_epoch.stop)):
        numbers = plan.batch(index)
        sides = (side.gather(numbers) for side in (corpus.source, corpus.target))
        yield Batch(index, (SentencePairs(*sides),))


def _faster(
    engine: GradientEngine, batches: Sequence[Batch], cut: BatchCut, longest: int
) -> Kernels:
    """Return the kernels that are faster on the rank where they are slower; a line reports both.

    A rank whose memory is full times smaller micro-batches; without any memory, torch's are taken.
    """
    seconds = dict[Kernels, float]()

    def attempt(max_tokens: int) -> None:
        smaller = [cut._replace(max_tokens=max_tokens).of(batch) for batch in batches]
        # A batch may have fewer pairs than micro-batches.
        pairs = [max(each.micro_batches, key=lambda p: len(p.target.tokens)) for each in smaller]
        seconds.update(_seconds_of_gradient(engine, pairs))

    largest_that_runs(cut.max_tokens, longest, attempt)
    of_ranks = engine.machine.ranks.gather(seconds)
    if not all(of_ranks):
        return "torch"
    slowest = {kernels: max(each[kernels] for each in of_ranks) for kernels in seconds}
    fastest = min(slowest, key=slowest.__getitem__)
    (slower,) = slowest.keys() - {fastest}
    logs.info(
        f"Gradients are computed by {WORDS[fastest]}: the gradient of a micro-batch of this text "
        f"takes {1_000 * slowest[fastest]:.1f} ms, by {WORDS[slower]} "
        f"{1_000 * slowest[slower]:.1f} ms."
    )
    return fastest


def _seconds_of_gradient(
    engine: GradientEngine, pairs: Sequence[SentencePairs]
) -> dict[Kernels, float]:
    """Return the mean seconds of a gradient of one of the micro-batches ``pairs``, by each."""
    seconds = dict[Kernels, float]()
    for kernels in WORDS:
        timed, ends = engine.with_kernels(kernels), list[float]()
        tensors = [timed.on_device(micro_batch) for micro_batch in pairs]
        for _ in range(TURNS):
            for micro_batch in tensors:
                timed.try_gradient(micro_batch)
            finish_work(engine.machine.device)
            ends.append(perf_counter())
        seconds[kernels] = (ends[-1] - ends[0]) / (TURNS - 1) / len(pairs)
        timed.forget_graphs()
    return seconds
