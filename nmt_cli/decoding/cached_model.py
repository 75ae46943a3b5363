"""The Transformer whose caches grow and shrink with what the search needs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt_cli.decoding.attention_cache import GrowingMemory, GrowingPast
from nmt_cli.decoding.incremental import Encoded, IncrementalTransformer
from nmt_cli.decoding.search import StepInput
from nmt_cli.model.transformer import Transformer


class CachedTransformer(IncrementalTransformer):
    """A ``StepModel`` whose caches have the room that their sentences need at each step."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self.reset(0, 1)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches; make room for ``num_slots`` sentences of ``beam_size`` hypotheses."""
        like = self._model.output_weight
        self._past = GrowingPast(num_slots, beam_size, self._shape, like)
        self._memory = GrowingMemory(num_slots, beam_size, self._shape, like)

    def start(self, slots: Sequence[int], encoded: Sequence[Encoded]) -> None:
        """Cache the keys and values of the sentences in ``slots``, and of their start marks."""
        self._write_new(slots, encoded, self._past, self._memory)

    def forget(self, slots: Sequence[int]) -> None:
        """Set all that is cached for ``slots`` to 0."""
        self._past.forget(slots)
        self._memory.forget(slots)

    @torch.no_grad()
    def step(self, state: StepInput) -> Tensor:
        """Return the logits [R, V] of the next token of each hypothesis."""
        num_positions = int(state.positions.max()) + 1
        past_masks = self._past.advance(state.parents, state.positions == 0)
        tokens, positions = (each.to(self._device) for each in (state.tokens, state.positions))
        past, memory = self._past, self._memory
        return self._decoded(tokens, positions, num_positions, past, past_masks, memory)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i."""
        self._past.keep_slots(slots)
        self._memory.keep_slots(slots)
