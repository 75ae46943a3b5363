"""The Transformer for the search: computes one token at a time and caches the past.

Legend: S slots, K beam, R = S*K rows, B new sentences, L length of the longest, V vocabulary.
"""

from collections.abc import Sequence
from itertools import chain
from typing import cast

import torch
from torch import Tensor

from nmt_cli.decoding.attention_cache import (
    HeadShape,
    KeysValues,
    MemoryCache,
    SelfAttentionCache,
    attend,
    attend_in_parts,
    split_heads,
)
from nmt_cli.decoding.search import StepInput
from nmt_cli.model.layers import DecoderLayer
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer

Encoded = tuple[Tensor, ...]  # a sentence's keys and values [L, H*(d_k + d_v)] for each layer


class CachedTransformer:
    """A ``StepModel`` that shares the weights of ``model`` and computes in their precision.

    For each slot it caches the keys and values of the source, which ``encode`` computes once, and
    those of the past of each hypothesis. Not to be shared between threads.
    """

    def __init__(self, model: Transformer) -> None:
        shape = model.config.decoder
        self._model = model
        self._shape = HeadShape(
            shape.num_layers, shape.num_heads, shape.key_width, shape.value_width
        )
        self._decoder_layers = cast(Sequence[DecoderLayer], list(model.decoder_layers))
        self.reset(0, 1)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches; make room for ``num_slots`` sentences of ``beam_size`` hypotheses."""
        like = self._model.output_weight
        self._past = SelfAttentionCache(num_slots, beam_size, self._shape, like)
        self._memory = MemoryCache(num_slots, beam_size, self._shape, like)

    @torch.no_grad()
    def encode(self, sentences: Sequence[Sequence[int]]) -> list[Encoded]:
        """Return the keys and values of each of ``sentences`` for all layers."""
        lengths = [len(sentence) for sentence in sentences]
        tokens = torch.tensor(list(chain.from_iterable(sentences)))
        memory = self._model.encode(pack(tokens, lengths, self._device))
        of_layers = [
            layer.memory_attention.keys_values(memory)[: len(tokens)].split(lengths)
            for layer in self._decoder_layers
        ]
        return list(zip(*of_layers, strict=True))

    def start(self, slots: Sequence[int], encoded: Sequence[Encoded]) -> None:
        """Cache the keys and values of the sentences in ``slots``."""
        device = self._device
        lengths = [len(of_layers[0]) for of_layers in encoded]
        self._memory.make_room(slots, lengths)
        places, slot_index = _padded_places(lengths).to(device), torch.tensor(slots, device=device)
        for number, layer in enumerate(self._decoder_layers):
            attention = layer.memory_attention
            rows = torch.cat([of_layers[number] for of_layers in encoded]).index_select(0, places)
            keys, values = (
                split_heads(part, len(lengths), attention.num_heads)
                for part in rows.split(attention.widths[1:], dim=1)
            )
            self._memory.put(number, slot_index, KeysValues(keys.transpose(2, 3), values))

    @torch.no_grad()
    def step(self, state: StepInput) -> Tensor:
        """Return the logits [R, V] of the next token of each hypothesis."""
        device, beam_size = self._device, state.tokens.shape[1]
        num_positions = int(state.positions.max()) + 1
        positions = state.positions.to(device)
        past_masks = self._past.advance(state.parents, state.positions == 0)
        rows = self._model.target_embedding.embed(
            state.tokens.to(device).flatten(),
            positions[:, None].expand(-1, beam_size).flatten(),
            num_positions,
        )
        for number, layer in enumerate(self._decoder_layers):
            rows = self._through_layer(rows, number, layer, past_masks)
        logits = self._model.project(self._model.decoder_norm(rows))
        # The search goes over them several times, which a CPU does faster in fp32.
        return logits.float() if device.type == "cpu" else logits

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i."""
        kept = torch.tensor(slots, device=self._device)
        self._past.keep_slots(kept)
        self._memory.keep_slots(kept)

    def forget(self, slots: Sequence[int]) -> None:
        """Set all that is cached for ``slots`` to 0."""
        self._past.forget(slots)
        self._memory.forget(slots)

    @property
    def _device(self) -> torch.device:
        return self._model.output_weight.device

    def _through_layer(
        self, rows: Tensor, number: int, layer: DecoderLayer, past_masks: Sequence[Tensor]
    ) -> Tensor:
        def attend_within(rows: Tensor) -> Tensor:
            attention = layer.self_attention
            queries, keys, values = attention.project(rows)
            past = self._past.append(number, keys, values)
            return attention.output(attend_in_parts(queries, past, past_masks))

        def attend_to_memory(rows: Tensor) -> Tensor:
            attention = layer.memory_attention
            memory = self._memory.layer(number)
            queries = attention.queries(rows)
            return attention.output(attend(queries, memory, self._memory.mask))

        return layer.compose(rows, attend_within, attend_to_memory)


def _padded_places(of_sentences: Sequence[int]) -> Tensor:
    """Return the packed row [B*L] of each padded place; holes repeat the sentence's last row."""
    lengths = torch.tensor(of_sentences)[:, None]
    starts = lengths.cumsum(0) - lengths
    return (starts + torch.arange(max(of_sentences)).minimum(lengths - 1)).flatten()
