"""Whether our kernels compute what they should, on this GPU, before a training uses them.

Each kernel is tried with random rows in the shapes and types of the model. A formula in fp64 gives
the exact result, and torch computes the same formula in the types of the training, with the same
dropout. The result of the kernel, and its gradient of each input and each parameter, may be off by
twice what torch's are off. (Compared after all layers of a model, the errors of right kernels
differed by up to twelve times.)

Legend: T rows of queries, S rows of keys, D d_model, H heads, K d_k, V d_v.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.hardware.device import DTYPES
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.attention_window import EVERYTHING, Window
from nmt_cli.model.dropout import KernelDropout
from nmt_cli.model.packing import Packed, pack
from nmt_cli.model.triton_support import KernelError, error_of_kernel, has_relu_kernel
from nmt_cli.recipe.model_values import ModelShape, StackShape
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.loss import losses_by_kernel, losses_by_torch

# Of sentences: one for each size of the tiles of attention, and several tiles.
LENGTHS = (20, 50, 120, 300)
# Of other kernels: some, and more than the programs of a kernel hold at a time.
NUMBERS_OF_ROWS = (70, 5_000)
ROWS_OF_LOSS = 64
SEED = 1  # of random rows, directions and dropout
DEVIATIONS = 6  # by which the share that dropout keeps may be off

Compute = Callable[..., Tensor]


class _Rows:
    """Draws random numbers in fp32 on a device, always the same."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype  # the type is that of products
        self._generator = torch.Generator().manual_seed(SEED)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(self.device)

    def draw_factors(self, *shape: int) -> Tensor:
        return self.draw(*shape).to(self.dtype)

    def dropout(self, rate: float) -> KernelDropout:
        return KernelDropout(rate, torch.full((1,), SEED, device=self.device), 1)


def worst_result(engine: GradientEngine) -> KernelError:
    """Return what the kernels that suit the model of ``engine`` get most wrong."""
    model, config = engine.model, engine.model.config
    rows = _Rows(engine.machine.device, DTYPES[engine.machine.precision])
    errors = [
        *_errors_of_loss(rows, model.vocabulary_size, engine.smoothing),
        *_errors_of_attentions(rows, config),
        *_errors_of_residual(rows, config),
        *(_errors_of_activation(rows, config) if has_relu_kernel(model) else ()),
    ]
    return max(errors, key=lambda each: each.multiple)


