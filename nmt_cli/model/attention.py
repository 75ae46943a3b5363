"""Multi-head attention over packed batches (section 3.2), and its weights, for pictures and links.

Legend: T rows of queries, S rows of keys, P padded places, B sentences of a group, L places of a
sentence, H heads, D d_model, K d_k, V d_v.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.attention_layout import AttentionLayout, PaddedGroups, repack, unpack
from nmt_cli.model.attention_window import EVERYTHING, THE_PAST, Window, attend_in_blocks, distances
from nmt_cli.model.branch import Branch, linear_and_rows
from nmt_cli.model.cpu_attention import MAX_KEYS, attend_packed
from nmt_cli.model.dropout import KernelPlace
from nmt_cli.model.skip_init import SkipInit

DTYPES = (torch.bfloat16, torch.float16)
LEAST_CAPABILITY = (8, 0)
LARGEST_WIDTH, WIDTH_STEP = 192, 8  # of a head; wider heads train on some GPUs only


def attend_varlen(
    layout: AttentionLayout, window: Window, queries: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V of every head as packed rows [T, HK].

    ``queries`` are [T, H, K], ``keys`` and ``values`` [S, H, K].
    """
    of_queries, of_keys = layout.query_sentences, layout.key_sentences
    sides = of_queries.bounds, of_keys.bounds, of_queries.longest, of_keys.longest
    from torch.nn.attention.varlen import varlen_attn  # takes a second; CPUs do not need it

    found = varlen_attn(queries, keys, values, *sides, window_size=window)
    assert isinstance(found, Tensor), "a tuple is only returned if return_aux is given"
    return found.flatten(1)


class Projection(nn.Linear):
    """A linear layer whose output consists of ``parts``, each initialized by itself."""

    def __init__(self, width: int, parts: tuple[int, ...], *, bias: bool) -> None:
        with SkipInit():
            super().__init__(width, sum(parts), bias=bias)
        self.parts = parts  # their widths
        for part in self.weight.split(parts):
            nn.init.xavier_uniform_(part)
        if bias:
            nn.init.zeros_(self.bias)


