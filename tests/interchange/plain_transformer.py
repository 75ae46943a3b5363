"""A Transformer in numpy, written after the layouts that other programs document."""

from typing import NamedTuple

import numpy as np

Weights = tuple[np.ndarray, np.ndarray | None]


class Attention(NamedTuple):
    """Matrices and biases of one attention."""

    queries: Weights
    keys: Weights
    values: Weights
    output: Weights
    norm: Weights


class Layer(NamedTuple):
    """One layer; the encoder's has no ``memory``."""

    own: Attention
    memory: Attention | None
    inner: Weights
    outer: Weights
    norm: Weights


class Side(NamedTuple):
    """Encoder or decoder."""

    embedding: np.ndarray
    positions: np.ndarray
    layers: list[Layer]
    norm: Weights | None


def log_probabilities(encoder, decoder, projection, source, target, *, num_heads, scale, pre_norm):
    """Return the log-probabilities [T, V] of what follows each token of ``target``."""

    def attend(x, memory, part, causal):
        q, k, v = (
            np.stack(np.split(linear(rows, weights), num_heads, axis=1))
            for rows, weights in ((x, part.queries), (memory, part.keys), (memory, part.values))
        )
        scores = q @ k.transpose(0, 2, 1) * (scale or q.shape[2] ** -0.5)
        if causal:
            scores = scores + np.triu(np.full(scores.shape[1:], -1e30), 1)
        return linear(np.concatenate(list(softmax(scores) @ v), axis=1), part.output)

    def residual(x, norm, sublayer):
        if pre_norm:
            return x + sublayer(normalized(x, norm))
        return normalized(x + sublayer(x), norm)

    def run(side, tokens, memory):
        x = side.embedding[tokens] * side.embedding.shape[1] ** 0.5 + side.positions[: len(tokens)]
        for layer in side.layers:
            causal = layer.memory is not None
            x = residual(x, layer.own.norm, lambda r: attend(r, r, layer.own, causal))  # noqa: B023
            if causal:
                x = residual(x, layer.memory.norm, lambda r: attend(r, memory, layer.memory, False))  # noqa: B023
            x = residual(
                x,
                layer.norm,
                lambda r: linear(np.maximum(linear(r, layer.inner), 0), layer.outer),  # noqa: B023
            )
        return normalized(x, side.norm) if side.norm is not None else x

    logits = run(decoder, target, run(encoder, source, None)) @ projection.T
    return np.log(softmax(logits.astype(np.float64)))


def linear(x, weights):
    matrix, bias = weights
    return x @ matrix.T + (bias if bias is not None else 0)


def normalized(x, norm):
    gamma, beta = norm
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * gamma + beta


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
