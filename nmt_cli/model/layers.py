"""The encoder's and decoder's layers (section 3.1) and the feed-forward network (section 3.3).

Legend: T rows of the target (or the only) side, S rows of the source, D d_model.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.attention import MemoryAttention, MultiHeadAttention, SelfAttention
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.branch import Branch, as_in_products
from nmt_cli.model.dropout import Dropout, KernelPlace
from nmt_cli.model.recurrence import RecurrentUnit
from nmt_cli.recipe.model_values import ModelShape, StackShape


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2, or another activation in place of the maximum."""

    is_by_kernel = False  # whether gradients of the maximum are computed by Triton
    is_joined = False  # whether the residual sum behind it computes gradients with it

    def __init__(
        self, d_model: int, d_ff: int, dropout: float, activation: str, *, bias: bool
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff, bias=bias)
        self.outer = nn.Linear(d_ff, d_model, bias=bias)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)
        self.dropout = Dropout(dropout)
        self.activation = activation

    def forward(self, rows: Tensor) -> Tensor | Branch:
        """Return the network's output [T, D]; each row is computed alone."""
        if not (self.is_joined and self.is_by_kernel and torch.is_grad_enabled()):
            return self.outer(self.dropout(self.activated(rows)))
        activated, rows = self._activated_and_rows(rows)
        bias = self.outer.bias
        output = F.linear(self.dropout(activated), self.outer.weight, bias.detach())
        return Branch(output, rows, bias)

    def _activated_and_rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        from nmt_cli.model.triton_kernels.relu import linear_relu

        return linear_relu(as_in_products(rows), self.inner.weight, self.inner.bias)

    def activated(self, rows: Tensor) -> Tensor:
        """Return the activation [T, F] of the inner layer."""
        if self.is_by_kernel and torch.is_grad_enabled():
            return self._activated_and_rows(rows)[0]
        inner = self.inner(rows)
        if self.activation == "relu":
            # In bf16, in place is slower on a CPU.
            in_place = inner.dtype is torch.float32 or inner.device.type != "cpu"
            return F.relu(inner, inplace=in_place)
        if self.activation == "swish":
            return F.silu(inner)
        return F.gelu(inner, approximate="tanh" if self.activation == "gelu_tanh" else "none")


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))); pre-norm is x + Dropout(Sublayer(LayerNorm(x)))."""

    kernel: KernelPlace | None = None  # if gradients are computed by Triton

    def __init__(self, d_model: int, dropout: float, epsilon: float, *, pre_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, epsilon)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, rows: Tensor, sublayer: Callable[[Tensor], Tensor | Branch]) -> Tensor:
        """Return ``rows`` [T, D] after ``sublayer``."""
        found = sublayer(self.norm(rows) if self.pre_norm else rows)
        if isinstance(found, Branch):
            return self.close(found.rows, found.output, found.bias)
        return self.close(rows, found)

    def close(self, rows: Tensor, branch: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the residual sum of ``rows`` [T, D] and the sub-layer's output ``branch`` [T, D].

        Post-norm normalizes the sum. ``bias`` is that of a ``Branch``.
        """
        if self.kernel is not None and torch.is_grad_enabled():
            from nmt_cli.model.triton_kernels.residual import Norm, add_dropout_norm

            drawn = self.kernel.drawn(self.dropout.rate if self.training else 0.0)
            norm = Norm(self.norm.weight, self.norm.bias, self.norm.eps)
            return add_dropout_norm(rows, branch, drawn, None if self.pre_norm else norm, bias)
        total: Tensor = self.dropout.add(rows, branch)
        if self.pre_norm:
            return total
        kind = total.device.type
        if torch.is_autocast_enabled(kind) and self.norm.weight.dtype is total.dtype:
            with torch.autocast(kind, enabled=False):  # no conversion to fp32 and back
                return self.norm(total)
        # On GPUs, LayerNorm under autocast returns fp32; post-norm keeps the products' dtype.
        return self.norm(total).to(branch.dtype)