class MultiHeadAttention(nn.Module, ABC):
    """Concat(head_1, ..., head_h) W^O, the base of self-attention and attention to the memory.

    Projections of the same rows are one linear layer, because one product is faster than three.
    The paper's projections have no bias.
    """

    kernel: KernelPlace | None = None  # if gradients are computed by Triton
    is_joined = False  # whether the residual sum behind it computes gradients with it

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_k: int,
        d_v: int,
        dropout: float = 0.0,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.dropout = dropout
        self._make_input_projections(d_model, bias=bias)
        self.output = Projection(num_heads * d_v, (d_model,), bias=bias)

    @abstractmethod
    def _make_input_projections(self, d_model: int, *, bias: bool) -> None:
        """Make the projections of queries, keys and values, before the output's."""

    @property
    def widths(self) -> tuple[int, int, int]:
        """The widths of the queries, keys and values, each of all heads."""
        keys, values = self.num_heads * self.d_k, self.num_heads * self.d_v
        return keys, keys, values

    def branch(
        self, rows: Tensor, projection: Projection, attend: Callable[[Tensor], Tensor]
    ) -> Tensor | Branch:
        """Return the output [T, D] of attention that ``attend`` computes of projected ``rows``."""
        if not (self.is_joined and torch.is_grad_enabled()):
            return self.output(attend(projection(rows)))
        projected, rows = linear_and_rows(rows, projection.weight, projection.bias)
        return Branch(self.output(attend(projected)), rows)

    def attend(self, layout: AttentionLayout, window: Window, *projected: Tensor) -> Tensor:
        """Return softmax(QK^T / sqrt(d_k)) V of every head as packed rows [T, H*V].

        The rows come as one tensor [T, 2HK+HV] of queries, keys and values, or as two: queries
        [T, HK], and keys and values [S, HK+HV].
        """
        if self.kernel is not None and torch.is_grad_enabled():
            from nmt_cli.model.triton_kernels.attention import Heads, attend

            drawn = self.kernel.drawn(self.dropout if self.training else 0.0)
            all_heads = Heads(self.num_heads, self.d_k, self.d_v, drawn)
            return attend(layout, window, all_heads, *projected)
        if self._suits_batched_products(projected[0], layout):
            return attend_packed(layout, self.num_heads, window, *projected)
        if self.supports_varlen(projected[0].device, projected[0].dtype):
            heads = (part.unflatten(1, (self.num_heads, -1)) for part in self.parts(*projected))
            return attend_varlen(layout, window, *heads)
        sides = layout.padded.queries, layout.padded.keys  # one tensor has the first side only
        places = (unpack(rows, side) for rows, side in zip(projected, sides, strict=False))
        return self._attend_padded(layout.padded, window, *self.parts(*places))

    def _suits_batched_products(self, rows: Tensor, layout: AttentionLayout) -> bool:
        """Return whether ``attend_packed`` supports this; on a CPU it is the fastest way."""
        return (
            rows.device.type == "cpu"
            and self._is_plain
            and all(group.key_length <= MAX_KEYS for group in layout.padded.groups)
        )

    def supports_varlen(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Return whether ``attend_varlen`` can attend to rows of ``dtype`` on ``device``."""
        return (
            self._is_plain
            and device.type == "cuda"
            and dtype in DTYPES
            and self.d_k <= LARGEST_WIDTH
            and self.d_k % WIDTH_STEP == 0
            and torch.version.hip is None
            and torch.backends.cuda.is_flash_attention_available()
            and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
        )

    @property
    def _is_plain(self) -> bool:
        """Whether values are as wide as keys and attention weights have no dropout."""
        return self.d_k == self.d_v and not (self.training and self.dropout > 0.0)

    def parts(self, first: Tensor, keys_values: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return queries, keys and values, cut from one tensor or from the two of ``attend``."""
        if keys_values is None:
            return first.split(self.widths, dim=1)
        return first, *keys_values.split(self.widths[1:], dim=1)

    def _attend_padded(self, padded: PaddedGroups, window: Window, *places: Tensor) -> Tensor:
        """Return packed rows [T, H*V] by scaled_dot_product_attention, which pads.

        ``places`` are the queries, keys and values in their padded groups [P, ...].
        """
        compute_dtype = places[0].dtype
        if places[0].device.type == "cpu":
            # The CPU's backward of attention in bf16 is ten times slower than in fp32.
            core_dtype = torch.promote_types(compute_dtype, torch.float32)
            places = tuple(rows.to(core_dtype) for rows in places)
        groups, heads = padded.groups, (self.num_heads, -1)
        query_sizes = [group.num_sentences * group.query_length for group in groups]
        key_sizes = [group.num_sentences * group.key_length for group in groups]
        parts = map(torch.split, places, (query_sizes, key_sizes, key_sizes))
        rate = self.dropout if self.training else 0.0
        outputs = []
        with torch.autocast(places[0].device.type, enabled=False):
            for group, *of_group in zip(groups, *parts, strict=True):
                q, k, v = (
                    rows.unflatten(1, heads).unflatten(0, (group.num_sentences, -1)).transpose(1, 2)
                    for rows in of_group
                )  # B H L any
                if window in (EVERYTHING, THE_PAST):
                    attended = F.scaled_dot_product_attention(
                        q,
                        k,
                        v,
                        # Holes come after the sentence, so the causal mask hides them already.
                        attn_mask=None if window == THE_PAST else group.keep,
                        dropout_p=rate,
                        is_causal=window == THE_PAST,
                    )  # B H L V
                else:
                    attended = attend_in_blocks(window, group.keep, q, k, v, rate)
                outputs.append(attended.transpose(1, 2).flatten(2).flatten(0, 1))  # B*L H*V
        return repack(torch.cat(outputs), padded.queries).to(compute_dtype)

    def _weights(
        self, layout: AttentionLayout, window: Window, queries: Tensor, keys: Tensor
    ) -> list[Tensor]:
        """Return softmax(QK^T / sqrt(K)) of each sentence, at least in fp32.

        The fast kernels of a forward pass do not return these weights.
        """
        core_dtype = torch.promote_types(queries.dtype, torch.float32)
        sides = (queries, layout.query_sentences), (keys, layout.key_sentences)
        by_sentence = (
            rows[: side.num_tokens].to(core_dtype).split(side.lengths) for rows, side in sides
        )
        weights = []
        for of_one in zip(*by_sentence, strict=True):
            q, k = (rows.unflatten(1, (self.num_heads, -1)).transpose(0, 1) for rows in of_one)
            scores = q @ k.mT * self.d_k**-0.5  # H T S
            if window != EVERYTHING:
                places = distances(q.shape[1], k.shape[1], scores.device)
                scores = scores.masked_fill(~window.reaches(places), -torch.inf)
            weights.append(scores.softmax(2))
        return weights


class SelfAttention(MultiHeadAttention):
    """Attention of each row to the rows of its own sentence, or to those within a window."""

    window: int | None = None  # how far away they may be; None: as far as they are

    def _make_input_projections(self, d_model: int, *, bias: bool) -> None:
        self.queries_keys_values = Projection(d_model, self.widths, bias=bias)

    def forward(self, rows: Tensor, layout: AttentionLayout, *, causal: bool) -> Tensor | Branch:
        """Return [T, D]: each row of ``rows`` [T, D] attends to its sentence.

        With ``causal``, it attends only to itself and the rows before it.
        """
        attend = partial(self.attend, layout, Window.of(self.window, causal=causal))
        return self.branch(rows, self.queries_keys_values, attend)

    def weights(self, rows: Tensor, layout: AttentionLayout, *, causal: bool) -> list[Tensor]:
        """Return the weights [H, T, T] of each sentence when ``rows`` [T, D] enter."""
        queries, keys, _ = self.project(rows)
        return self._weights(layout, Window.of(self.window, causal=causal), queries, keys)

    def project(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return the queries [T, H*K], keys [T, H*K] and values [T, H*V] of all heads."""
        return self.parts(self.queries_keys_values(rows))


class MemoryAttention(MultiHeadAttention):
    """Attention of the decoder's rows to the encoder's output."""

    def _make_input_projections(self, d_model: int, *, bias: bool) -> None:
        self.queries = Projection(d_model, self.widths[:1], bias=bias)
        self.keys_values = Projection(d_model, self.widths[1:], bias=bias)

    def forward(self, rows: Tensor, memory: Tensor, layout: AttentionLayout) -> Tensor | Branch:
        """Return attention [T, D] of ``rows`` [T, D] to ``memory`` [S, D]."""
        keys_values = self.keys_values(memory)
        return self.branch(
            rows,
            self.queries,
            lambda queries: self.attend(layout, EVERYTHING, queries, keys_values),
        )

    def weights(self, rows: Tensor, memory: Tensor, layout: AttentionLayout) -> list[Tensor]:
        """Return the weights [H, T, S] of each sentence when ``rows`` attend to ``memory``."""
        queries, keys, _ = self.parts(self.queries(rows), self.keys_values(memory))
        return self._weights(layout, EVERYTHING, queries, keys)
