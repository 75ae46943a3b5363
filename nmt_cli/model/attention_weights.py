"""The weights of attention, which the fast kernels of a pass do not return.

Legend: T rows of queries, S rows of keys, H heads, K width of a head.
"""

import torch
from torch import Tensor

from nmt_cli.model.attention import MemoryAttention, SelfAttention
from nmt_cli.model.packing import Packed


def weights_within(
    attention: SelfAttention, rows: Tensor, sentences: Packed, *, causal: bool
) -> list[Tensor]:
    """Return the weights [H, T, T] of each of ``sentences``, whose ``rows`` enter ``attention``."""
    queries, keys, _ = attention.project(rows)
    heads = attention.num_heads
    return _weights(queries, keys, sentences, sentences, heads, causal=causal)


def weights_to_memory(
    attention: MemoryAttention, rows: Tensor, memory: Tensor, target: Packed, source: Packed
) -> list[Tensor]:
    """Return the weights [H, T, S] of each sentence of ``target``, whose ``rows`` attend to the
    rows of ``memory`` that belong to the same sentence of ``source``."""
    queries, (keys, _) = attention.queries(rows), attention.project_memory(memory)
    return _weights(queries, keys, target, source, attention.num_heads, causal=False)


def _weights(
    queries: Tensor, keys: Tensor, target: Packed, source: Packed, num_heads: int, *, causal: bool
) -> list[Tensor]:
    """Return softmax(QK^T / sqrt(K)) of each sentence, at least in fp32."""
    core_dtype = torch.promote_types(queries.dtype, torch.float32)
    weights = []
    for queries_of_one, keys_of_one in zip(
        queries[: target.num_tokens].to(core_dtype).split(target.lengths),
        keys[: source.num_tokens].to(core_dtype).split(source.lengths),
        strict=True,
    ):
        q, k = (
            rows.unflatten(1, (num_heads, -1)).transpose(0, 1)
            for rows in (queries_of_one, keys_of_one)
        )  # H T K, H S K
        scores = q @ k.mT * k.shape[2] ** -0.5
        if causal:
            future = torch.ones_like(scores, dtype=torch.bool).triu_(1)
            scores = scores.masked_fill(future, -torch.inf)
        weights.append(scores.softmax(2))
    return weights
