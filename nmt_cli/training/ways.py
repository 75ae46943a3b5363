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
from nmt_cli.hardware.device import DTYPES, finish_work, sent_together
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import largest_that_runs
from nmt_cli.messages import logs
from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient import Objective

NUM_BATCHES = 3  # that are timed, a micro-batch of each
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
            if other != way
        )
        return (
            f"{self.sentence} {self.ways[way]}: the gradient of a micro-batch of this text takes "
            f"{1_000 * seconds[way]:.1f} ms{others}."
        )


def _suits_attention(objective: Objective, way: str) -> bool:
    device, dtype = objective.machine.device, DTYPES[objective.machine.precision]
    return way == "padded" or any(
        module.supports_varlen(device, dtype)
        for module in objective.model.modules()
        if isinstance(module, MultiHeadAttention)
    )


# Each is made with those before it as they were chosen, and those after it unset.
CHOICES = (
    Choice(
        "attention",
        "Attention is computed",
        {"varlen": "by varlen attention", "padded": "by padded groups"},
        _suits_attention,
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
    ways faster: it is the first way that suits the model and the GPU. A CPU has no choice.
    """
    machine = objective.machine
    if machine.device.type != "cuda":
        return machine
    objective.model.train()
    batches = list[Batch]()
    for choice in CHOICES:
        suited = suited_ways(objective, choice)
        way = (before or {}).get(choice.name)
        if way not in suited:
            way = suited[0]
            if len(suited) > 1 and not machine.is_deterministic:
                batches = batches or list(_first_batches(corpus, plan, first_index))
                way = _fastest(objective, choice, suited, batches, cut, corpus.longest)
        objective = computing(objective, choice, way)
    return objective.machine


def suited_ways(objective: Objective, choice: Choice) -> list[str]:
    """Return the ways of ``choice`` that suit the model and the devices of all ranks."""
    found = [way for way in choice.ways if choice.suits(objective, way)]
    of_ranks = objective.machine.ranks.gather(found)
    return [way for way in found if all(way in each for each in of_ranks)]


def computing(objective: Objective, choice: Choice, way: str) -> Objective:
    """Return ``objective`` on a machine that computes in this way."""
    choice.use(objective, way)
    changed: dict[str, Any] = {choice.name: way}
    return objective._replace(machine=objective.machine._replace(**changed))


def _first_batches(corpus: PreparedCorpus, plan: BatchPlan, first_index: int) -> Iterator[Batch]:
    for index in range(first_index, first_index + NUM_BATCHES):
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
    """Return the mean seconds of a gradient of one of the micro-batches ``pairs``, by each way."""
    device = objective.machine.device
    seconds = dict.fromkeys(ways, 0.0)
    objectives = {way: computing(objective, choice, way) for way in ways}
    tensors = {
        way: [sent_together(device, each.on_cpu(part)) for part in pairs]
        for way, each in objectives.items()
    }
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
    return {way: total / (TURNS - 1) / len(pairs) for way, total in seconds.items()}
