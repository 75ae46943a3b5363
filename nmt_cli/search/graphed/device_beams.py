"""The hypotheses of each slot, live and ended, as tensors on the device.

A step extends them without the CPU, and finds which sentences are done. It also writes its new beam
into a report. From these the CPU reads the tokens of a sentence when it is done.

Legend: S slots, K beam, R = S*K rows, C candidates of a slot, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt_cli.hardware.device import sent_together
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.beams import Beams, length_penalty, ranks_in_beam
from nmt_cli.search.sentences import SearchSettings
from nmt_cli.search.torch_logits import log_normalizers, top_k


class StepReport(NamedTuple):
    """The new beam of a step, and what else the CPU needs.

    Packed in one int32 tensor [S, 3K+2]: K scores (the bits of fp32), K parents, K tokens, whether
    the sentence has failed, and the highest used place of the past + 1.
    """

    beams: Array  # S 3 K
    have_failed: Array  # S, because a logit was not a number
    num_places: int  # the highest used place of the past + 1, over all slots

    @property
    def are_free(self) -> Array:
        """Whether no hypothesis [S] lives: the sentence is done, or has failed."""
        return np.asarray((self.beams[:, 0].view(np.float32) == -np.inf).all(axis=1))

    @staticmethod
    def packed(
        scores: Tensor, parents: Tensor, tokens: Tensor, failed: Tensor, num_places: Tensor
    ) -> Tensor:
        """Return the report of a beam [S, K], of ``failed`` [S] and of ``num_places`` [S]."""
        parts = scores.view(torch.int32), parents, tokens, failed[:, None], num_places[:, None]
        return torch.cat([part.to(torch.int32) for part in parts], dim=1)

    @classmethod
    def unpacked(cls, report: Tensor) -> "StepReport":
        """Return the parts of a packed ``report``, a tensor of the CPU."""
        numbers = report.numpy()
        beams = numbers[:, :-2].reshape(len(numbers), 3, -1)
        return cls(beams, numbers[:, -2] != 0, int(numbers[:, -1].max()))


def best_continuations(
    logits: Tensor, number: int, settings: SearchSettings, *, by_kernel: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best logits [R, C] of each row [R, V], their tokens, and normalizers [R].

    The start mark is none of the best. Normalizers are over all V. ``logits`` are overwritten.
    """
    banned = settings.bos_id if settings.bos_id != settings.eos_id else -1
    if by_kernel:
        from nmt_cli.model.triton_kernels.best_entries import best_entries

        return best_entries(logits, number, banned)
    normalizers = log_normalizers(logits)
    if banned >= 0:
        logits[:, banned].fill_(-torch.inf)
    return *top_k(logits, number), normalizers


