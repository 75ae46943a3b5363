"""The state of a beam search: the live hypotheses of each slot, and those that have ended.

It is kept in numpy on the CPU, whatever device the model computes on.

Legend: S slots, K beam, C candidates of a slot (best first), L positions of a hypothesis, B some of
the slots.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.logits import Candidates
from nmt_cli.search.sentences import IMPOSSIBLE, Done, Hypothesis, SearchSettings, Sentence

FIRST_ROOM = 32  # for tokens of hypotheses; it is doubled when they are longer
# The arrays of ``Beams``, in the order of the structure in hypotheses.c.
ARRAYS = (
    "numbers lengths longest n_best beam_sizes ends_needed num_ended alphas "
    "_to_beat scores _totals tokens parents _prefixes"
)


def length_penalty(length: Any, alpha: Any) -> Any:
    """Return GNMT's lp = ((5 + length) / 6) ^ alpha; ``length`` includes </s>."""
    return ((5.0 + length) / 6.0) ** alpha


def ranks_in_beam(lives: Any, ranks: Any) -> Any:
    """Return the ranks of candidates [B, C] with those that are live first.

    The least K are the new beam, in this order. ``ranks`` are 0, 1, 2 ... [C]. This is for arrays
    of the CPU and for tensors of a device (``DeviceBeams``).
    """
    return ranks + len(ranks) * ~lives


class StepInput(NamedTuple):
    """The changes of the hypotheses since the last step."""

    tokens: Array  # S K, the newest token of each hypothesis
    parents: Array  # S K, the place in the beam of the hypothesis that this token continued
    # S, the position of the newest token. It is 0 where the slot takes no part, because it is free
    # or holds a sentence that stays as it is in this step; a model returns no logits for it.
    positions: Array