Attention = TypeVar("Attention", bound=MultiHeadAttention)


def _attention(kind: Callable[..., Attention], config: ModelShape, shape: StackShape) -> Attention:
    return kind(
        config.d_model,
        shape.num_heads,
        shape.key_width,
        shape.value_width,
        config.attention_dropout,
        bias=config.attention_biases,
    )


def _self_attention(config: ModelShape, shape: StackShape) -> SelfAttention:
    attention = _attention(SelfAttention, config, shape)
    attention.window = shape.window
    return attention


def _residual(config: ModelShape) -> Residual:
    return Residual(
        config.d_model, config.dropout, config.norm_epsilon, pre_norm=config.norm == "pre"
    )


def _feed_forward(config: ModelShape, shape: StackShape) -> FeedForward:
    return FeedForward(
        config.d_model,
        shape.d_ff,
        config.relu_dropout,
        config.activation,
        bias=config.feed_forward_biases,
    )


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelShape) -> None:
        super().__init__()
        self.self_attention = _self_attention(config, config.encoder_shape)
        self.self_attention_residual = _residual(config)
        self.feed_forward = _feed_forward(config, config.encoder_shape)
        self.feed_forward_residual = _residual(config)

    def forward(self, source: Tensor, layout: AttentionLayout) -> Tensor:
        """Return the rows [S, D] after this layer."""
        source = self.self_attention_residual(
            source, lambda rows: self.self_attention(rows, layout, causal=False)
        )
        return self.feed_forward_residual(source, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, then feed-forward.

    With ``decoder: ssru``, a recurrent unit takes the place of self-attention.
    """

    def __init__(self, config: ModelShape) -> None:
        super().__init__()
        self.is_recurrent = config.is_recurrent
        if self.is_recurrent:
            self.recurrence = RecurrentUnit(config.d_model)
            self.recurrence_residual = _residual(config)
        else:
            self.self_attention = _self_attention(config, config.decoder_shape)
            self.self_attention_residual = _residual(config)
        self.memory_attention = _attention(MemoryAttention, config, config.decoder_shape)
        self.memory_attention_residual = _residual(config)
        self.feed_forward = _feed_forward(config, config.decoder_shape)
        self.feed_forward_residual = _residual(config)

    @property
    def first(self) -> nn.Module:
        """The first sub-layer."""
        return self.recurrence if self.is_recurrent else self.self_attention

    def forward(
        self, target: Tensor, memory: Tensor, within: AttentionLayout, to_memory: AttentionLayout
    ) -> Tensor:
        """Return the rows [T, D] after this layer; ``memory`` [S, D] is the encoder's output."""
        return self.compose(
            target,
            lambda rows: self._see_past(rows, within),
            lambda rows: self.memory_attention(rows, memory, to_memory),
        )

    def _see_past(self, rows: Tensor, within: AttentionLayout) -> Tensor | Branch:
        if self.is_recurrent:
            return self.recurrence(rows, within.query_sentences)
        return self.self_attention(rows, within, causal=True)

    def compose(
        self,
        target: Tensor,
        see_past: Callable[[Tensor], Tensor | Branch],
        attend_to_memory: Callable[[Tensor], Tensor | Branch],
    ) -> Tensor:
        """Return the rows after this layer; the two functions use packed rows or a cache."""
        residual = self.recurrence_residual if self.is_recurrent else self.self_attention_residual
        target = residual(target, see_past)
        target = self.memory_attention_residual(target, attend_to_memory)
        return self.feed_forward_residual(target, self.feed_forward)


def final_norm(config: ModelShape) -> nn.Module:
    """Return the norm after the last layer: post-norm needs none, its output is normalized."""
    if config.norm == "post":
        return nn.Identity()
    return nn.LayerNorm(config.d_model, config.norm_epsilon)


def new_embedding_weight(vocabulary_size: int, d_model: int) -> nn.Parameter:
    """Return an embedding matrix whose vectors, times sqrt(d_model), have unit variance."""
    weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
    nn.init.normal_(weight, std=d_model**-0.5)
    return weight