class DeviceBeams:
    """The hypotheses, in tensors that keep their addresses.

    A step chooses the new beam by the rules of ``Beams.advance``, and a sentence is done when it is
    done there. NeverStart, LongestOutput and BestCandidates have another form here, in fixed
    shapes; tests compare the two. Each operation is a kernel of all steps, so there are few.

    A slot is free when no hypothesis lives in it; then its ``ended`` stay as they are.
    """

    def __init__(
        self,
        num_slots: int,
        settings: SearchSettings,
        device: torch.device,
        *,
        by_kernel: bool = False,
    ) -> None:
        """Make beams with free slots; ``by_kernel``, Triton finds the best continuations."""
        self._is_by_kernel = by_kernel
        self._settings, self._num_candidates = settings, 2 * settings.beam_size
        self._order = torch.arange(settings.beam_size, device=device)
        self._one = torch.ones(1, dtype=torch.float64, device=device)

        def zeros(*size: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(num_slots, *size, dtype=dtype, device=device)

        beam_size = settings.beam_size
        self.tokens, self.parents = zeros(beam_size), zeros(beam_size)  # S K
        self.scores = zeros(beam_size, dtype=torch.float32)
        # Whether the place is in the beam of its sentence.
        self.fits = zeros(beam_size) == 0
        self.lengths, self.longest = zeros(), zeros()
        self.failed = zeros()  # not 0 if a logit was not a number
        self.ranks = zeros(2)  # see _are_done
        self.alphas = zeros(dtype=torch.float64)
        # Length penalties: of hypotheses that end in this step, and of the longest output.
        self.penalties = zeros(2, dtype=torch.float64)
        # Best first: the score, -inf if there are fewer; the log-probability; and the place of the
        # last token: the length with </s> times K plus the place in the beam.
        self.ended = zeros(beam_size, 3, dtype=torch.float64)
        self.report = zeros(3 * beam_size + 2, dtype=torch.int32)
        self.clear()

    @property
    def state(self) -> list[Tensor]:
        """All that steps read and change; the first dimension is S."""
        of_hypotheses = [self.tokens, self.parents, self.scores, self.fits, self.ended]
        of_sentences = [self.lengths, self.longest, self.failed, self.ranks]
        return [*of_hypotheses, *of_sentences, self.alphas, self.penalties]

    def clear(self) -> None:
        """Free all slots."""
        self.tokens.fill_(self._settings.bos_id)
        self.parents.copy_(self._order.expand_as(self.parents))
        self.longest.zero_()
        self.ranks.zero_()
        self.alphas.zero_()
        self.penalties.fill_(1.0)
        self.ended.fill_(-torch.inf)
        self.free_from(0)

    def free_from(self, first: int) -> None:
        """Free the slots from number ``first`` on."""
        self.scores[first:].fill_(-torch.inf)
        self.lengths[first:].zero_()

    def copy_from(self, beams: Beams, slots: Sequence[int]) -> None:
        """Copy the sentences in ``slots`` of ``beams``, whose hypotheses have at most one token."""
        number, beam_size = len(slots), self._settings.beam_size
        ended = np.full((number, beam_size, 3), (-np.inf, 0.0, 0.0))
        for row, slot in enumerate(slots):
            for place, hypothesis in enumerate(beams.ended[slot]):
                ended[row, place] = hypothesis.score, hypothesis.log_probability, beam_size
        alphas, longest = beams.alphas[slots], beams.longest[slots]
        arrays = (  # the slots, then as in ``state``
            np.array(slots),
            *(beams.tokens[slots], beams.parents[slots], beams.scores[slots]),
            np.arange(beam_size) < beams.beam_sizes[slots, None],
            ended,
            *(beams.lengths[slots], longest, np.zeros(number, np.int64)),
            np.stack([beams.n_best[slots], beams.ends_needed[slots]], axis=1) - 1,
            alphas,
            np.stack([alphas, length_penalty(longest + 1, alphas)], axis=1),
        )
        at, *new = sent_together(self.tokens.device, tuple(map(torch.from_numpy, arrays)))
        for own, of_slots in zip(self.state, new, strict=True):
            own[at] = of_slots

    def advance(self, logits: Tensor, num_places: Tensor) -> None:
        """Replace the hypotheses by their best continuations by ``logits`` [R, V]; report them.

        ``logits`` are overwritten. ``num_places`` [S] is for the report.
        """
        values, tokens, normalizers = best_continuations(
            logits, self._num_candidates, self._settings, by_kernel=self._is_by_kernel
        )
        is_nan = normalizers.view_as(self.scores).isnan().any(dim=1)
        values, tokens = self._allowed(values, tokens, logits[:, self._settings.eos_id])
        totals = values - normalizers[:, None] + self.scores.view(-1, 1)
        totals, tokens = totals.view(len(self.scores), -1), tokens.view(len(self.scores), -1)
        # Of equal ones, the first comes first.
        scores, places = totals.sort(dim=1, descending=True, stable=True)
        scores, places = (each[:, : self._num_candidates] for each in (scores, places))
        self.choose(scores, places // values.shape[1], tokens.gather(1, places), is_nan)
        beam = self.scores, self.parents, self.tokens
        self.report.copy_(StepReport.packed(*beam, self.failed, num_places))

    def _allowed(self, values: Tensor, tokens: Tensor, of_end: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``values`` and ``tokens`` [R, C], only </s> where no longer output is allowed.

        ``of_end`` [R] are the logits of </s>.
        """
        must_end = (self.lengths >= self.longest)[:, None].expand_as(self.scores).reshape(-1, 1)
        only_end = torch.full_like(values, -torch.inf)
        only_end[:, 0] = of_end
        values = torch.where(must_end, only_end, values)
        return values, tokens.masked_fill(must_end, self._settings.eos_id)

    def choose(self, scores: Tensor, parents: Tensor, tokens: Tensor, is_nan: Tensor) -> None:
        """Let the best of candidates [S, C] that do not end be the new beam.

        A slot is free after this step if its sentence is done, or if it ``is_nan`` [S].
        """
        exist, end = scores > -torch.inf, tokens == self._settings.eos_id
        self._set_aside(scores, parents, exist & end)
        lives = exist > end
        ranks = ranks_in_beam(lives, torch.arange(self._num_candidates, device=scores.device))
        chosen = ranks.topk(len(self._order), dim=1, largest=False).indices  # S K
        scores = torch.where(lives, scores, -torch.inf).gather(1, chosen)
        scores = torch.where(self.fits, scores, -torch.inf)
        is_free = self._are_done(scores) | is_nan
        torch.gather(tokens, 1, chosen, out=self.tokens)
        torch.gather(parents, 1, chosen, out=self.parents)
        self.scores.copy_(scores.masked_fill(is_free[:, None], -torch.inf))
        self.failed += self.lengths * is_nan
        self.lengths.copy_((self.lengths + 1).masked_fill(is_free, 0))

    def _set_aside(self, scores: Tensor, parents: Tensor, ends: Tensor) -> None:
        """Put those of the best K candidates that end [S, C] among the ended hypotheses."""
        best = slice(len(self._order))
        lengths = self.lengths + self._one  # with </s>
        self.penalties[:, 0] = length_penalty(lengths, self.alphas)
        of_ended = scores[:, best] / self.penalties[:, :1]
        of_ended = torch.where(ends[:, best] & self.fits, of_ended, -torch.inf)
        places = torch.add(parents[:, best], lengths[:, None], alpha=len(self._order))
        new = torch.stack([of_ended, scores[:, best], places], dim=2)
        together = torch.cat([self.ended, new], dim=1)  # S 2K 3
        # Equal scores stay in the order in which the hypotheses ended.
        order = together[:, :, 0].sort(dim=1, descending=True, stable=True).indices[:, best]
        torch.gather(together, 1, order[:, :, None].expand(-1, -1, 3), out=self.ended)

    def _are_done(self, scores: Tensor) -> Tensor:
        """Return which sentences [S] with live hypotheses of ``scores`` [S, K] are done.

        They are if no live one can win, or if enough have ended and no live one wins now; see
        ``Beams``. ``ranks`` are the places in ``ended`` of the score to beat, and of the one that
        makes them enough.
        """
        to_beat, last_of_enough = self.ended[:, :, 0].gather(1, self.ranks).unbind(1)
        best_live = scores.amax(dim=1, keepdim=True)
        wins_not, cannot_win = (best_live / self.penalties <= to_beat[:, None]).unbind(1)
        return cannot_win | (wins_not & (last_of_enough > -torch.inf))
