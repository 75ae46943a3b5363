"""The Transformer of the search with the layers of the library for CPUs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nmt_cli.hardware.memory import return_freed_memory
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.model.compiled.layers import CompiledLayers, OutputLists, Sentences, Steps
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.search.beams import StepInput
from nmt_cli.search.compiled_logits import CompiledBeams, CompiledLogits
from nmt_cli.search.sentences import Done, Shortlist

ENCODED_TOKENS = 512  # at once: what the layers compute of them stays in a CPU's cache
# Sentences, until the gaps that those before have left in memory are returned to the kernel. They
# would grow to a quarter of what is in use; filling them again takes less than 0.1 % of the time.
ENCODED_UNTIL_RETURNED = 128


class EncodedEntries(NamedTuple):
    """What all hypotheses of a sentence attend to, as ``CompiledLayers`` lays out entries."""

    source: Array
    start: Array  # one entry: that of the start mark


class CompiledTransformer:
    """A ``StepModel`` whose layers the library for CPUs computes. Not to be shared by threads."""

    def __init__(self, packed: PackedModel) -> None:
        self.c_library = packed.c_library
        self._layers = CompiledLayers(packed)
        self._num_encoded = 0  # sentences, since freed memory was returned
        self._empty(0, 1)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Make room for ``num_slots`` sentences of ``beam_size`` hypotheses.

        Caches of this size are kept: nothing of a slot is read before ``start`` wrote a sentence
        there.
        """
        past = self._past.structure
        if not num_slots or (num_slots, beam_size) != (past.S, past.K):
            self._empty(num_slots, beam_size)

    def _empty(self, num_slots: int, beam_size: int) -> None:
        self._layers.free_memory()
        self._past = self._layers.new_past(num_slots, beam_size)
        self._sources: list[Array | None] = [None] * num_slots
        self._locations = self._layers.locations(self._sources)

    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[EncodedEntries], CompiledLogits]:
        """Return what each sentence is for ``start``, and the logits [B, V] of its first token."""
        self._num_encoded += len(sentences)
        if self._num_encoded >= ENCODED_UNTIL_RETURNED:
            self._num_encoded = 0
            return_freed_memory()
        found, firsts = list[EncodedEntries](), []
        for group in _groups(sentences):
            sources = self._layers.encode(Sentences.of(group))
            starts, rows = self._layers.first(start_mark, sources)
            found += map(EncodedEntries, sources, starts)
            firsts.append(rows.copy())
        rows = np.concatenate(firsts)
        return found, CompiledLogits(rows, self.c_library, layers=self._layers)

    def start(self, slots: Sequence[int], encoded: Sequence[EncodedEntries]) -> None:
        """Put each sentence into one of ``slots``; its hypotheses consist of the start mark."""
        for slot, each in zip(slots, encoded, strict=True):
            self._sources[slot] = each.source
        self._locations[slots] = self._layers.locations([each.source for each in encoded])
        self._past.start(slots, [each.start for each in encoded])

    def step(self, state: StepInput) -> CompiledLogits:
        """Return the logits [R, V] of the next tokens in slots that take part.

        They are valid until the next step.
        """
        tokens, parents, positions = state
        self._past.advance(parents, positions)
        slots = np.flatnonzero(positions)
        rows = self._layers.step(tokens, positions, slots, self._past.structure, self._locations)
        return CompiledLogits(rows, self.c_library, layers=self._layers)

    def make_steps(
        self,
        beams: CompiledBeams,
        takes_part: Array,
        shortlists: Sequence[Shortlist | None],
        most: int,
        enough: int,
    ) -> tuple[list[Done], CompiledLogits | None]:
        """Make up to ``most`` steps of slots [S] without rules, until ``enough`` are done.

        Returns the sentences that are done, which no longer take part. If some logits are not
        numbers, those of the last step are returned too, which has not continued the hypotheses.
        """
        beams.make_room(most)
        bos_id, eos_id = beams.settings.bos_id, beams.settings.eos_id
        lists = None
        if any(shortlists):
            lists = OutputLists([each.location if each else (0, 0, 0) for each in shortlists])
        steps = Steps(
            beams.address,
            beams.address_of_candidates,
            beams.done,
            self._past.structure,
            self._locations,
            takes_part,
            lists,
            num_positions=int(np.minimum(beams.lengths + most, beams.longest + 1).max()),
            start=-1 if bos_id == eos_id else bos_id,
        )
        num_done, rows = self._layers.make_steps(steps, most, enough)
        logits = None if rows is None else CompiledLogits(rows, self.c_library, layers=self._layers)
        return beams.release(num_done), logits

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i."""
        self._past.keep_slots(slots)
        self._sources = [self._sources[slot] for slot in slots]
        self._locations = self._locations[list(slots)]

    def forget(self, slots: Sequence[int]) -> None:
        """Do nothing: no entry of an earlier sentence is read."""


def _groups(sentences: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Yield ``sentences`` in groups of at most ENCODED_TOKENS together, or of one."""
    group: list[Sequence[int]] = []
    for sentence in sentences:
        if group and sum(map(len, group)) + len(sentence) > ENCODED_TOKENS:
            yield group
            group = []
        group.append(sentence)
    yield group