class Beams:
    """The hypotheses of all slots.

    Candidates that end with </s> are set aside if they are among the best K of their slot. The best
    K candidates that do not end are the new beam.

    A sentence is done in either of two cases. First, no live hypothesis can still become one of the
    n best: its log-probability can only fall, and its length penalty is at most that of the longest
    output. Second, K hypotheses have ended and no live one has a better score now than the n best
    of them; therefore a beam of 1 is greedy search. Half of K are enough in a beam that is shared
    between banks, because only the hypotheses of one bank can end.
    """

    _arrays: tuple[str, ...] = tuple(ARRAYS.split())
    _arrays_of_tokens: tuple[str, ...] = ("_prefixes", "_totals")  # with a room that grows

    def __init__(self, num_slots: int, settings: SearchSettings) -> None:
        self.settings = settings
        shape = (num_slots, settings.beam_size)
        # ``CompiledBeams`` hands over the addresses of its arrays. Only ``keep`` and ``make_room``
        # may replace one; everything else writes in place.
        self.numbers = np.full(num_slots, -1, np.int64)  # the sentence in each slot; -1: free
        self.lengths = np.zeros(num_slots, np.int64)  # tokens so far, equal in all of a beam
        self.longest = np.zeros(num_slots, np.int64)  # tokens allowed before </s>
        self.n_best = np.ones(num_slots, np.int64)  # hypotheses to find, at most K
        # Live hypotheses, at most K, and those that have ended when a sentence is done.
        self.beam_sizes = np.full(num_slots, settings.beam_size, np.int64)
        self.ends_needed = np.full(num_slots, settings.beam_size, np.int64)
        self.alphas = np.full(num_slots, float(settings.length_penalty))
        self.scores = np.full(shape, -np.inf, np.float32)  # -inf: no hypothesis there
        self.tokens = np.full(shape, settings.bos_id, np.int64)
        self.parents = np.tile(np.arange(settings.beam_size, dtype=np.int64), (num_slots, 1))
        self._prefixes = np.zeros((*shape, FIRST_ROOM), np.int32)  # S K L
        # S K L, the log-probability of each prefix, if the scores of tokens are asked for
        has_totals = settings.token_scores
        self._totals = np.zeros((*shape, FIRST_ROOM), np.float32) if has_totals else None
        self.ended: list[list[Hypothesis]] = [[] for _ in range(num_slots)]  # best first
        self.num_ended = np.zeros(num_slots, np.int64)
        self._to_beat = np.full(num_slots, -np.inf)  # score of the n-th best that ended

    @property
    def is_busy(self) -> Array:
        """Which slots [S] hold a sentence."""
        return self.numbers >= 0

    @property
    def num_busy(self) -> int:
        """The number of slots that hold a sentence."""
        return int(np.count_nonzero(self.numbers >= 0))

    @property
    def prefixes(self) -> Array:
        """The tokens [S, K, L] of the hypotheses; those beyond a slot's length are meaningless."""
        return self._prefixes[:, :, : int(self.lengths.max(initial=0))]

    def start(
        self, slots: Sequence[int], numbers: Sequence[int], sentences: Sequence[Sentence]
    ) -> None:
        """Begin a sentence in each of ``slots``, with one empty hypothesis."""
        settings = self.settings
        self.free(slots)
        self.numbers[slots] = numbers
        self.longest[slots] = [each.longest_output for each in sentences]
        self.n_best[slots] = [each.n_best or settings.n_best for each in sentences]
        self.beam_sizes[slots] = [each.beam_size or settings.beam_size for each in sentences]
        is_shared = np.array([each.shares_beam for each in sentences])
        half = np.maximum(self.n_best[slots], (self.beam_sizes[slots] + 1) // 2)
        self.ends_needed[slots] = np.where(is_shared, half, self.beam_sizes[slots])
        self.alphas[slots] = [
            settings.length_penalty if each.length_penalty is None else each.length_penalty
            for each in sentences
        ]
        self.scores[slots, 0] = 0.0

    def advance(self, slots: Array, candidates: Candidates) -> list[Done]:
        """Replace the hypotheses in ``slots`` [B] by ``candidates``, their best continuations.

        Returns the sentences of all slots that are done now.
        """
        scores, parents, tokens = candidates
        exists = (scores > -np.inf) & self.is_busy[slots, None]
        ends = exists & (tokens == self.settings.eos_id)
        lives = exists & ~ends
        beam_sizes = self.beam_sizes[slots, None]
        ending = (ends & (np.arange(scores.shape[1]) < beam_sizes)).nonzero()
        for row, rank in zip(*(each.tolist() for each in ending), strict=True):
            self._end(int(slots[row]), int(parents[row, rank]), float(scores[row, rank]))
        ranks = ranks_in_beam(lives, np.arange(scores.shape[1]))
        chosen = np.argsort(ranks, axis=1)[:, : self.settings.beam_size]
        rows = np.arange(len(slots))[:, None]  # take_along_axis takes three times as long
        self.parents[slots] = parents[rows, chosen]
        self.tokens[slots] = tokens[rows, chosen]
        is_in_beam = lives[rows, chosen] & (np.arange(chosen.shape[1]) < beam_sizes)
        self.scores[slots] = np.where(is_in_beam, scores[rows, chosen], -np.inf)
        self.free(slots[~self.is_busy[slots]])
        self._append_tokens(slots)
        return self._release(np.flatnonzero(self._is_done()).tolist())

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots."""
        for name in self._arrays:
            if (array := getattr(self, name)) is not None:
                setattr(self, name, array[slots])
        self.ended = [self.ended[slot] for slot in slots]

    def add(self, number: int) -> None:
        """Add so many free slots at the end."""
        old = len(self.numbers)
        self.keep([*range(old), *[0] * number])  # what the copies hold is cleared
        self.free(range(old, old + number))

    def _append_tokens(self, slots: Array) -> None:
        self.make_room()
        lengths, parents = self.lengths[slots], self.parents[slots]
        used = int(lengths.max())
        self._prefixes[slots, :, :used] = self._prefixes[slots[:, None], parents, :used]
        self._prefixes[slots, :, lengths] = self.tokens[slots]
        if self._totals is not None:
            self._totals[slots, :, :used] = self._totals[slots[:, None], parents, :used]
            self._totals[slots, :, lengths] = self.scores[slots]
        self.lengths[slots] += self.is_busy[slots]

    def make_room(self, more: int = 1) -> None:
        """Make room for so many more tokens of each hypothesis."""
        while self.lengths.max() + more > self._prefixes.shape[2]:
            for name in self._arrays_of_tokens:
                if (array := getattr(self, name)) is not None:  # S K L, with twice the room
                    setattr(self, name, np.concatenate([array, np.zeros_like(array)], axis=2))

    def _end(self, slot: int, parent: int, log_probability: float) -> None:
        length, n_best = int(self.lengths[slot]), int(self.n_best[slot])
        score = log_probability / length_penalty(length + 1, float(self.alphas[slot]))
        self.num_ended[slot] += 1
        if score <= self._to_beat[slot]:
            return  # n better ones have ended
        prefix = self._prefixes[slot, parent, :length]
        totals = None if self._totals is None else self._totals[slot, parent, :length]
        best = [*self.ended[slot], hypothesis_of(prefix, totals, log_probability, score)]
        best.sort(key=lambda hypothesis: -hypothesis.score)
        self.ended[slot] = best[:n_best]
        if len(best) >= n_best:
            self._to_beat[slot] = best[n_best - 1].score

    def _is_done(self) -> Array:
        best_live = self.scores.max(axis=1)
        is_done = self.is_busy & (best_live == -np.inf)
        for slot in np.flatnonzero(self.is_busy & ~is_done & (self._to_beat > -np.inf)).tolist():
            is_done[slot] = self._is_beaten(slot, float(best_live[slot]))
        return is_done

    def _is_beaten(self, slot: int, best_live: float) -> bool:
        # Numbers of Python, as in ``_end``: numpy rounds some powers in another way.
        alpha, to_beat = float(self.alphas[slot]), float(self._to_beat[slot])
        if best_live / length_penalty(int(self.longest[slot]) + 1, alpha) <= to_beat:
            return True
        does_not_win = best_live / length_penalty(int(self.lengths[slot]), alpha) <= to_beat
        return bool(self.num_ended[slot] >= self.ends_needed[slot] and does_not_win)

    def _release(self, slots: Sequence[int]) -> list[Done]:
        """Free ``slots``; return their sentences, which are done."""
        done = [(int(self.numbers[slot]), self.ended_in(slot) or IMPOSSIBLE) for slot in slots]
        self.free(slots)
        return done

    def ended_in(self, slot: int) -> tuple[Hypothesis, ...]:
        """Return the best hypotheses of a slot that have ended, best first."""
        return tuple(self.ended[slot])

    def free(self, slots: Sequence[int] | Array) -> None:
        """Free ``slots``; nothing is kept of their sentences."""
        if not len(slots):
            return  # what follows takes a tenth of a step of one sentence
        self.numbers[slots] = -1
        self.lengths[slots] = 0
        self.scores[slots] = -np.inf
        self.tokens[slots] = self.settings.bos_id
        self.parents[slots] = np.arange(self.settings.beam_size)
        self.num_ended[slots] = 0
        self._to_beat[slots] = -np.inf
        for slot in slots:
            self.ended[slot] = []


def hypothesis_of(
    prefix: Array, totals: Array | None, log_probability: float, score: float
) -> Hypothesis:
    """Return a hypothesis of the tokens ``prefix`` [L], with their total scores if wanted."""
    of_tokens: tuple[float, ...] = ()
    if totals is not None:
        of_tokens = tuple(np.diff([0.0, *totals.tolist(), log_probability]).tolist())
    return Hypothesis(tuple(prefix.tolist()), log_probability, score, of_tokens)
