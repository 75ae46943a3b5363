"""Beam search whose steps run ahead on a GPU, which also finds what sentences are done.

Legend: S slots, K beam, L positions of a hypothesis, B some of the slots.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from nmt_cli.hardware.device import Readback
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.beams import Beams, hypothesis_of, length_penalty
from nmt_cli.search.graphed.device_beams import StepReport
from nmt_cli.search.graphed.model import GraphedTransformer, size_for, size_within
from nmt_cli.search.search import BeamSearch
from nmt_cli.search.sentences import IMPOSSIBLE, Done, Hypothesis, SearchSettings, Sentence

# Steps that are launched together. While they run, the CPU reads the reports of those before. So a
# slot is refilled up to twice as many steps after its sentence is done; these waste its rows. With
# 4 in place of 2, captions take 10 % more rows and the CPU waits half as often: 5.4 times in 1,000
# tokens of 64 slots. Which is faster was not measured on a GPU; ``make gpu`` does it.
STEPS_AT_ONCE = 4


class GraphedSearch(BeamSearch[GraphedTransformer]):
    """Beam search without further rules, the same as ``Search``.

    Steps follow each other on the device, where the hypotheses are. What they reported is read when
    the next ones have been launched. ``Beams`` decides only the first token of a sentence; then it
    keeps which sentence is in which slot.
    """

    def __init__(self, model: GraphedTransformer, num_slots: int, settings: SearchSettings) -> None:
        """Make room for ``num_slots`` sentences, rounded down to a size for graphs."""
        super().__init__(model, size_within(num_slots), settings)
        # Steps that were launched together and whose reports have not been read: the number of the
        # first, and the reports.
        self._launched = deque[tuple[int, Readback]]()
        self._num_launched = 0  # steps
        self._first_steps = np.zeros(self.num_slots, np.int64)  # of the sentence in each slot
        self._reported = _Reported(self.num_slots, settings)
        self._changed: set[int] = set()  # slots to copy to the device before the next launch
        self._last_read = -1  # the number of a step
        self._num_places = 1  # the highest used place of the past + 1, after that step

    @property
    def has_slots_to_drop(self) -> bool:
        """Whether half of the slots suffice for the sentences that are left."""
        return size_for(max(1, self._beams.num_busy)) <= self.num_slots // 2

    def accepts(self, sentence: Sentence) -> bool:
        """Return whether no rules are needed for ``sentence``."""
        return not sentence.has_rules

    def slots_within(self, most: int) -> int:
        """Return the largest size for graphs that is not above ``most``."""
        return size_within(most)

    def step(self, most: int = 1, enough: int = 1) -> list[Done]:
        """Launch some steps, read those before; return the sentences that were done in them."""
        del most, enough
        done = self._begin_ahead()
        if self.is_busy:
            self._launch()
        if len(self._launched) > 1:
            done += self._read_oldest()
        return done

    def withdraw(self, numbers: Sequence[int]) -> None:
        """Free the slots of these sentences; the device ends them at the next launch."""
        was_busy = self._beams.is_busy
        super().withdraw(numbers)
        self._changed.update(np.flatnonzero(was_busy & ~self._beams.is_busy).tolist())

    def add_slots(self, number: int, most: int) -> list[Done]:
        """Read all reports, and make room for ``number`` more sentences, as far as ``most`` allows.

        Returns the sentences that are done.
        """
        done = self._read_all()
        size = min(size_for(self.num_slots + number), size_within(most))
        if size > self.num_slots:
            self._resize(size)
        return done

    def drop_free_slots(self) -> list[Done]:
        """Read all reports, and drop as many free slots as leave one of the sizes.

        Returns the sentences that are done.
        """
        done = self._read_all()
        if self.is_busy:
            self._resize(size_for(self._beams.num_busy))
        return done

    def _read_all(self) -> list[Done]:
        done = self._begin_ahead()
        while self._launched:
            done += self._read_oldest()
        return done

    def _resize(self, num_slots: int) -> None:
        """Keep the sentences that are not done, and so many free slots as make ``num_slots``."""
        kept = np.flatnonzero(self._beams.is_busy).tolist() or [0]
        num_free = num_slots - len(kept)
        slots = [*kept, *[kept[0]] * num_free]  # what the copies hold does not matter
        self._model.keep_slots(slots)
        self._model.free_from(int(self._beams.is_busy.sum()))
        self._reported.keep(slots)
        self._first_steps = self._first_steps[slots]
        self._changed = {slots.index(slot) for slot in self._changed}
        self._beams.keep(kept)
        self._beams.add(num_free)
        self._sentences = [*(self._sentences[slot] for slot in kept), *[None] * num_free]

    def _begin_ahead(self) -> list[Done]:
        beams = self._beams
        newcomers = np.flatnonzero(beams.is_busy & (beams.lengths == 0))
        done = self._begin()
        newcomers = newcomers[beams.is_busy[newcomers]]
        self._first_steps[newcomers] = self._num_launched
        self._reported.begin(newcomers, beams)
        self._changed.update(newcomers.tolist())
        return done

    def _launch(self) -> None:
        beams, first = self._beams, self._num_launched
        if self._changed:
            self._model.copy_beams(beams, sorted(self._changed))
            self._changed.clear()
        # Each step uses at most K more places.
        unread = first + STEPS_AT_ONCE - 1 - self._last_read
        num_places = self._num_places + beams.settings.beam_size * unread
        longest = int(beams.longest[beams.is_busy].max())
        num_steps = first + STEPS_AT_ONCE - int(self._first_steps[beams.is_busy].min())
        # The device keeps the length of a sentence within what is allowed, too.
        num_positions = 1 + min(longest, num_steps)
        reports = self._model.steps(STEPS_AT_ONCE, num_places, num_positions)
        self._launched.append((first, reports))
        self._num_launched += STEPS_AT_ONCE

    def _read_oldest(self) -> list[Done]:
        """Read the oldest reports; return the sentences that are done."""
        first, launched = self._launched.popleft()
        *of_steps, ended = launched.read()
        reports = list(map(StepReport.unpacked, of_steps))
        slots = np.flatnonzero(self._beams.is_busy & (self._first_steps <= first))
        for number, report in enumerate(reports, start=first + 1):
            self._reported.write(slots, number - self._first_steps[slots], report.beams[slots])
        last = reports[-1]
        self._num_places, self._last_read = last.num_places, first + len(reports) - 1
        done = self._fail(slots[last.have_failed[slots]].tolist())
        is_done = last.are_free & ~last.have_failed
        return done + self._release(slots[is_done[slots]], ended.numpy())

    def _release(self, slots: Array, ended: Array) -> list[Done]:
        """Free ``slots``; return what was found, by the hypotheses that ``ended`` [S, K, 3]."""
        beams = self._beams
        found = self._reported.hypotheses(slots, ended[slots], beams)
        numbers = beams.numbers[slots].tolist()
        done = [(number, each or IMPOSSIBLE) for number, each in zip(numbers, found, strict=True)]
        beams.free(slots)
        return done


class _Reported:
    """What was reported of the hypotheses in each slot: the scores, parents and tokens."""

    def __init__(self, num_slots: int, settings: SearchSettings) -> None:
        self._settings = settings
        self._beams = np.zeros((num_slots, 32, 3, settings.beam_size), np.int32)  # S L 3 K

    def begin(self, slots: Array, beams: Beams) -> None:
        """Write the first tokens of the hypotheses in ``slots`` of ``beams``."""
        scores, parents = beams.scores[slots].view(np.int32), beams.parents[slots]
        self._beams[slots, 0] = np.stack([scores, parents, beams.tokens[slots]], axis=1)

    def write(self, slots: Array, positions: Array, new: Array) -> None:
        """Write the ``new`` beams [B, 3, K] at ``positions`` [B] of the hypotheses in ``slots``."""
        if positions.max(initial=0) >= self._beams.shape[1]:
            self._beams = np.concatenate([self._beams, np.zeros_like(self._beams)], axis=1)
        self._beams[slots, positions] = new

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots."""
        self._beams = self._beams[slots]

    def hypotheses(self, slots: Array, ended: Array, beams: Beams) -> list[tuple[Hypothesis, ...]]:
        """Return the best hypotheses in each of ``slots`` [B], those that ``ended`` [B, K, 3]."""
        is_best = np.arange(ended.shape[1]) < beams.n_best[slots, None]
        rows, ranks = (is_best & (ended[:, :, 0] > -np.inf)).nonzero()
        _, log_probabilities, places = ended[rows, ranks].T
        lengths, last = np.divmod(places.astype(np.int64), self._settings.beam_size)  # with </s>
        beams_of_each = self._followed(slots[rows], lengths - 1, last)
        found: list[list[Hypothesis]] = [[] for _ in slots]
        numbers = rows, lengths, log_probabilities, beams.alphas[slots[rows]]
        for row, length, log_probability, alpha, of_beams in zip(
            *(each.tolist() for each in numbers), beams_of_each, strict=True
        ):
            scores, tokens = of_beams[:, : length - 1]
            score = log_probability / length_penalty(length, alpha)
            totals = None
            if self._settings.token_scores:
                totals = np.ascontiguousarray(scores).view(np.float32)
            found[row].append(hypothesis_of(tokens, totals, log_probability, score))
        return [tuple(sorted(each, key=lambda hypothesis: -hypothesis.score)) for each in found]

    def _followed(self, slots: Array, lengths: Array, last: Array) -> Array:
        """Return the scores and tokens [N, 2, L] of hypotheses in ``slots`` [N].

        Of their ``lengths`` [N], without </s>; ``last`` are the places of their last tokens.
        """
        positions = np.arange(lengths.max(initial=0))
        places = np.empty((len(slots), len(positions)), np.int64)
        for position in positions[::-1].tolist():
            places[:, position] = last
            parents = self._beams[slots, position, 1, last]
            last = np.where(position < lengths, parents, last)
        of_each = slots[:, None], positions, [[[0]], [[2]]], places
        return self._beams[of_each].transpose(1, 0, 2)
