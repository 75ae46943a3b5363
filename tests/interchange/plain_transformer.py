"""A Transformer in numpy, written after the layouts that other programs document."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

Weights = tuple[np.ndarray, np.ndarray | None]


class Attention(NamedTuple):
    """Matrices and biases of one attention."""

    queries: Weights
    keys: Weights
    values: Weights
    output: Weights
    norm: Weights
    is_causal: bool


class Recurrence(NamedTuple):
    """Matrices and biases of a simple recurrent unit."""

    candidates: Weights
    forget_gates: Weights
    norm: Weights


class Layer(NamedTuple):
    """One layer; the encoder's has no ``memory``."""

    own: Attention | Recurrence
    memory: Attention | None
    inner: Weights
    outer: Weights
    norm: Weights


class Options(NamedTuple):
    """What is not the paper's."""

    activation: str = "relu"
    epsilon: float = 1e-5
    embedding_scale: float | None = None  # by default the root of d_model
    starts_with_zeros: bool = False


class Side(NamedTuple):
    """Encoder or decoder."""

    embedding: np.ndarray
    positions: np.ndarray
    layers: list[Layer]
    norm: Weights | None
    embedding_norm: Weights | None = None


class PlainTransformer(NamedTuple):
    """A Transformer for one sentence pair."""

    encoder: Side
    decoder: Side
    projection: Weights
    num_heads: tuple[int, int]  # of encoder and decoder
    # Of the scores of encoder and decoder; by default that of the width of a head.
    scales: tuple[Any, ...]
    pre_norm: bool
    options: Options

    def log_probabilities(self, source, target):
        """Return the log-probabilities [T, V] of what follows each token of ``target``."""
        memory = self._run(self.encoder, source)
        logits = linear(self._run(self.decoder, target, memory), self.projection)
        with np.errstate(divide="ignore"):  # of pieces that never come
            return np.log(softmax(logits.astype(np.float64)))

    def _run(self, side, tokens, memory=None):
        x = side.embedding[tokens] * (
            self.options.embedding_scale or side.embedding.shape[1] ** 0.5
        )
        if memory is not None and self.options.starts_with_zeros:
            x[0] = 0
        x = x + side.positions[: len(tokens)]
        x = self._normal(x, side.embedding_norm)
        number = 0 if memory is None else 1
        for layer in side.layers:
            own: Any = partial(recur, layer.own)
            if isinstance(layer.own, Attention):
                own = partial(self._attend, number, layer.own)
            x = self._residual(x, layer.own.norm, own)
            if memory is not None:
                attend = partial(self._attend, number, layer.memory, memory=memory)
                x = self._residual(x, layer.memory.norm, attend)
            x = self._residual(x, layer.norm, partial(self._feed_forward, layer))
        return self._normal(x, side.norm)

    def _residual(self, x, norm, sublayer):
        if self.pre_norm:
            return x + sublayer(self._normal(x, norm))
        return self._normal(x + sublayer(x), norm)

    def _attend(self, number, part, x, memory=None):
        read = x if memory is None else memory
        q, k, v = (
            np.stack(np.split(linear(rows, weights), self.num_heads[number], axis=1))
            for rows, weights in ((x, part.queries), (read, part.keys), (read, part.values))
        )
        scores = q @ k.transpose(0, 2, 1) * (self.scales[number] or q.shape[2] ** -0.5)
        if part.is_causal:
            scores = scores + np.triu(np.full(scores.shape[1:], -1e30), 1)
        return linear(np.concatenate(list(softmax(scores) @ v), axis=1), part.output)

    def _feed_forward(self, layer, x):
        functions: dict[str, Any] = {"relu": F.relu, "swish": F.silu, "gelu": F.gelu}
        functions["gelu_tanh"] = partial(F.gelu, approximate="tanh")
        inner = torch.from_numpy(linear(x, layer.inner))
        return linear(functions[self.options.activation](inner).numpy(), layer.outer)

    def _normal(self, x, norm):
        if norm is None:
            return x
        gamma, beta = norm
        centred = x - x.mean(1, keepdims=True)
        variance = (centred**2).mean(1, keepdims=True)
        return centred / np.sqrt(variance + self.options.epsilon) * gamma + beta


def recur(part, x):
    """Return the outputs of SSRU (Kim et al. 2019), a row after the other."""
    gates = 1 / (1 + np.exp(-linear(x, part.forget_gates)))
    state, outputs = np.zeros_like(x[0]), []
    for gate, new in zip(gates, linear(x, part.candidates), strict=True):
        state = gate * state + (1 - gate) * new
        outputs.append(np.maximum(state, 0))
    return np.stack(outputs)


def linear(x, weights):
    matrix, bias = weights
    return x @ matrix.T + (bias if bias is not None else 0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
