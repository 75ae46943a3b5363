"""The attention core on GPUs that attend to packed rows as they are (FlashAttention).

Legend: T rows of queries, S rows of keys, H heads, K width of a head.
"""

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from nmt_cli.model.attention_layout import AttentionLayout

DTYPES = (torch.bfloat16, torch.float16)
LEAST_CAPABILITY = (8, 0)
LARGEST_WIDTH, WIDTH_STEP = 256, 8  # of a head, in numbers


def suits_varlen(rows: Tensor, width: int, layout: AttentionLayout) -> bool:
    """Say whether ``attend_varlen`` takes projections like ``rows`` with heads of this width."""
    return (
        rows.device.type == "cuda"
        and rows.dtype in DTYPES
        and width <= LARGEST_WIDTH
        and width % WIDTH_STEP == 0
        and not layout.has_spare_rows
        and torch.cuda.get_device_capability(rows.device) >= LEAST_CAPABILITY
    )


def attend_varlen(
    layout: AttentionLayout, causal: bool, queries: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V of every head as packed rows [T, HK].

    ``queries`` are [T, H, K], ``keys`` and ``values`` [S, H, K].
    """
    attended: Tensor = _kernel(causal)(
        queries,
        keys,
        values,
        layout.query_sentences.bounds,
        layout.key_sentences.bounds,
        layout.query_sentences.longest,
        layout.key_sentences.longest,
    )
    return attended.flatten(1)


@cache
def _kernel(causal: bool) -> Callable[..., Any]:
    """Return torch's function, told in the words of its version that a row sees its past alone."""
    from torch.nn.attention.varlen import varlen_attn  # a second that CPUs need not pay

    if not causal:
        return varlen_attn
    has_windows = "window_size" in inspect.signature(varlen_attn).parameters
    past: dict[str, Any] = {"window_size": (-1, 0)} if has_windows else {"is_causal": True}
    return partial(varlen_attn, **past)
