"""Beam search whose steps run ahead on a GPU, while the CPU keeps the books of the steps before.

Legend: S slots, K beam.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from nmt_cli.hardware.cuda_graphs import Readback
from nmt_cli.search.beams import Candidates, Found, SearchSettings
from nmt_cli.search.graphed.device_beams import StepReport
from nmt_cli.search.graphed.model import GraphedTransformer, size_for, size_within
from nmt_cli.search.search import BeamSearch
from nmt_cli.search.sentences import Sentence

# Steps that are launched together. While they run, the CPU reads the reports of those before. So a
# slot is refilled up to twice as many steps after its sentence is done; these waste its rows.
STEPS_AT_ONCE = 2


class _Launched(NamedTuple):
    """Steps that were launched together and whose reports have not been read."""

    first: int  # the number of the first of them
    reports: Readback


class SearchAhead(BeamSearch[GraphedTransformer]):
    """Beam search without further rules, the same as ``Search``.

    Steps follow each other on the device. What they reported is read when the next ones have been
    launched, and ``Beams`` repeats each step on the CPU. The device continues a sentence until the
    CPU has read that it is done; those further steps are ignored.
    """

    def __init__(self, model: GraphedTransformer, num_slots: int, settings: SearchSettings) -> None:
        """Make room for ``num_slots`` sentences, rounded down to a size for graphs."""
        super().__init__(model, size_within(num_slots), settings)
        self._launched: deque[_Launched] = deque()
        self._num_launched = 0  # steps
        self._first_steps = np.zeros(self.num_slots, np.int64)  # of the sentence in each slot
        self._changed: set[int] = set()  # slots to copy to the device before the next launch
        self._last_read = -1  # the number of a step
        self._num_places = 1  # the highest used place of the past + 1, after that step

    @property
    def has_slots_to_drop(self) -> bool:
        """Whether half of the slots suffice for the sentences that are left."""
        num_busy = self.num_slots - self.num_free_slots
        return size_for(max(1, num_busy)) <= self.num_slots // 2

    def accepts(self, sentence: Sentence) -> bool:
        """Return whether ``sentence`` needs neither rules nor a choice of its own."""
        return not sentence.has_rules

    def slots_within(self, most: int) -> int:
        """Return the largest size for graphs that is not above ``most``."""
        return size_within(most)

    def step(self) -> list[Found]:
        """Launch some steps, read those before; return the sentences that were done in them."""
        done = self._begin_ahead()
        if self.is_busy:
            self._launch()
        if len(self._launched) > 1:
            done += self._read_oldest()
        return done

    def add_slots(self, number: int, most: int) -> list[Found]:
        """Read all reports, and make room for ``number`` more sentences, as far as ``most`` allows.

        Returns the sentences that are done.
        """
        done = self._read_all()
        size = min(size_for(self.num_slots + number), size_within(most))
        if size > self.num_slots:
            self._resize(size)
        return done

    def drop_free_slots(self) -> list[Found]:
        """Read all reports, and drop as many free slots as leave one of the sizes.

        Returns the sentences that are done.
        """
        done = self._read_all()
        if self.is_busy:
            self._resize(size_for(self.num_slots - self.num_free_slots))
        return done

    def _read_all(self) -> list[Found]:
        done = self._begin_ahead()
        while self._launched:
            done += self._read_oldest()
        return done

    def _resize(self, num_slots: int) -> None:
        """Keep the sentences that are not done, and so many free slots as make ``num_slots``."""
        kept = np.flatnonzero(self._beams.is_busy).tolist() or [0]
        num_free = num_slots - len(kept)
        self._model.keep_slots([*kept, *[kept[0]] * num_free])
        self._beams.keep(kept)
        self._beams.add(num_free)
        self._sentences = [*(self._sentences[slot] for slot in kept), *[None] * num_free]
        self._first_steps = np.full(num_slots, self._num_launched)
        self._changed = set(range(num_slots))

    def _begin_ahead(self) -> list[Found]:
        newcomers = np.flatnonzero(self._beams.is_busy & (self._beams.lengths == 0))
        self._first_steps[newcomers] = self._num_launched
        self._changed.update(newcomers.tolist())
        return self._begin()

    def _launch(self) -> None:
        beam_size = self._beams.settings.beam_size
        if self._changed:
            self._model.copy_beams(self._beams, sorted(self._changed))
            self._changed.clear()
        # Each step uses at most K more places.
        unread = self._num_launched + STEPS_AT_ONCE - 1 - self._last_read
        num_places = self._num_places + beam_size * unread
        # The device keeps the length of a sentence that is done within what is allowed, too.
        longest = int(self._beams.longest[self._beams.is_busy].max(initial=0))
        num_positions = 1 + min(longest, int(self._beams.lengths.max(initial=0)) + unread)
        reports = self._model.steps(STEPS_AT_ONCE, num_places, num_positions)
        self._launched.append(_Launched(self._num_launched, reports))
        self._num_launched += STEPS_AT_ONCE

    def _read_oldest(self) -> list[Found]:
        """Repeat the oldest steps that were not read; return the sentences that are done."""
        first, reports = self._launched.popleft()
        beams, done = self._beams, list[Found]()
        was_busy = beams.is_busy
        for number, tensor in enumerate(reports.read(), start=first):
            report = StepReport.unpacked(tensor)
            takes_part = self._first_steps <= number
            done += self._fail(np.flatnonzero(report.is_nan & takes_part & beams.is_busy).tolist())
            slots = np.flatnonzero(takes_part & beams.is_busy)
            candidates = Candidates(*(each[slots] for each in report.candidates))
            if len(slots):
                done += beams.advance(slots, candidates)
            self._num_places, self._last_read = report.num_places, number
        self._changed.update(np.flatnonzero(was_busy & ~beams.is_busy).tolist())
        return done
