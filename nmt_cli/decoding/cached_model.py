"""The Transformer whose caches grow and shrink with what the search needs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt_cli.decoding.attention_cache import MemoryCache, SelfAttentionCache
from nmt_cli.decoding.incremental import IncrementalTransformer
from nmt_cli.decoding.search import StepInput
from nmt_cli.model.transformer import Transformer


class CachedTransformer(IncrementalTransformer):
    """A ``StepModel`` whose caches have the room that their sentences need at each step."""

    _past: SelfAttentionCache
    _memory: MemoryCache

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self.reset(0, 1)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches; make room for ``num_slots`` sentences of ``beam_size`` hypotheses."""
        like = self._model.output_weight
        self._past = SelfAttentionCache(num_slots, beam_size, self._shape, like)
        self._memory = MemoryCache(num_slots, beam_size, self._shape, like)

    @torch.no_grad()
    def step(self, state: StepInput) -> Tensor:
        """Return the logits [R, V] of the next token of each hypothesis."""
        num_positions = int(state.positions.max()) + 1
        past_masks = self._past.advance(state.parents, state.positions == 0)
        tokens, positions = (each.to(self._device) for each in (state.tokens, state.positions))
        return self._decoded(tokens, positions, num_positions, past_masks)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i."""
        self._past.keep_slots(slots)
        self._memory.keep_slots(slots)
