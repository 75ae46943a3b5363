"""How a GPU computes the parts of a gradient in training: the fastest ways on this corpus.

Varlen attention takes sentences as they are, but its kernel works on tiles of 128 rows, which short
sentences leave nearly empty. Padded groups of sentences of similar length have to be gathered.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.hardware.device import DTYPES, finish_work
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import largest_that_runs
from nmt_cli.messages import logs
from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.kernels import Part, has_triton, suits_kernels, use_kernels
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient import Objective
from nmt_cli.training.kernel_trials import pairs_to_try, wrong_result

NUM_BATCHES = 3  # that are timed, a micro-batch of each
TRITON, BY_TRITON = "triton", "by our kernels in Triton"
TURNS = 4  # of all ways; the first is not timed, because libraries load kernels in it


class Choice(NamedTuple):
    """A part of the gradient that a GPU can compute in several ways."""

    name: str  # the field of Machine that holds the way, and the fact of checkpoints
    sentence: str  # that the words of a way complete
    ways: Mapping[str, str]  # the words of each way; the first that suits is taken unmeasured
    suits: Callable[[Objective, str], bool]  # whether this model and device can compute in a way
    # Makes the model compute in a way, if its modules have to be changed for that.
    use: Callable[[Objective, str], None] = lambda objective, way: None

    def words(self, way: str, seconds: Mapping[str, float]) -> str:
        """Return the line that reports that ``way`` was the fastest."""
        others = "".join(
            f", {self.ways[other]} {1_000 * seconds[other]:.1f} ms"
            for other in seconds
            if other != way and math.isfinite(seconds[other])
        )
        return (
            f"{self.sentence} {self.ways[way]}: the gradient of a micro-batch of this text takes "
            f"{1_000 * seconds[way]:.1f} ms{others}."
        )


def _supporting_varlen(objective: Objective) -> Iterator[bool]:
    device, dtype = objective.machine.device, DTYPES[objective.machine.precision]
    for module in objective.model.modules():
        if isinstance(module, MultiHeadAttention):
            yield module.supports_varlen(device, dtype)


def _suits_attention(objective: Objective, way: str) -> bool:
    if way == TRITON:
        return has_triton(objective.machine.device) and suits_kernels(objective.model, "attention")
    return way == "padded" or any(_supporting_varlen(objective))


def _suits_launches(objective: Objective, way: str) -> bool:
    if way == "single":
        return True
    # Each batch has other padded groups, and the weight of a guided head changes.
    attention = objective.machine.attention
    is_packed = attention == TRITON or (
        attention != "padded" and all(_supporting_varlen(objective))
    )
    return is_packed and objective.guidance is None


LAUNCHES = Choice(
    "launches",
    "Kernels are launched",
    {"graph": "by one CUDA graph for a micro-batch", "single": "one by one"},
    _suits_launches,
)


def _by_kernels(part: Part, sentence: str) -> Choice:
    """Return the choice between torch and our kernels for a ``part`` of the model."""

    def suits(objective: Objective, way: str) -> bool:
        # torch.compile replaces the same function of residuals as the kernels.
        is_free = not (part == "residuals" and objective.machine.is_compiled)
        has_kernels = is_free and has_triton(objective.machine.device)
        return way == "torch" or (has_kernels and suits_kernels(objective.model, part))

    def use(objective: Objective, way: str) -> None:
        use_kernels(objective.model, part, used=way == TRITON)

    return Choice(part, sentence, {"torch": "by torch", TRITON: BY_TRITON}, suits, use)


# Each is made with those before it as they were chosen, in CUDA graphs if that is possible. Those
# after it are unset.
CHOICES = (
    Choice(
        "attention",
        "Attention is computed",
        {"varlen": "by varlen attention", "padded": "by padded groups", TRITON: BY_TRITON},
        _suits_attention,
        lambda objective, way: use_kernels(objective.model, "attention", used=way == TRITON),
    ),
    LAUNCHES,
    _by_kernels("residuals", "Residual sums and norms are computed"),
    _by_kernels("activation", "The gradients of ReLU are computed"),
    Choice(
        "loss",
        "The losses are computed",
        {"torch": "by torch", TRITON: BY_TRITON},
        lambda objective, way: way == "torch" or has_triton(objective.machine.device),
    ),
)


def choose_ways(
    objective: Objective,
    corpus: PreparedCorpus,
    plan: BatchPlan,
    first_index: int,
    cut: BatchCut,
    before: Mapping[str, Any] | None = None,
) -> Machine:
    """Return the machine of ``objective`` with the ways in which a GPU computes, of ``CHOICES``.

    They are those of the checkpoint with the facts ``before``, if it names them. Otherwise they are
    the fastest ones for the batches from ``first_index`` on, cut by ``cut`` or smaller; a line
    reports each. With ``--deterministic`` nothing is measured, because two runs may find different
    ways faster: it is the first way that suits the model and the GPU. A CPU has no choice. A way
    whose kernels fail, or compute something else, is named and not taken.
    """
    machine = objective.machine
    if machine.device.type != "cuda":
        return machine
    objective.model.train()
    objective = computing(objective, LAUNCHES, "graph")
    batches = list[Batch]()
    for choice in CHOICES:
        suited = suited_ways(objective, choice)
        kept = (before or {}).get(choice.name)
        if kept not in suited:
            kept = suited[0] if machine.is_deterministic else None
        working = working_ways(objective, choice, suited if kept is None else [kept])
        way = (working or suited)[0]
        if len(working) > 1:
            batches = batches or list(_first_batches(corpus, plan, first_index))
            way = _fastest(objective, choice, working, batches, cut, corpus.longest)
        objective = computing(objective, choice, way)
    return objective.machine


def suited_ways(objective: Objective, choice: Choice) -> list[str]:
    """Return the ways of ``choice`` that suit the model and the devices of all ranks."""
    found = [way for way in choice.ways if choice.suits(objective, way)]
    of_ranks = objective.machine.ranks.gather(found)
    return [way for way in found if all(way in each for each in of_ranks)]


def working_ways(objective: Objective, choice: Choice, ways: Sequence[str]) -> list[str]:
    """Return those of ``ways`` that compute the right results and gradients on all ranks.

    Only our own kernels are tried; one line says why they are not used.
    """
    why = _why_not(objective, choice) if TRITON in ways else None
    of_ranks = [each for each in objective.machine.ranks.gather(why) if each is not None]
    if not of_ranks:
        return list(ways)
    first = next(way for way in choice.ways if choice.suits(objective, way))
    logs.warning(f"{choice.sentence} {choice.ways[first]}, not {BY_TRITON}: {of_ranks[0]}.")
    return [way for way in ways if way != TRITON]


def _why_not(objective: Objective, choice: Choice) -> str | None:
    """Return why our kernels cannot be used for ``choice``; None if they can.

    They are compiled for all sizes of tiles here, so that no later sentence can make them fail.
    """
    first = next(way for way in choice.ways if choice.suits(objective, way))
    try:
        by_kernels = computing(objective, choice, TRITON)
        for each in pairs_to_try(objective):
            by_kernels.try_gradient(by_kernels.on_device(each))
        by_kernels.forget_graphs()
        return wrong_result(by_kernels, choice.name)
    except Exception as error:  # of Triton, its compilers, the driver
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        objective.model.zero_grad(set_to_none=True)
        choice.use(objective, first)


def computing(objective: Objective, choice: Choice, way: str) -> Objective:
    """Return ``objective`` on a machine that computes in this way, with CUDA graphs of its own."""
    choice.use(objective, way)
    changed: dict[str, Any] = {choice.name: way}
    objective = objective._replace(machine=objective.machine._replace(**changed))
    if objective.machine.launches == "graph" and not _suits_launches(objective, "graph"):
        objective = objective._replace(machine=objective.machine._replace(launches="single"))
    return objective.with_graphs()


def _first_batches(corpus: PreparedCorpus, plan: BatchPlan, first_index: int) -> Iterator[Batch]:
    # Not those of the next epoch: this one would have to be planned again.
    of_epoch = plan.batches_of(plan.locate(first_index)[0])
    for index in range(first_index, min(first_index + NUM_BATCHES, of_epoch.stop)):
        numbers = plan.batch(index)
        sides = (side.gather(numbers) for side in (corpus.source, corpus.target))
        yield Batch(index, (SentencePairs(*sides),))


def _fastest(
    objective: Objective,
    choice: Choice,
    ways: Sequence[str],
    batches: Sequence[Batch],
    cut: BatchCut,
    longest: int,
) -> str:
    """Return the way that is fastest on the rank where it is slowest.

    A rank whose memory is full times smaller micro-batches; without any memory, it is the first.
    """
    seconds = dict.fromkeys(ways, math.inf)

    def attempt(max_tokens: int) -> None:
        smaller = [cut._replace(max_tokens=max_tokens).of(batch) for batch in batches]
        # A batch may have fewer pairs than micro-batches.
        pairs = [max(each.micro_batches, key=lambda p: len(p.target.tokens)) for each in smaller]
        seconds.update(seconds_of_gradient(objective, choice, ways, pairs))

    largest_that_runs(cut.max_tokens, longest, attempt)
    of_ranks = objective.machine.ranks.gather(seconds)
    slowest = {way: max(each[way] for each in of_ranks) for way in ways}
    fastest = min(ways, key=lambda way: slowest[way])  # the first one if equal
    if math.isfinite(slowest[fastest]):
        logs.info(choice.words(fastest, slowest))
    return fastest


def seconds_of_gradient(
    objective: Objective, choice: Choice, ways: Sequence[str], pairs: Sequence[SentencePairs]
) -> dict[str, float]:
    """Return the mean seconds of a gradient of one of the micro-batches ``pairs``, by each way.

    Graphs that cannot be recorded take infinitely long.
    """
    device = objective.machine.device
    seconds = dict.fromkeys(ways, 0.0)
    objectives = {way: computing(objective, choice, way) for way in ways}
    tensors = {way: [each.on_device(part) for part in pairs] for way, each in objectives.items()}
    for turn in range(TURNS):
        for way in ways:
            choice.use(objective, way)
            finish_work(device)
            started = perf_counter()
            for micro_batch in tensors[way]:
                objectives[way].try_gradient(micro_batch)
                objective.model.zero_grad(set_to_none=True)
            finish_work(device)
            if turn > 0:
                seconds[way] += perf_counter() - started
    for way, each in objectives.items():
        if choice is LAUNCHES and each.graphed is not None and each.graphed.cannot_record:
            seconds[way] = math.inf
        each.forget_graphs()
    return {way: total / (TURNS - 1) / len(pairs) for way, total in seconds.items()}
