"""The attention core on GPUs with FlashAttention, which needs no padding.

Legend: T rows of queries, S rows of keys, H heads, K width of a head.
"""

import torch
from torch import Tensor

from nmt_cli.model.attention_layout import AttentionLayout

DTYPES = (torch.bfloat16, torch.float16)
LEAST_CAPABILITY = (8, 0)
LARGEST_WIDTH, WIDTH_STEP = 192, 8  # of a head; wider heads train on some GPUs only
EVERYTHING, THE_PAST = (-1, -1), (-1, 0)  # rows that a row attends to, back and ahead; -1: all


def suits_varlen(rows: Tensor, width: int, layout: AttentionLayout) -> bool:
    """Return whether ``attend_varlen`` supports rows like ``rows`` with heads of this width."""
    return (
        rows.device.type == "cuda"
        and rows.dtype in DTYPES
        and width <= LARGEST_WIDTH
        and width % WIDTH_STEP == 0
        and not layout.has_spare_rows
        and torch.version.hip is None
        and torch.backends.cuda.is_flash_attention_available()
        and torch.cuda.get_device_capability(rows.device) >= LEAST_CAPABILITY
    )


def attend_varlen(
    layout: AttentionLayout, causal: bool, queries: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V of every head as packed rows [T, HK].

    ``queries`` are [T, H, K], ``keys`` and ``values`` [S, H, K].
    """
    from torch.nn.attention.varlen import varlen_attn  # takes a second; CPUs do not need it

    attended = varlen_attn(
        queries,
        keys,
        values,
        layout.query_sentences.bounds,
        layout.key_sentences.bounds,
        layout.query_sentences.longest,
        layout.key_sentences.longest,
        window_size=THE_PAST if causal else EVERYTHING,
    )
    assert isinstance(attended, Tensor), "a tuple is only returned if return_aux is given"
    return attended.flatten(1)
