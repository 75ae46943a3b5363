"""Candidates of a beam that is shared between banks: what continues lines with required phrases.

A bank holds the hypotheses that need equally many pieces to meet all constraints (Post and Vilar
2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural Machine
Translation"). Without banks, a hypothesis that writes an unlikely phrase would leave the beam
before the rest of its sentence could show that the phrase fits there. All slots are computed
together (Hu et al. 2019, "Improved Lexically Constrained Decoding for Translation and Monolingual
Rewriting").

Legend: S slots, K hypotheses of each, V vocabulary, C best continuations of a hypothesis; B slots
with constraints, Q constraints, T different pieces of their phrases, N states of all automata,
L positions, M continuations of a slot.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.logits import Banned, Candidates, Logits
from nmt_cli.search.rules.phrases import ANY_NUMBER, REQUIRED, RequiredPhrases
from nmt_cli.search.rules.rule import SlotStates, rows_of

# How many continuations the bank that needs the fewest pieces gets in each turn; others get one.
# With 2, BLEU and the model's scores are higher than with 1, and the search ends earlier.
PLACES_OF_NEAREST = 2
NO_BANK = 1 << 31  # more than any number of pieces


class _Places(NamedTuple):
    """Where hypotheses of B slots are in the automata of their slots."""

    states: Array  # B any
    # B any Q, how often constraints are met whatever follows. The state may meet them once more,
    # but a next piece that continues the last word of a phrase breaks it.
    met_before: Array


class _Automata(NamedTuple):
    """The automata of B slots in common tables, padded to the most constraints and pieces."""

    slots: Array  # B
    data: list[RequiredPhrases]  # B
    roots: Array  # B, the state in which no phrase is begun
    next: Array  # N T+1; the last column is for pieces that are in no phrase
    met: Array  # N Q
    stays_met: Array  # N Q
    begun: Array  # N Q
    fewest: Array  # B Q; padding needs 0 pieces
    least: Array  # B Q, how often a constraint must be met
    most: Array  # B Q, how often it may be met
    pieces: Array  # B T; padding is -1
    added: Array  # B T+1, what each hypothesis is also continued by: the pieces and the end
    continuing: Array  # V, the pieces that continue a word; V = 0 if there are none

    @classmethod
    def of(cls, data: Mapping[int, RequiredPhrases], eos_id: int) -> "_Automata":
        """Join the tables of ``data``, those of the sentence in each slot."""
        each = list(data.values())
        num_pieces = max(len(one.pieces) for one in each)
        num_constraints = max(len(one.constraints) for one in each)
        sizes = np.array([len(one.next) for one in each])
        roots = sizes.cumsum() - sizes
        following = np.empty((sizes.sum(), num_pieces + 1), np.int64)
        for root, size, one in zip(roots, sizes, each, strict=True):
            following[root : root + size] = root  # also in columns of padding
            following[root : root + size, : len(one.pieces)] = root + one.next[:, :-1]

        def joined(tables: list[Array], padding: int, width: int) -> Array:
            wide = [
                np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=padding)
                for table in tables
            ]
            return np.concatenate(wide)

        pieces = joined([np.array([one.pieces]) for one in each], -1, num_pieces)
        return cls(
            np.array(list(data)),
            each,
            roots,
            following,
            joined([one.met for one in each], False, num_constraints),
            joined([one.stays_met for one in each], False, num_constraints),
            joined([one.begun for one in each], 0, num_constraints),
            joined([one.fewest[None] for one in each], 0, num_constraints),
            joined([one.least[None] for one in each], 0, num_constraints),
            joined([one.most[None] for one in each], ANY_NUMBER, num_constraints),
            pieces,
            np.pad(pieces, ((0, 0), (0, 1)), constant_values=eos_id),
            next((one.continuing for one in each if one.continuing is not None), np.zeros(0, bool)),
        )

    def continue_words(self, tokens: Array) -> Array:
        """Return which ``tokens`` continue a word."""
        if not len(self.continuing):
            return np.zeros(tokens.shape, np.bool_)
        return self.continuing[tokens]

    def read(self, states: SlotStates) -> _Places:
        """Return the places of all hypotheses [B, K]."""
        lengths = states.lengths[self.slots]
        tokens = states.prefixes[self.slots, :, : int(lengths.max(initial=0))]  # B K L
        columns, continuing = self._columns(tokens), self.continue_words(tokens)
        places = _Places(
            np.repeat(self.roots[:, None], states.beam_size, axis=1),
            np.zeros((*tokens.shape[:2], self.met.shape[1]), np.int16),
        )
        for position in range(tokens.shape[2]):
            following = self.follow(places, columns[:, :, position], continuing[:, :, position])
            goes_on = (position < lengths)[:, None]
            places = _Places(
                np.where(goes_on, following.states, places.states),
                np.where(goes_on[:, :, None], following.met_before, places.met_before),
            )
        return places

    def _columns(self, tokens: Array) -> Array:
        """Return the column of each of ``tokens`` [B, K, L] in the table of its slot."""
        row, column = (self.pieces >= 0).nonzero()
        width = int(max(tokens.max(initial=0), self.pieces.max())) + 1
        keys = row * width + self.pieces[row, column]
        order = np.argsort(keys)
        wanted = np.arange(len(tokens))[:, None, None] * width + tokens
        found = order[np.searchsorted(keys, wanted, sorter=order).clip(max=len(keys) - 1)]
        return np.where(keys[found] == wanted, column[found], self.pieces.shape[1])

    def follow(self, places: _Places, columns: Array, continuing: Array) -> _Places:
        """Return the places after one more piece, given by its column."""
        met = np.where(
            continuing[..., None], self.stays_met[places.states], self.met[places.states]
        )
        return _Places(self.next[places.states, columns], places.met_before + met)

    def times_met(self, places: _Places) -> Array:
        """Return how often each constraint is met if no word goes on, [B, any, Q]."""
        return places.met_before + self.met[places.states]

    def missing(self, places: _Places) -> Array:
        """Return how many pieces meet all constraints if phrases do not overlap, [B, any]."""
        left = (_like(self.least, places.states) - self.times_met(places)).clip(min=0)
        saved = (self.begun[places.states] * (left > 0)).max(axis=-1)
        return (_like(self.fewest, places.states) * left).sum(axis=-1) - saved

    def are_too_many(self, places: _Places) -> Array:
        """Return where a constraint is met more often than it may be, [B, any]."""
        if (self.most == ANY_NUMBER).all():
            return np.zeros(places.states.shape, np.bool_)
        return np.any(self.times_met(places) > _like(self.most, places.states), axis=-1)

    def fit(self, places: _Places, missing: Array, room: Array) -> Array:
        """Return where ``room`` [B] suffices for the ``missing`` pieces [B, K, C + T + 1].

        Phrases that overlap need fewer pieces than ``missing``. How many takes longer to compute,
        so it is computed only where ``missing`` does not fit.
        """
        fits = missing <= room[:, None, None]
        for place in np.argwhere(~fits).tolist():
            number, state = place[0], int(places.states[tuple(place)])
            own = self.data[number]
            met = places.met_before[tuple(place)] + self.met[state]
            fewest = own.fewest_from(state - int(self.roots[number]), met[: len(own.constraints)])
            fits[tuple(place)] = fewest <= room[number]
        return fits


def _like(of_slots: Array, states: Array) -> Array:
    """Return ``of_slots`` [B, Q] in a shape that fits a value of each of ``states`` [B, any]."""
    return of_slots.reshape(len(of_slots), *[1] * (states.ndim - 1), -1)


class ConstrainedCandidates:
    """The best continuations of each bank in turns; the best ones of slots without constraints.

    ``Sentence.rule_data`` holds ``RequiredPhrases``. Each hypothesis is continued by its best
    tokens, by all pieces of its phrases and by its end. No candidate ends before all constraints
    are met, none leaves too little room for those that are not, and none meets one more often than
    it may. The best end comes first: behind a phrase that the model finds unlikely, repetitions may
    be likelier than every end until the room is used up.
    """

    name, needs_data = REQUIRED, True

    def __init__(self, number: int, eos_id: int) -> None:
        """Each slot gets ``number`` candidates."""
        self._number, self._eos_id = number, eos_id
        self._data: dict[int, RequiredPhrases] = {}
        self._automata: _Automata | None = None  # of this data

    def candidates(self, logits: Logits, scores: Array, states: SlotStates) -> Candidates:
        """Return continuations of each slot's hypotheses."""
        if not states.data:
            return logits.best_of_slots(scores, self._number)
        if self._automata is None or states.data != self._data:
            # The tables are made anew only when sentences come or go.
            self._data = dict(states.data)
            self._automata = _Automata.of(self._data, self._eos_id)
        automata, slots = self._automata, self._automata.slots
        places = automata.read(states)
        taken = self._taken_out(logits, automata, automata.missing(places), states)
        values, tokens = logits.best_of_rows(self._number)
        shape, so_far = (*scores.shape, values.shape[1]), scores[:, :, None]
        totals, tokens = values.reshape(shape) + so_far, tokens.reshape(shape)
        found = Candidates.best_of(totals, tokens, self._number)
        # The padding is an existing token, because the model also computes rows of no hypothesis.
        added = automata.added.clip(min=0)[:, None].repeat(states.beam_size, axis=1)
        in_turns = self._in_turns(
            automata,
            places,
            np.concatenate([totals[slots], taken + so_far[slots]], axis=2),
            np.concatenate([tokens[slots], added], axis=2),
            (states.longest - states.lengths - 1)[slots].clip(min=0),
        )
        found.put(slots, in_turns)
        return found

    @staticmethod
    def _taken_out(
        logits: Logits, automata: _Automata, missing: Array, states: SlotStates
    ) -> Array:
        """Return the log-probabilities [B, K, T + 1] of the pieces of phrases and the end.

        They are banned then, so they and the best tokens are different continuations. Where
        constraints are ``missing``, there is no end.
        """
        exists = (automata.added >= 0)[:, None].repeat(states.beam_size, axis=1)
        taken = np.full(exists.shape, -np.inf, np.float32)
        number, hypothesis, column = exists.nonzero()
        rows = rows_of(automata.slots, states)[number, hypothesis]
        tokens = automata.added[number, column]
        taken[exists] = logits.log_probabilities(rows, tokens)
        logits.restrict(Banned(rows, tokens))
        taken[missing > 0, -1] = -np.inf
        return taken

    def _in_turns(
        self, automata: _Automata, places: _Places, totals: Array, tokens: Array, room: Array
    ) -> Candidates:
        """Return candidates of B slots in the order in which they get places in the beam.

        In each turn, each bank gets a place for its best continuation that has none; the bank that
        needs the fewest pieces comes first and gets ``PLACES_OF_NEAREST``. ``totals`` and
        ``tokens`` [B, K, C + T + 1] are the scores and last tokens of continuations. The last of
        these are all pieces of phrases and the end.
        """
        num_pieces = automata.pieces.shape[1]
        columns = np.full(tokens.shape[2], num_pieces)
        columns[-num_pieces - 1 :] = np.arange(num_pieces + 1)
        before = _Places(places.states[:, :, None], places.met_before[:, :, None])
        after = automata.follow(before, columns, automata.continue_words(tokens))
        missing = automata.missing(after)
        exists = (totals > -np.inf) & ~automata.are_too_many(after)
        exists &= automata.fit(after, np.where(exists, missing, 0), room)
        flat = (len(totals), -1)
        totals = np.where(exists, totals, -np.inf)
        best_end = totals[:, :, -1].argmax(axis=1) * totals.shape[2] + totals.shape[2] - 1
        totals = totals.reshape(flat)
        order = _order_of_turns(totals, missing.reshape(flat), best_end)[:, : self._number]
        return Candidates(
            np.take_along_axis(totals, order, 1),
            order // tokens.shape[2],
            np.take_along_axis(tokens.reshape(flat), order, 1),
        )


