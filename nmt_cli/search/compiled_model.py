"""The Transformer of the search with the layers of ``--compile``."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from nmt_cli.model.compiled.kernels import Kernels
from nmt_cli.model.compiled.layers import CompiledLayers, PartOfStep
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.attention_cache import GrowingPast
from nmt_cli.search.incremental import CachedTransformer, Encoded
from nmt_cli.search.search import StepInput

ENCODED_TOKENS = 512  # at once: what the layers compute of them stays in a CPU's cache


class CompiledTransformer(CachedTransformer):
    """A ``CachedTransformer`` in which a library of the CPU computes the layers.

    The model's weights are copied when it is made.
    """

    _past: GrowingPast

    def __init__(self, model: Transformer, kernels: Kernels) -> None:
        """``CompiledLayers.supports`` must be true of both."""
        super().__init__(model)
        self._layers = CompiledLayers(model, kernels)

    @property
    def _like(self) -> Tensor:
        """A tensor of the caches' dtype, which is fp32 whatever the model's precision."""
        return torch.empty(0, dtype=torch.float32, device="cpu")

    @torch.no_grad()
    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[Encoded], Tensor]:
        """Return the keys and values of each sentence, and the logits [B, V] of its first token."""
        found, logits = list[Encoded](), []
        for group in _groups(sentences):
            lengths = [len(sentence) for sentence in group]
            tokens = torch.tensor(list(chain.from_iterable(group)))
            sources = self._layers.encode(pack(tokens, lengths))
            starts, of_group = self._layers.first(start_mark, sources, lengths)
            of_sentences = zip(*(each.split(lengths) for each in sources), strict=True)
            found += map(Encoded, of_sentences, starts)
            logits.append(of_group)
        return found, torch.cat(logits)

    def start(self, slots: Sequence[int], encoded: Sequence[Encoded]) -> None:
        """Cache the keys and values of the sentences in ``slots``, and of their start marks."""
        lengths = [len(each.source[0]) for each in encoded]
        self._memory.make_room(slots, lengths)
        self._past.forget_ancestry(slots)
        for slot, each, length in zip(slots, encoded, lengths, strict=True):
            of_memory, place = self._memory.parts.at(slot)
            of_past, _ = self._past.parts.at(slot)
            for layer, rows in enumerate(each.source):
                self._layers.write(rows, [length], [place], of_memory[layer])
                self._layers.write(each.start_mark[layer, None], [1], [place], of_past[layer])

    @torch.no_grad()
    def step(self, state: StepInput) -> Tensor:
        """Return the logits [R, V] of the next token of each hypothesis."""
        self._past.advance(state.parents, state.positions == 0)
        num_positions = int(state.positions.max()) + 1
        return self._layers.step(state.tokens, state.positions, num_positions, self._parts())

    def _parts(self) -> list[PartOfStep]:
        """Return what the step that has begun attends to."""
        past, memory = self._past, self._memory
        # Views of numpy may have strides, and C gets addresses.
        is_past, places = (
            torch.from_numpy(np.ascontiguousarray(each)) for each in (past.is_past, past.places)
        )
        lengths = torch.tensor(memory.lengths)
        return [
            PartOfStep(of_past, of_memory, places[part], is_past[part], lengths[part])
            for part, of_past, of_memory in zip(
                past.parts.slices(len(places)),
                past.parts.all_layers,
                memory.parts.all_layers,
                strict=True,
            )
        ]


def _groups(sentences: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Yield ``sentences`` in groups of at most ENCODED_TOKENS together, or of one."""
    group: list[Sequence[int]] = []
    for sentence in sentences:
        if group and sum(map(len, group)) + len(sentence) > ENCODED_TOKENS:
            yield group
            group = []
        group.append(sentence)
    yield group
