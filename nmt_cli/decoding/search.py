"""Beam search (section 6.1) over sentence slots, for any model that answers ``step``.

Every slot holds one sentence and its beam. A slot whose sentence is done takes the next one, so
that the rows of a step stay busy; when no sentence waits, the empty slots are dropped.

Legend: S slots, K beam, R = S*K rows, V vocabulary, C candidates of a slot.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.beams import Beams, Candidates, Found, SearchSettings
from nmt_cli.decoding.top_k import log_normalizers, top_k

# Empty slots wait for this many others, so that the encoder works on several sentences at once.
REFILLED_SHARE = 1 / 16
DROPPED_SHARE = 1 / 8  # empty slots are dropped this many at a time: each time copies the others


class Sentence(NamedTuple):
    """What to translate."""

    tokens: Sequence[int]  # as the model reads them
    longest_output: int  # tokens, without </s>


class StepInput(NamedTuple):
    """What has happened to the hypotheses since the last step, on the CPU."""

    tokens: Tensor  # S K, the newest token of each hypothesis
    parents: Tensor  # S K, the place it had in its slot's beam before that token
    positions: Tensor  # S, the place of the newest token in its sentence; 0 is the start's


class StepModel(Protocol):
    """What the search asks of a model (or of several, or of a table)."""

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Forget everything and make room for this many sentences and hypotheses of each."""
        ...

    def start(self, slots: Sequence[int], sentences: Sequence[Sequence[int]]) -> None:
        """Put a new sentence into each of ``slots``."""
        ...

    def step(self, state: StepInput) -> Tensor:
        """Return the logits [R, V] of what follows; the search may overwrite them."""
        ...

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, which are numbered anew in this order."""
        ...


def beam_search(
    model: StepModel, sentences: Iterable[Sentence], num_slots: int, settings: SearchSettings
) -> Iterator[Found]:
    """Yield the best hypotheses of each sentence as it is done; sentences are read when needed.

    Give long ones first: then the slots that stay busy at the end hold short ones.
    """
    waiting = enumerate(sentences)
    first = list(islice(waiting, num_slots))
    if not first:
        return
    beams = Beams(len(first), settings)
    model.reset(len(first), settings.beam_size)
    _start(model, beams, range(len(first)), first)
    more_wait = len(first) == num_slots
    while beams.is_busy.any():
        logits = model.step(_step_input(beams))
        yield from beams.advance(_best_candidates(logits, beams))
        empty = np.flatnonzero(~beams.is_busy).tolist()
        if more_wait and len(empty) >= len(beams.numbers) * REFILLED_SHARE:
            newcomers = list(islice(waiting, len(empty)))
            more_wait = len(newcomers) == len(empty)
            _start(model, beams, empty[: len(newcomers)], newcomers)
        if not more_wait:
            _drop_empty_slots(model, beams)


def _start(
    model: StepModel, beams: Beams, slots: Sequence[int], newcomers: list[tuple[int, Sentence]]
) -> None:
    if not newcomers:
        return
    model.start(slots, [sentence.tokens for _, sentence in newcomers])
    beams.start(
        slots,
        [number for number, _ in newcomers],
        [sentence.longest_output for _, sentence in newcomers],
    )


def _drop_empty_slots(model: StepModel, beams: Beams) -> None:
    busy = np.flatnonzero(beams.is_busy).tolist()
    num_empty = len(beams.numbers) - len(busy)
    if busy and num_empty and num_empty >= len(beams.numbers) * DROPPED_SHARE:
        model.keep_slots(busy)
        beams.keep(busy)


def _step_input(beams: Beams) -> StepInput:
    # Copies: the books change while a device may still be reading.
    return StepInput(*map(torch.tensor, (beams.tokens, beams.parents, beams.lengths)))


def _best_candidates(logits: Tensor, beams: Beams) -> Candidates:
    """Return the best continuations of each slot's hypotheses by ``logits`` [R, V].

    Twice as many as the beam is wide: at most one per hypothesis ends, so K are left to live.
    """
    num_slots, beam_size = beams.scores.shape
    normalizers = log_normalizers(logits)[:, None]  # of all V, also those that are forbidden here
    _forbid(logits, beams)
    each = top_k(logits, 2 * beam_size)  # R C, the best of each hypothesis
    scores = torch.from_numpy(beams.scores).to(logits.device).view(-1, 1)
    totals = (each.values - normalizers + scores).masked_fill_(scores == -torch.inf, -torch.inf)
    best = top_k(totals.view(num_slots, -1), 2 * beam_size)
    tokens = each.indices.view(num_slots, -1).gather(1, best.indices)
    candidates = Candidates(
        best.values.cpu().numpy(),
        (best.indices // each.indices.shape[1]).cpu().numpy(),
        tokens.cpu().numpy(),
    )
    is_nan = normalizers.view(num_slots, -1).isnan().any(1).cpu().numpy()
    if is_nan[beams.is_busy].any():
        raise FloatingPointError("the model's output is not a number")
    return candidates


def _forbid(logits: Tensor, beams: Beams) -> None:
    """Make impossible what must not follow: <s>, and after the longest output all but </s>."""
    settings = beams.settings
    if settings.bos_id != settings.eos_id:
        logits[:, settings.bos_id] = -torch.inf
    slots = beams.must_end
    if len(slots):
        rows = (slots[:, None] * settings.beam_size + np.arange(settings.beam_size)).ravel()
        ending = torch.from_numpy(rows).to(logits.device)
        end_scores = logits[ending, settings.eos_id]
        logits[ending] = -torch.inf
        logits[ending, settings.eos_id] = end_scores
