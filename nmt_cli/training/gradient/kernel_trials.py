"""Whether our kernels compute what they should, on this GPU, before a training uses them.

Each part of a model that a kernel computes is computed three times from the same random rows: by a
formula in fp64, and by torch and by the kernel as in training, with the same dropout. The result of
the kernel, and its gradient of each input and each parameter, may be off by twice what torch's are
off. (Behind all layers, right kernels were off by up to twelve times as much as each other, and by
three times for rows that have much in common, as those of a new model.)

Legend: T rows of queries, S rows of keys, D d_model, H heads, K d_k, V d_v.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.corpus.binarized import Sentences
from nmt_cli.corpus.loader import SentencePairs
from nmt_cli.hardware.device import DTYPES
from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.attention_window import Window, distances
from nmt_cli.model.layers import FeedForward, Residual
from nmt_cli.model.triton_support import KernelError, error_of_kernel, uses_kernel
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.loss import label_smoothed_cross_entropy

# Of sentences: one for each size of the tiles of attention, and several tiles.
LENGTHS = (20, 50, 120, 300)
MANY_SENTENCES = 256  # of the first length: more rows than the programs of a kernel hold at a time
ROWS_OF_LOSS, SPARE_ROWS = 64, 3
SEED = 1  # of random rows and directions
DEVIATIONS = 6  # by which the share that dropout keeps may be off

Compute = Callable[..., Tensor]


class _Tried(NamedTuple):
    """A part of a model as it is computed once in a forward pass."""

    name: str
    inputs: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    exact: Compute  # of inputs and parameters
    by_torch: Compute  # of inputs
    by_kernel: Compute


def pairs_to_try(engine: GradientEngine) -> Iterator[SentencePairs]:
    """Yield two pairs of each of ``LENGTHS``, in tokens of the vocabularies."""
    for length in LENGTHS:
        yield _pairs(engine, length, 2)


def worst_result(engine: GradientEngine) -> KernelError:
    """Return what the kernels that the model of ``engine`` uses get most wrong."""
    of_modules = (_trials_of_modules(engine, *each) for each in MODULES)
    trials = itertools.chain(_trials_of_loss(engine), *of_modules)
    return max(trials, key=lambda each: each.multiple)


def _pairs(engine: GradientEngine, length: int, number: int) -> SentencePairs:
    """Return so many pairs of sentences, of this length and of half of it in turn."""
    config = engine.model.config
    if config.positions == "learned":
        length = min(length, config.max_positions)
    lengths = np.array([length, (length + 1) // 2] * (number // 2))
    sizes = config.source_vocabulary_size, engine.model.vocabulary_size
    tokens = np.arange(lengths.sum())
    source, target = (Sentences(tokens % (size or sizes[1]), lengths) for size in sizes)
    return SentencePairs(source, target)


def _trials_of_modules(
    engine: GradientEngine,
    kind: type[nn.Module],
    method: str,
    trial: Callable[..., Iterator[KernelError]],
) -> Iterator[KernelError]:
    pairs = list(pairs_to_try(engine))
    if kind is not MultiHeadAttention:  # which has a program for each sentence
        pairs.append(_pairs(engine, LENGTHS[0], MANY_SENTENCES))
    for each in pairs:
        with _as_in_training(engine):
            for name, module, arguments in _calls(engine, each, kind, method):
                yield from trial(name, module, *arguments)


@contextmanager
def _as_in_training(engine: GradientEngine) -> Iterator[None]:
    """Compute in the precision of the training, with weights in bf16 if it has them.

    The kernels have a seed for their dropout.
    """
    machine, copies, seed = engine.machine, engine.bf16_weights, engine.model.kernel_seed
    if seed is not None:
        seed.draw(machine.device)
    is_bf16 = machine.precision == "bf16"
    with (
        copies.in_place() if copies is not None else nullcontext(),
        torch.autocast(machine.device.type, torch.bfloat16, enabled=is_bf16),
    ):
        yield


def _calls(
    engine: GradientEngine, pairs: SentencePairs, kind: type[nn.Module], method: str
) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """Return the name, the module and the arguments of each call of a method in the model.

    Tensors among the arguments are random ones of the same shapes and types.
    """
    generator = torch.Generator().manual_seed(SEED)
    calls: list[tuple[str, Any, tuple[Any, ...]]] = []

    def noted(name: str, module: nn.Module, call: Compute, *given: Any) -> Tensor:
        drawn = (
            torch.randn(each.shape, generator=generator).to(each)
            if isinstance(each, Tensor)
            else each
            for each in given
        )
        calls.append((name, module, tuple(drawn)))
        return call(*given)

    machine = engine.machine._replace(precision="fp32", fp32_products="mkl")  # no spare rows
    tensors = engine._replace(graphed=None, machine=machine).on_device(pairs)
    modules = [
        each
        for each in engine.model.named_modules()
        if isinstance(each[1], kind) and uses_kernel(each[1])
    ]
    for name, module in modules:
        setattr(module, method, partial(noted, name, module, getattr(module, method)))
    try:
        with torch.no_grad():  # where no kernel is used
            engine.model(tensors.source, tensors.target_input, tensors.padded)
    finally:
        for _, module in modules:
            delattr(module, method)
    return calls


def _trial_of_attention(
    name: str, module: MultiHeadAttention, layout: AttentionLayout, window: Window, *given: Tensor
) -> Iterator[KernelError]:
    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if len(given) == 1:
            return module.attend(layout, window, torch.cat([queries, keys, values], dim=1))
        return module.attend(layout, window, queries, torch.cat([keys, values], dim=1))

    inputs = dict(zip(("queries", "keys", "values"), module.parts(*given), strict=True))
    rate, dropout = module.dropout if module.training else 0.0, None
    if rate > 0.0:
        kept = _kept_of_attention(module, layout, attend, *inputs.values())
        by_formula = partial(_attended, module, layout, window, None)
        reached = _kept_of_attention(module, layout, by_formula, *inputs.values())
        yield _error_of_draws(name, kept[reached], rate)
        dropout = kept / (1 - rate)
    # torch's kernels of attention draw otherwise, and some are more exact on some devices.
    formula = partial(_attended, module, layout, window, dropout)
    yield from _errors(_Tried(name, inputs, {}, formula, formula, attend))


def _attended(
    module: MultiHeadAttention,
    layout: AttentionLayout,
    window: Window,
    dropout: Tensor | None,
    *parts: Tensor,
) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V [T, HV], with the weights times ``dropout`` [T, H, S]."""
    of_queries, of_keys = layout.query_sentences, layout.key_sentences
    by_sentence = [
        rows.unflatten(1, (module.num_heads, -1)).split(side.lengths)
        for rows, side in zip(parts, (of_queries, of_keys, of_keys), strict=True)
    ]
    attended, first = [], 0
    for queries, keys, values in zip(*by_sentence, strict=True):  # [L, H, any]
        scores = torch.einsum("qhk,shk->hqs", queries, keys) * module.d_k**-0.5
        places = distances(len(queries), len(keys), scores.device)
        weights = scores.masked_fill(~window.reaches(places), -math.inf).softmax(2)
        if dropout is not None:
            end = first + len(queries)
            weights = weights * dropout[first:end, :, : len(keys)].transpose(0, 1).to(weights)
            first = end
        attended.append(torch.einsum("hqs,shv->qhv", weights, values).flatten(1))
    return torch.cat(attended)