def _order_of_turns(totals: Array, banks: Array, first: Array) -> Array:
    """Return the order of continuations [B, M]: by turn, bank and total; -inf comes last.

    ``first`` [B] comes before the others if it is not -inf.
    """
    banks = np.where(totals == -np.inf, NO_BANK, banks)
    by_total = np.argsort(-totals, axis=1, kind="stable")
    sorted_banks = np.take_along_axis(banks, by_total, 1)
    by_bank = np.argsort(sorted_banks, axis=1, kind="stable")
    sorted_banks = np.take_along_axis(sorted_banks, by_bank, 1)
    places = np.arange(totals.shape[1])
    is_first = np.ones(totals.shape, np.bool_)
    is_first[:, 1:] = sorted_banks[:, 1:] != sorted_banks[:, :-1]
    in_bank = places - np.maximum.accumulate(np.where(is_first, places, 0), axis=1)
    turns = np.where(sorted_banks == sorted_banks[:, :1], in_bank // PLACES_OF_NEAREST, in_bank)
    ranks = turns * (1 + banks.max(initial=0)) + sorted_banks
    by_total = np.take_along_axis(by_total, by_bank, 1)
    ranks[by_total == first[:, None]] = -1
    ranks[sorted_banks == NO_BANK] = np.iinfo(ranks.dtype).max
    # A stable sort: the best of the continuations that one bank gets in one turn comes first.
    return np.take_along_axis(by_total, np.argsort(ranks, axis=1, kind="stable"), 1)
