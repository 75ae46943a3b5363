"""The Transformer of the search with the layers of ``--compile``."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.model.compiled.kernels import Kernels
from nmt_cli.model.compiled.layers import CompiledLayers, PartOfStep
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.attention_cache import GrowingPast
from nmt_cli.search.incremental import CachedTransformer, Encoded
from nmt_cli.search.search import StepInput
from nmt_cli.search.slot_parts import HeadShape, Run, SlotParts

ENCODED_TOKENS = 512  # at once: what the layers compute of them stays in a CPU's cache
# Lower than usual: compiled attention reads what is used, so that spare room takes memory only.
SHRINK_BELOW = 1 / 4

_empty = partial(torch.empty, device="cpu")  # whatever the default of the process is


class CompiledPast(GrowingPast):
    """A ``GrowingPast`` in which a library finds the places of a step."""

    def __init__(
        self, num_slots: int, beam_size: int, shape: HeadShape, like: Tensor, kernels: Kernels
    ) -> None:
        """Make an empty cache with the dtype of ``like``."""
        super().__init__(num_slots, beam_size, shape, like)
        self._functions = kernels.functions

    def advance(self, parents: Tensor, is_free: Tensor) -> None:
        """Find places for an entry of each hypothesis."""
        num_slots, beam_size, room = self.is_past.shape
        past = torch.from_numpy(self.is_past), parents.contiguous(), is_free
        is_used = _empty(room + beam_size, dtype=torch.bool)
        places = _empty(num_slots, beam_size, dtype=torch.int64)
        ends = _empty(num_slots, dtype=torch.int64)
        self._functions.find_places(*past, *self.is_past.shape, is_used, places, ends)
        self._make_room(ends.numpy())
        inherited = _empty(num_slots, beam_size, max(self.rooms), dtype=torch.bool)
        of_room = inherited.shape[2], inherited
        self._functions.inherit(*past, places, *self.is_past.shape, *of_room)
        self.is_past, self.places = inherited.numpy(), places.numpy()


class CompiledTransformer(CachedTransformer):
    """A ``CachedTransformer`` in which a library of the CPU computes the layers.

    The model's weights are copied when it is made.
    """

    _past: CompiledPast

    def __init__(self, model: Transformer, kernels: Kernels) -> None:
        """``CompiledLayers.supports`` must be true of both."""
        self._kernels = kernels
        super().__init__(model)
        self._layers = CompiledLayers(model, kernels)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches; make room for ``num_slots`` sentences of ``beam_size`` hypotheses."""
        super().reset(num_slots, beam_size)
        for cache in (self._past, self._memory):
            cache.parts.shrink_below = SHRINK_BELOW

    @property
    def _like(self) -> Tensor:
        """A tensor of the caches' dtype, which is fp32 whatever the model's precision."""
        return _empty(0, dtype=torch.float32)

    def _empty_past(self, num_slots: int, beam_size: int) -> CompiledPast:
        return CompiledPast(num_slots, beam_size, self._shape, self._like, self._kernels)

    @torch.no_grad()
    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[Encoded], Tensor]:
        """Return the keys and values of each sentence, and the logits [B, V] of its first token."""
        found, logits = list[Encoded](), []
        for group in _groups(sentences):
            lengths = [len(sentence) for sentence in group]
            tokens = torch.tensor(list(chain.from_iterable(group)), dtype=torch.int64, device="cpu")
            sources = self._layers.encode(tokens, lengths)
            starts, of_group = self._layers.first(start_mark, sources, lengths)
            of_sentences = zip(*(each.split(lengths) for each in sources), strict=True)
            found += map(Encoded, of_sentences, starts)
            logits.append(of_group)
        return found, torch.cat(logits)

    def start(self, slots: Sequence[int], encoded: Sequence[Encoded]) -> None:
        """Cache the keys and values of the sentences in ``slots``, and of their start marks."""
        lengths = [len(each.source[0]) for each in encoded]
        runs = self._memory.make_room(slots, lengths)
        self._past.forget_ancestry(slots)
        starts = torch.stack([each.start_mark for each in encoded], dim=1)
        sources = list(map(torch.cat, zip(*(each.source for each in encoded), strict=True)))
        self._write(self._memory.parts, runs, lengths, sources)
        self._write(self._past.parts, runs, [1] * len(slots), starts)

    def _write(
        self,
        parts: SlotParts,
        runs: Sequence[Run],
        lengths: Sequence[int],
        of_layers: Iterable[Tensor],
    ) -> None:
        """Write the rows of each layer, of sentences of these ``lengths``, into slots."""
        rows_of_runs = [sum(lengths[run.asked]) for run in runs]
        for number, of_layer in enumerate(of_layers):
            entries = parts.layer(number)
            for run, rows in zip(runs, of_layer.split(rows_of_runs), strict=True):
                self._layers.write(rows, lengths[run.asked], run.slots, entries[run.part])

    @torch.no_grad()
    def step(self, state: StepInput) -> Tensor:
        """Return the logits [R, V] of the next token of each hypothesis in busy slots."""
        is_free = state.is_free
        self._past.advance(state.parents, is_free)
        tokens, positions, is_busy = state.tokens.numpy(), state.positions.numpy(), ~is_free.numpy()
        return self._layers.step(
            *(torch.from_numpy(tokens[is_busy]), torch.from_numpy(positions[is_busy])),
            num_positions=int(positions.max()) + 1,
            parts=self._parts(is_busy),
        )

    def _parts(self, is_busy: NDArray[np.bool_]) -> list[PartOfStep]:
        """Return what the slots that are busy [S] attend to in the step that has begun."""
        past, memory = self._past, self._memory
        is_past, places = map(torch.from_numpy, (past.is_past, past.places))
        lengths = torch.tensor(memory.lengths, device="cpu")
        return [
            PartOfStep(
                of_past,
                of_memory,
                places[part],
                is_past[part],
                lengths[part],
                torch.from_numpy(is_busy[part].nonzero()[0]),
            )
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