def _kept_of_attention(
    module: MultiHeadAttention, layout: AttentionLayout, attend: Compute, *parts: Tensor
) -> Tensor:
    """Return which of the weights [T, H, S] are kept: those that a value comes through.

    All weights of a query are equal, and each key has a column of the values of its own.
    """
    queries, keys, values = (torch.zeros_like(each) for each in parts)
    of_keys, kept = layout.key_sentences, []
    columns = torch.arange(module.d_v, device=values.device)
    for first in range(0, of_keys.longest, module.d_v):
        is_own = of_keys.positions[:, None] - first == columns  # S V
        through = attend(queries, keys, is_own.to(values).repeat(1, module.num_heads))
        kept.append(through.detach().unflatten(1, (module.num_heads, -1)) != 0)
    return torch.cat(kept, dim=2)


def _trial_of_residual(
    name: str, module: Residual, rows: Tensor, branch: Tensor
) -> Iterator[KernelError]:
    rate, norm = module.dropout.rate if module.training else 0.0, module.norm
    parameters = {} if module.pre_norm else {"weight": norm.weight, "bias": norm.bias}
    inputs = {"rows": rows, "branch": branch}
    if not module.pre_norm:
        inputs["the branch's bias"] = torch.ones_like(branch[0])
    dropout: Tensor | float = 1.0
    if rate > 0.0:
        kept = _kept_of_residual(module, rows, branch)
        yield _error_of_draws(name, kept, rate)
        dropout = kept / (1 - rate)

    def exact(rows: Tensor, branch: Tensor, *others: Tensor) -> Tensor:
        if not others:
            return rows + branch * dropout
        of_branch, weight, bias = others
        total = rows + _with_bias(branch, of_branch) * dropout
        return F.layer_norm(total, norm.normalized_shape, weight, bias, norm.eps)

    def by_torch(rows: Tensor, branch: Tensor, *of_branch: Tensor) -> Tensor:
        branch = _with_bias(branch, *of_branch)
        dropped = branch * dropout.to(branch) if isinstance(dropout, Tensor) else branch
        with _kernel_off(module):
            module.dropout.eval()
            try:
                return module.close(rows, dropped)
            finally:
                module.dropout.train(module.training)

    yield from _errors(_Tried(name, inputs, parameters, exact, by_torch, module.close))


