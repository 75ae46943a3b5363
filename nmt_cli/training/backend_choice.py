"""Chooses the backends of the parts of a gradient on a GPU: the fastest ones on this corpus.

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
from nmt_cli.hardware.memory import largest_that_runs
from nmt_cli.messages import logs
from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.triton_support import Part, has_triton, suits_kernels, use_kernels
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.backends import Backends
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.kernel_trials import pairs_to_try, wrong_result

NUM_BATCHES = 3  # that are timed, a micro-batch of each
TRITON, BY_TRITON = "triton", "by our kernels in Triton"
TURNS = 4  # of all backends; the first is not timed, because libraries load kernels in it


class GradientPart(NamedTuple):
    """A part of the gradient that a GPU can compute by several backends."""

    name: str  # the field of Backends, and the key in the manifests of checkpoints
    sentence: str  # that the words of a backend complete
    backends: Mapping[str, str]  # the words of each; the first that suits is taken unmeasured
    suits: Callable[[GradientEngine, str], bool]  # whether this model and device can use a backend
    # Makes the model compute by a backend, if its modules have to be changed for that.
    use: Callable[[GradientEngine, str], None] = lambda engine, backend: None

    def words(self, backend: str, seconds: Mapping[str, float]) -> str:
        """Return the line that reports that ``backend`` was the fastest."""
        others = "".join(
            f", {self.backends[other]} {1_000 * seconds[other]:.1f} ms"
            for other in seconds
            if other != backend and math.isfinite(seconds[other])
        )
        return (
            f"{self.sentence} {self.backends[backend]}: the gradient of a micro-batch of this text "
            f"takes {1_000 * seconds[backend]:.1f} ms{others}."
        )


def _supporting_varlen(engine: GradientEngine) -> Iterator[bool]:
    device, dtype = engine.machine.device, DTYPES[engine.machine.precision]
    for module in engine.model.modules():
        if isinstance(module, MultiHeadAttention):
            yield module.supports_varlen(device, dtype)


def _suits_attention(engine: GradientEngine, backend: str) -> bool:
    if backend == TRITON:
        return has_triton(engine.machine.device) and suits_kernels(engine.model, "attention")
    return backend == "padded" or any(_supporting_varlen(engine))


def _suits_launches(engine: GradientEngine, backend: str) -> bool:
    if backend == "single":
        return True
    # Each batch has other padded groups, and the weight of a guided head changes.
    attention = engine.backends.attention
    is_packed = attention == TRITON or (attention != "padded" and all(_supporting_varlen(engine)))
    return is_packed and engine.guidance is None


LAUNCHES = GradientPart(
    "launches",
    "Kernels are launched",
    {"graph": "by one CUDA graph for a micro-batch", "single": "one by one"},
    _suits_launches,
)


def _by_kernels(part: Part, sentence: str) -> GradientPart:
    """Return a ``part`` of the model that torch or our kernels compute."""

    def suits(engine: GradientEngine, backend: str) -> bool:
        # torch.compile replaces the same function of residuals as the kernels.
        is_free = not (part == "residuals" and engine.machine.is_compiled)
        has_kernels = is_free and has_triton(engine.machine.device)
        return backend == "torch" or (has_kernels and suits_kernels(engine.model, part))

    def use(engine: GradientEngine, backend: str) -> None:
        use_kernels(engine.model, part, used=backend == TRITON)

    return GradientPart(part, sentence, {"torch": "by torch", TRITON: BY_TRITON}, suits, use)


# The backend of each is chosen with those before it as they were chosen, in CUDA graphs if that is
# possible. Those after it are unset.
PARTS = (
    GradientPart(
        "attention",
        "Attention is computed",
        {"varlen": "by varlen attention", "padded": "by padded groups", TRITON: BY_TRITON},
        _suits_attention,
        lambda engine, backend: use_kernels(engine.model, "attention", used=backend == TRITON),
    ),
    LAUNCHES,
    _by_kernels("residuals", "Residual sums and norms are computed"),
    _by_kernels("activation", "The gradients of ReLU are computed"),
    GradientPart(
        "loss",
        "The losses are computed",
        {"torch": "by torch", TRITON: BY_TRITON},
        lambda engine, backend: backend == "torch" or has_triton(engine.machine.device),
    ),
)


def choose_backends(
    engine: GradientEngine,
    corpus: PreparedCorpus,
    plan: BatchPlan,
    first_index: int,
    cut: BatchCut,
    before: Mapping[str, Any] | None = None,
) -> Backends:
    """Return the backends with which a GPU computes ``PARTS``; a CPU uses none.

    They are those of the checkpoint with the manifest ``before``, if it names them. Otherwise they
    are the fastest ones for the batches from ``first_index`` on, cut by ``cut`` or smaller; a line
    reports each. With ``--deterministic`` nothing is measured, because two runs may find different
    ones faster: it is the first that suits the model and the GPU. A backend whose kernels fail, or
    compute something else, is named and not taken.
    """
    machine = engine.machine
    if machine.device.type != "cuda":
        return engine.backends
    engine.model.train()
    engine = with_backend(engine, LAUNCHES, "graph")
    batches = list[Batch]()
    for part in PARTS:
        suited = suited_backends(engine, part)
        kept = (before or {}).get(part.name)
        if kept not in suited:
            kept = suited[0] if machine.is_deterministic else None
        working = working_backends(engine, part, suited if kept is None else [kept])
        backend = (working or suited)[0]
        if len(working) > 1:
            batches = batches or list(_first_batches(corpus, plan, first_index))
            backend = _fastest(engine, part, working, batches, cut, corpus.longest)
        engine = with_backend(engine, part, backend)
    return engine.backends


def suited_backends(engine: GradientEngine, part: GradientPart) -> list[str]:
    """Return the backends of ``part`` that suit the model and the devices of all ranks."""
    found = [backend for backend in part.backends if part.suits(engine, backend)]
    of_ranks = engine.machine.ranks.gather(found)
    return [backend for backend in found if all(backend in each for each in of_ranks)]


def working_backends(
    engine: GradientEngine, part: GradientPart, backends: Sequence[str]
) -> list[str]:
    """Return those of ``backends`` that compute the right results and gradients on all ranks.

    Only our own kernels are tried; one line says why they are not used.
    """
    why = _why_not(engine, part) if TRITON in backends else None
    of_ranks = [each for each in engine.machine.ranks.gather(why) if each is not None]
    if not of_ranks:
        return list(backends)
    first = next(backend for backend in part.backends if part.suits(engine, backend))
    logs.warning(f"{part.sentence} {part.backends[first]}, not {BY_TRITON}: {of_ranks[0]}.")
    return [backend for backend in backends if backend != TRITON]


def _why_not(engine: GradientEngine, part: GradientPart) -> str | None:
    """Return why our kernels cannot be used for ``part``; None if they can.

    They are compiled for all sizes of tiles here, so that no later sentence can make them fail.
    """
    first = next(backend for backend in part.backends if part.suits(engine, backend))
    try:
        by_kernels = with_backend(engine, part, TRITON)
        for each in pairs_to_try(engine):
            by_kernels.try_gradient(by_kernels.on_device(each))
        by_kernels.forget_graphs()
        return wrong_result(by_kernels, part.name)
    except Exception as error:  # of Triton, its compilers, the driver
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        engine.model.zero_grad(set_to_none=True)
        part.use(engine, first)


def with_backend(engine: GradientEngine, part: GradientPart, backend: str) -> GradientEngine:
    """Return ``engine`` with this backend, and with CUDA graphs of its own."""
    part.use(engine, backend)
    changed: dict[str, Any] = {part.name: backend}
    engine = engine._replace(backends=engine.backends._replace(**changed))
    if engine.backends.launches == "graph" and not _suits_launches(engine, "graph"):
        engine = engine._replace(backends=engine.backends._replace(launches="single"))
    return engine.with_graphs()


def _first_batches(corpus: PreparedCorpus, plan: BatchPlan, first_index: int) -> Iterator[Batch]:
    # Not those of the next epoch: this one would have to be planned again.
    of_epoch = plan.batches_of(plan.locate(first_index)[0])
    for index in range(first_index, min(first_index + NUM_BATCHES, of_epoch.stop)):
        numbers = plan.batch(index)
        sides = (side.gather(numbers) for side in (corpus.source, corpus.target))
        yield Batch(index, (SentencePairs(*sides),))


def _fastest(
    engine: GradientEngine,
    part: GradientPart,
    backends: Sequence[str],
    batches: Sequence[Batch],
    cut: BatchCut,
    longest: int,
) -> str:
    """Return the backend that is fastest on the rank where it is slowest.

    A rank whose memory is full times smaller micro-batches; without any memory, it is the first.
    """
    seconds = dict.fromkeys(backends, math.inf)

    def attempt(max_tokens: int) -> None:
        smaller = [cut._replace(max_tokens=max_tokens).of(batch) for batch in batches]
        # A batch may have fewer pairs than micro-batches.
        pairs = [max(each.micro_batches, key=lambda p: len(p.target.tokens)) for each in smaller]
        seconds.update(seconds_of_gradient(engine, part, backends, pairs))

    largest_that_runs(cut.max_tokens, longest, attempt)
    of_ranks = engine.machine.ranks.gather(seconds)
    slowest = {backend: max(each[backend] for each in of_ranks) for backend in backends}
    fastest = min(backends, key=lambda backend: slowest[backend])  # the first one if equal
    if math.isfinite(slowest[fastest]):
        logs.info(part.words(fastest, slowest))
    return fastest


def seconds_of_gradient(
    engine: GradientEngine,
    part: GradientPart,
    backends: Sequence[str],
    pairs: Sequence[SentencePairs],
) -> dict[str, float]:
    """Return the mean seconds of a gradient of one of the micro-batches ``pairs``, by each backend.

    Graphs that cannot be recorded take infinitely long.
    """
    device = engine.machine.device
    seconds = dict.fromkeys(backends, 0.0)
    engines = {backend: with_backend(engine, part, backend) for backend in backends}
    tensors = {
        backend: [each.on_device(micro) for micro in pairs] for backend, each in engines.items()
    }
    for turn in range(TURNS):
        for backend in backends:
            part.use(engine, backend)
            finish_work(device)
            started = perf_counter()
            for micro_batch in tensors[backend]:
                engines[backend].try_gradient(micro_batch)
                engine.model.zero_grad(set_to_none=True)
            finish_work(device)
            if turn > 0:
                seconds[backend] += perf_counter() - started
    for backend, each in engines.items():
        if part is LAUNCHES and each.graphed is not None and each.graphed.cannot_record:
            seconds[backend] = math.inf
        each.forget_graphs()
    return {backend: total / (TURNS - 1) / len(pairs) for backend, total in seconds.items()}