def _errors_of_attentions(rows: _Rows, config: ModelShape) -> Iterator[KernelError]:
    encoder, decoder, rate = config.encoder_shape, config.decoder_shape, config.attention_dropout
    for length in LENGTHS:
        lengths = [length, (length + 1) // 2]
        one, other = (
            pack(torch.zeros(sum(lengths)), each, rows.device) for each in (lengths, lengths[::-1])
        )
        within, between = AttentionLayout(one, one), AttentionLayout(one, other)
        near, past = Window.of(encoder.window, causal=False), Window.of(decoder.window, causal=True)
        kinds = [
            ("the encoder's attention", encoder, within, near),
            ("the attention to the memory", decoder, between, EVERYTHING),
        ]
        if not config.is_recurrent:
            kinds.append(("the decoder's attention", decoder, within, past))
        for kind in kinds:
            yield from _errors_of_attention(rows, rate, *kind)


def _errors_of_attention(
    rows: _Rows, rate: float, name: str, shape: StackShape, layout: AttentionLayout, window: Window
) -> Iterator[KernelError]:
    from nmt_cli.model.triton_kernels.attention import Heads, attend

    of_queries, of_keys = layout.query_sentences, layout.key_sentences
    heads = Heads(shape.num_heads, shape.key_width, shape.value_width, rows.dropout(rate))
    reached = window.reaches(of_keys.positions - of_queries.positions[:, None])  # T S
    reached &= _numbers_of_sentences(of_keys) == _numbers_of_sentences(of_queries)[:, None]
    dropout = torch.ones_like(reached)

    def kernel(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if of_keys is of_queries:
            return attend(layout, window, heads, torch.cat([queries, keys, values], dim=1))
        return attend(layout, window, heads, queries, torch.cat([keys, values], dim=1))

    def formula(*parts: Tensor) -> Tensor:
        of_heads = (each.unflatten(1, (heads.number, -1)).transpose(0, 1) for each in parts)
        queries, keys, values = of_heads
        scores = queries @ keys.mT * heads.d_k**-0.5  # H T S
        weights = scores.masked_fill(~reached, -math.inf).softmax(2) * dropout.to(scores)
        return (weights @ values).transpose(0, 1).flatten(1)

    widths = {"queries": heads.d_k, "keys": heads.d_k, "values": heads.d_v}
    sides = of_queries, of_keys, of_keys
    inputs = {
        each: rows.draw_factors(side.num_tokens, heads.number * width)
        for (each, width), side in zip(widths.items(), sides, strict=True)
    }
    if rate > 0.0:
        kept = _kept_of_attention(kernel, heads.number, *inputs.values())
        yield _error_of_draws(name, kept[:, reached], rate)
        dropout = kept / (1 - rate)
    # torch's kernels of attention draw otherwise, and some are more exact on some devices.
    yield from _errors(name, inputs, formula, kernel)


def _numbers_of_sentences(side: Packed) -> Tensor:
    """Return the number of the sentence of each row."""
    return (side.positions == 0).cumsum(0)


def _kept_of_attention(kernel: Compute, num_heads: int, *inputs: Tensor) -> Tensor:
    """Return which of the weights [H, T, S] are kept: those that a value comes through.

    All weights of a query are equal, and each key has a column of the values of its own.
    """
    queries, keys, values = (torch.zeros_like(each) for each in inputs)
    number, kept = torch.arange(len(values), device=values.device)[:, None], []
    columns = torch.arange(values.shape[1] // num_heads, device=values.device)
    for first in range(0, len(values), len(columns)):
        is_own = (number == first + columns).to(values)  # S V
        through = kernel(queries, keys, is_own.repeat(1, num_heads))
        kept.append(through.unflatten(1, (num_heads, -1)) != 0)
    return torch.cat(kept, dim=2)[..., : len(values)].transpose(0, 1)


def _errors_of_residual(rows: _Rows, config: ModelShape) -> Iterator[KernelError]:
    """Try the residual sum: with post-norm also the norm, and the bias of a sub-layer."""
    from nmt_cli.model.triton_kernels.residual import Norm, add_dropout_norm

    name, width, rate = "the residual sum", config.d_model, config.dropout
    drawn, is_post_norm = rows.dropout(rate), config.norm == "post"

    def kernel(x: Tensor, branch: Tensor, *others: Tensor) -> Tensor:
        if not others:
            return add_dropout_norm(x, branch, drawn, None)
        weight, bias, of_branch = others
        norm = Norm(weight, bias, config.norm_epsilon)
        return add_dropout_norm(x, branch, drawn, norm, of_branch)

    def formula(x: Tensor, branch: Tensor, *others: Tensor) -> Tensor:
        if not others:
            return x + branch * dropout.to(branch)
        weight, bias, of_branch = others
        branch = branch + (of_branch - of_branch.detach())  # a part that gets a gradient
        total = x + branch * dropout.to(branch)
        return F.layer_norm(total, (width,), weight, bias, config.norm_epsilon)

    for number in NUMBERS_OF_ROWS:
        x, branch = rows.draw(number, width), rows.draw_factors(number, width)
        inputs = {"rows": x.to(branch) if is_post_norm else x, "branch": branch}
        if is_post_norm:
            names = "the norm's weight", "the norm's bias", "the branch's bias"
            inputs |= {each: rows.draw_factors(width) for each in names}
        dropout = torch.ones_like(branch)
        if rate > 0.0:
            kept = kernel(torch.zeros_like(x), dropout) != 0
            yield _error_of_draws(name, kept, rate)
            dropout = kept / (1 - rate)
        yield from _errors(name, inputs, formula, kernel)


def _errors_of_activation(rows: _Rows, config: ModelShape) -> Iterator[KernelError]:
    from nmt_cli.model.triton_kernels.relu import linear_relu

    def kernel(*inputs: Tensor) -> Tensor:
        return linear_relu(*inputs)[0]

    def formula(*inputs: Tensor) -> Tensor:
        return F.relu(F.linear(*inputs))

    width = config.d_model
    inner_widths = {shape.d_ff for shape in (config.encoder_shape, config.decoder_shape)}
    for number, d_ff in itertools.product(NUMBERS_OF_ROWS, sorted(inner_widths)):
        inputs = {
            "rows": rows.draw_factors(number, width),
            "the weight": rows.draw_factors(d_ff, width) * width**-0.5,
            "the bias": rows.draw_factors(d_ff),
        }
        yield from _errors("the activation", inputs, formula, kernel)


def _errors_of_loss(rows: _Rows, vocabulary_size: int, smoothing: float) -> Iterator[KernelError]:
    """Try what the loss makes of logits: their gradient, and the nll and logits of targets."""
    logits = rows.draw_factors(ROWS_OF_LOSS, vocabulary_size)
    targets = torch.arange(ROWS_OF_LOSS, device=rows.device) % vocabulary_size
    exact, by_torch, by_kernel = (
        compute(logits.to(dtype, copy=True), targets, smoothing)
        for compute, dtype in (
            (losses_by_torch, torch.float64),
            (losses_by_torch, rows.dtype),
            (losses_by_kernel, rows.dtype),
        )
    )
    names = "the gradient of logits", "the result", "the logits of targets"
    for name, *values in zip(names, exact, by_torch, by_kernel, strict=True):
        yield error_of_kernel(f"{name} of the loss", [rows.dtype], *values)


def _errors(
    name: str, inputs: Mapping[str, Tensor], formula: Compute, kernel: Compute
) -> Iterator[KernelError]:
    """Yield how far the kernel is off in its result and in the gradient of each input."""
    exact, by_torch, by_kernel = (
        _computed(compute, [each.to(dtype or each.dtype) for each in inputs.values()])
        for compute, dtype in ((formula, torch.float64), (formula, None), (kernel, None))
    )
    names = ["the result", *(f"the gradient of {each}" for each in inputs)]
    dtypes = [each.dtype for each in (*inputs.values(), *by_kernel)]
    for what, *values in zip(names, exact, by_torch, by_kernel, strict=True):
        yield error_of_kernel(f"{what} of {name}", dtypes, *values)


def _computed(compute: Compute, inputs: list[Tensor]) -> list[Tensor]:
    """Return the result of ``inputs`` and their gradients."""
    leaves = [each.detach().requires_grad_() for each in inputs]
    result = compute(*leaves)
    generator = torch.Generator().manual_seed(SEED)
    direction = torch.randn(result.shape, generator=generator).bfloat16()
    return [result.detach(), *torch.autograd.grad(result, leaves, direction.to(result))]


def _error_of_draws(name: str, kept: Tensor, rate: float) -> KernelError:
    """Return how far the share that dropout keeps is off."""
    share = kept.double().mean().item()
    deviation = math.sqrt(rate * (1 - rate) / kept.numel())
    text = f"the dropout of {name} keeps {share:.1%}, not {1 - rate:.1%}"
    return KernelError(abs(share - (1 - rate)) / (DEVIATIONS * deviation), text)
