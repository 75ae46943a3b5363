"""Beam search whose steps run ahead on a GPU, while the CPU keeps the books of the steps before.

Legend: S slots, K beam.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from nmt_cli.decoding.beams import Candidates, Found, SearchSettings
from nmt_cli.decoding.graphed.books import StepReport
from nmt_cli.decoding.graphed.frames import size_for, size_within
from nmt_cli.decoding.graphed.model import GraphedTransformer
from nmt_cli.decoding.search import SlotSearch
from nmt_cli.hardware.cuda_graphs import Readback

# Steps that are launched together. While they run, the CPU reads the reports of those before. So a
# slot is refilled some steps after its sentence was done; more steps would waste more of its rows.
STEPS_AT_ONCE = 2


class _Launched(NamedTuple):
    """Steps on their way."""

    first: int  # the number of the first of them
    reports: Readback


class SearchAhead(SlotSearch):
    """Beam search without further rules, the same as ``Search``.

    Steps follow each other on the device. What they reported is read when the next ones have been
    launched, and ``Beams`` does each step again on the CPU. Slots of sentences that are done go on
    until then; these steps are ignored.
    """

    _model: GraphedTransformer

    def __init__(self, model: GraphedTransformer, num_slots: int, settings: SearchSettings) -> None:
        """Make room for ``num_slots`` sentences at a time, or somewhat fewer."""
        super().__init__(model, size_within(num_slots), settings)
        self._launched: deque[_Launched] = deque()
        self._num_launched = 0  # steps
        self._first_steps = np.zeros(self.num_slots, np.int64)  # of the sentence in each slot
        self._changed: set[int] = set()  # slots that the device has to learn about
        self._is_dropping = False
        # After step number _read, this many places of the past are in use.
        self._num_places, self._read = 1, -1

    @property
    def has_slots_to_drop(self) -> bool:
        """Whether half of the slots suffice for the sentences that are left."""
        num_busy = self.num_slots - self.num_free_slots
        return size_for(max(1, num_busy)) <= self.num_slots // 2

    def step(self) -> list[Found]:
        """Launch some steps, read those before; return the sentences that were done in them."""
        done = self._begin_ahead()
        if self._is_dropping:
            done += self._drop()
        if self.is_busy:
            self._launch()
        if len(self._launched) > 1:
            done += self._read_oldest()
        return done

    def drop_free_slots(self) -> None:
        """Drop the slots that are free at the next step."""
        self._is_dropping = True

    def _begin_ahead(self) -> list[Found]:
        newcomers = np.flatnonzero(self._beams.is_busy & (self._beams.lengths == 0))
        self._first_steps[newcomers] = self._num_launched
        self._changed.update(newcomers.tolist())
        return self._begin()

    def _launch(self) -> None:
        beam_size = self._beams.settings.beam_size
        if self._changed:
            self._model.put(sorted(self._changed), self._beams)
            self._changed.clear()
        # Each step uses at most K more places.
        unread = self._num_launched + STEPS_AT_ONCE - 1 - self._read
        num_places = self._num_places + beam_size * unread
        reports = self._model.steps(STEPS_AT_ONCE, num_places)
        self._launched.append(_Launched(self._num_launched, reports))
        self._num_launched += STEPS_AT_ONCE

    def _read_oldest(self) -> list[Found]:
        """Do the oldest steps that were not read in the books; return the sentences done."""
        first, reports = self._launched.popleft()
        beams, done = self._beams, list[Found]()
        was_busy = beams.is_busy
        for number, tensor in enumerate(reports.read(), start=first):
            report = StepReport.read(tensor)
            takes_part = self._first_steps <= number
            done += self._fail(np.flatnonzero(report.is_nan & takes_part & beams.is_busy).tolist())
            slots = np.flatnonzero(takes_part & beams.is_busy)
            candidates = Candidates(*(each[slots] for each in report.candidates))
            if len(slots):
                done += beams.advance(slots, candidates)
            self._num_places, self._read = report.num_places, number
        self._changed.update(np.flatnonzero(was_busy & ~beams.is_busy).tolist())
        return done

    def _drop(self) -> list[Found]:
        """Drop the free slots, as many as leave one of the sizes; return the sentences done."""
        self._is_dropping, done = False, list[Found]()
        while self._launched:
            done += self._read_oldest()
        if not self.is_busy:
            return done
        busy = np.flatnonzero(self._beams.is_busy).tolist()
        num_free = size_for(len(busy)) - len(busy)
        self._model.keep_slots([*busy, *[busy[0]] * num_free])
        self._beams.keep(busy)
        self._beams.add(num_free)
        self._sentences = [*(self._sentences[slot] for slot in busy), *[None] * num_free]
        self._first_steps = np.full(self.num_slots, self._num_launched)
        self._changed = set(range(self.num_slots))
        return done