def _with_bias(branch: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``branch``, which has a bias as a part that gets a gradient."""
    return branch if bias is None else branch + (bias - bias.detach())


def _kept_of_residual(module: Residual, rows: Tensor, branch: Tensor) -> Tensor:
    """Return which elements [T, D] the kernel keeps: those of ones that are added to zeros."""
    pre_norm, module.pre_norm = module.pre_norm, True  # without the norm
    try:
        return module.close(torch.zeros_like(rows), torch.ones_like(branch)).detach() != 0
    finally:
        module.pre_norm = pre_norm


def _trial_of_activation(name: str, module: FeedForward, rows: Tensor) -> Iterator[KernelError]:
    inner = module.inner
    parameters = {"weight": inner.weight, "bias": inner.bias}

    def exact(*tensors: Tensor) -> Tensor:
        return F.relu(F.linear(*tensors))

    def by_torch(rows: Tensor) -> Tensor:
        with _kernel_off(module):
            return module.activated(rows)

    yield from _errors(_Tried(name, {"rows": rows}, parameters, exact, by_torch, module.activated))


# The modules that have a kernel, their method that it computes, and its trial.
MODULES: tuple[tuple[type[nn.Module], str, Callable[..., Iterator[KernelError]]], ...] = (
    (MultiHeadAttention, "attend", _trial_of_attention),
    (Residual, "close", _trial_of_residual),
    (FeedForward, "activated", _trial_of_activation),
)


@contextmanager
def _kernel_off(module: nn.Module) -> Iterator[None]:
    """Let torch compute what a kernel computes in ``module``."""
    name, off = ("is_by_kernel", False) if isinstance(module, FeedForward) else ("kernel", None)
    before = getattr(module, name)
    setattr(module, name, off)
    try:
        yield
    finally:
        setattr(module, name, before)


def _trials_of_loss(engine: GradientEngine) -> Iterator[KernelError]:
    """Try the loss and the nll of rows such as a last norm makes, with some spare ones."""
    model, device, copies = engine.model, engine.machine.device, engine.bf16_weights
    generator = torch.Generator().manual_seed(SEED)
    rows = torch.randn(ROWS_OF_LOSS + SPARE_ROWS, model.config.d_model, generator=generator)
    rows = rows.to(device, DTYPES[engine.machine.precision])
    targets = torch.arange(ROWS_OF_LOSS, device=device) % model.vocabulary_size
    weight, bias, smoothing = model.output_weight, model.output_bias, engine.smoothing
    of_products = copies.output_weight if copies is not None else weight.detach().to(rows)
    rounding = of_products.double() - weight.detach().double()

    def exact(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        logits = F.linear(rows[: len(targets)], weight + rounding, bias)
        loss, nll = (
            F.cross_entropy(logits, targets, reduction="sum", label_smoothing=each)
            for each in (smoothing, 0.0)
        )
        return torch.stack([loss, nll.detach()])

    def losses(rows: Tensor, *, is_by_kernel: bool) -> Tensor:
        sums = label_smoothed_cross_entropy(
            rows, weight, targets, smoothing, bias, of_products, is_by_kernel=is_by_kernel
        )
        return torch.stack([sums.loss, sums.nll])

    parameters = {"weight": weight, **({} if bias is None else {"bias": bias})}
    by_torch, by_kernel = (partial(losses, is_by_kernel=each) for each in (False, True))
    yield from _errors(_Tried("the loss", {"rows": rows}, parameters, exact, by_torch, by_kernel))


def _errors(tried: _Tried) -> Iterator[KernelError]:
    """Yield how far the kernel is off in its result and in each gradient."""
    given = [each.detach() for each in (*tried.inputs.values(), *tried.parameters.values())]
    wide = [each.double().requires_grad_() for each in given]
    with torch.autocast(given[0].device.type, enabled=False):
        result = tried.exact(*wide)
    generator = torch.Generator().manual_seed(SEED)
    direction = torch.randn(result.shape, generator=generator).bfloat16().to(result.device)
    exact = [result.detach(), *torch.autograd.grad(result, wide, direction.double())]
    of_torch, of_kernel = (_computed(tried, each, direction) for each in tried[-2:])
    names = [f"the result of {tried.name}"]
    names += [f"the gradient of {each} of {tried.name}" for each in tried.inputs]
    names += [f"the gradient of {tried.name}.{each}" for each in tried.parameters]
    dtypes = [each.dtype for each in (*given, *of_kernel)]
    for name, *values in zip(names, exact, of_torch, of_kernel, strict=True):
        yield error_of_kernel(name, dtypes, *values)


def _computed(tried: _Tried, compute: Compute, direction: Tensor) -> list[Tensor]:
    """Return the result of the inputs, and the gradients of inputs and parameters."""
    inputs = [each.detach().clone().requires_grad_() for each in tried.inputs.values()]
    result = compute(*inputs)
    leaves = [*inputs, *tried.parameters.values()]
    with torch.autocast(result.device.type, enabled=False):  # as a backward pass computes
        return [result.detach(), *torch.autograd.grad(result, leaves, direction.to(result))]


def _error_of_draws(name: str, kept: Tensor, rate: float) -> KernelError:
    """Return how far the share that dropout keeps is off."""
    share = kept.double().mean().item()
    deviation = math.sqrt(rate * (1 - rate) / kept.numel())
    text = f"the dropout of {name} keeps {share:.1%}, not {1 - rate:.1%}"
    return KernelError(abs(share - (1 - rate)) / (DEVIATIONS * deviation), text)
