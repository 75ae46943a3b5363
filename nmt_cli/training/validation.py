"""Loss, perplexity, and BLEU or F1 on the validation text."""

import math
import time
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nmt_cli.corpus.binarized import PreparedCorpus
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.hardware.memory import (
    FullMemoryError,
    give_up_memory_of,
)
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.messages.figures import perplexity_of, short_number
from nmt_cli.metrics import bleu
from nmt_cli.parsing.parseval import score_trees
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.training_config import ValidationSearch
from nmt_cli.training.batch_cut import BatchCut, computed_within_memory
from nmt_cli.training.gradient import Objective
from nmt_cli.translating.translator import Translator

LINES_BETWEEN_POLLS = 500  # of the validation text, after which requests to stop are exchanged


class Validation(NamedTuple):
    """Figures of the validation text; losses are in nats, means of a target token."""

    loss: float  # label-smoothed, as in training
    nll: float
    bleu: float | None
    quality: float | None  # what "best" compares, higher is better; None is never the best
    parseval: float | None = None  # F1 of the parses, if the text is a treebank

    @property
    def perplexity(self) -> float:
        """exp(nll): the perplexity of a piece."""
        return perplexity_of(self.nll)

    def as_record(self) -> dict[str, float | None]:
        """Return the figures for a manifest or a log; None replaces those that are not finite."""
        figures = {**self._asdict(), "perplexity": self.perplexity}
        return {
            name: figure if figure is not None and math.isfinite(figure) else None
            for name, figure in figures.items()
        }

    def __str__(self) -> str:
        loss, perplexity = short_number(self.loss, 4), short_number(self.perplexity, 3)
        text = f"validation loss {loss}, perplexity {perplexity}"
        if self.parseval is not None:
            text += f", F1 {self.parseval:.2f}"
        return text if self.bleu is None else f"{text}, BLEU {self.bleu:.2f}"


class Validator:
    """Measures the model of an objective on the validation text of a recipe."""

    def __init__(self, recipe: Recipe, corpus: PreparedCorpus, objective: Objective) -> None:
        self._recipe, self._corpus, self._objective = recipe, corpus, objective

    def validate(self, max_tokens: int, stop: StopRequest) -> Validation | None:
        """Return the figures of the model as it is now, or None if ``stop`` came meanwhile.

        The micro-batches hold at most ``max_tokens`` a side. The model is left in evaluation mode.
        Each rank measures a share of the text, and all return the same figures. Raises
        FullMemoryError on all ranks if a sentence pair does not fit the memory of one of them, and
        UserError if a line cannot be translated.
        """
        self._objective.model.eval()
        config, ranks = self._recipe.validation, self._objective.machine.ranks
        search = config.parseval if self._has_trees else config.bleu
        sums = self._loss_sums(max_tokens, stop)
        hypotheses = [] if search == "off" else self._translate(search, stop)
        loss, nll, num_tokens, cuts, failures, *asked = ranks.sum([*sums, *stop.flags()])
        if failures:
            raise FullMemoryError(on_all_ranks=True)
        if cuts:
            logs.warning(
                "memory was full while the validation loss was measured; it was measured in "
                "smaller micro-batches."
            )
        stop.agree(asked)
        if stop.agreed:
            return None
        score = None if search == "off" else self._score(ranks.gather(hypotheses))
        loss, nll = loss / max(1, num_tokens), nll / max(1, num_tokens)
        quality = -loss if score is None or config.best_by == "loss" else score
        if self._has_trees:
            return Validation(loss, nll, None, quality, parseval=score)
        return Validation(loss, nll, score, quality)

    @property
    def _has_trees(self) -> bool:
        return self._recipe.data.treebank is not None

    @torch.no_grad()
    def _loss_sums(self, max_tokens: int, stop: StopRequest) -> list[float]:
        """Return sums over this rank's share: loss, nll, target tokens, cuts and failures.

        Cuts are micro-batches that were cut because memory was full. Failures is 1 if that did not
        help, else 0.
        """
        totals = np.zeros(3)
        cuts, cut = 0, BatchCut(max_tokens)
        shared = list(self._objective.machine.ranks.share(self._micro_batches(max_tokens)))
        num_pairs = sum(len(pairs.target.lengths) for _, pairs in shared)
        with logs.progress("validation loss", "pairs", num_pairs) as bar:
            for index, pairs in shared:
                if stop:
                    break
                whole = Batch(index, (pairs,))
                started = time.monotonic()
                try:
                    sums, fitting = computed_within_memory(whole, cut, self._sums)
                except FullMemoryError as error:
                    give_up_memory_of(error)
                    return [*totals.tolist(), cuts, 1.0]
                stop.note_seconds("window", time.monotonic() - started)
                bar.advance(len(pairs.target.lengths))
                totals += sums
                cuts += fitting is not cut
        return [*totals.tolist(), cuts, 0.0]

    def _sums(self, batch: Batch) -> NDArray[np.float64]:
        """Return summed loss, summed nll and target tokens."""
        totals = np.zeros(3)
        for pairs in batch.micro_batches:
            sums = self._objective.loss_sums(pairs)
            totals += [sums.loss.item(), sums.nll.item(), len(pairs.target.tokens)]
        return totals

    def _micro_batches(self, max_tokens: int) -> tuple[SentencePairs, ...]:
        source, target = self._corpus.validation_source, self._corpus.validation_target
        by_length = np.lexsort((source.lengths, target.lengths)).astype(np.int64)
        pairs = SentencePairs(source.gather(by_length), target.gather(by_length))
        return Batch(0, (pairs,)).cut(max_tokens).micro_batches

    def _translate(self, search: ValidationSearch, stop: StopRequest) -> list[str]:
        """Return the translations of this rank's lines, fewer if ``stop`` came meanwhile."""
        model, machine = self._objective.model, self._objective.machine
        beam_size = 1 if search == "greedy" else None
        translator = Translator(
            settings_of(self._recipe, self._corpus.tokenizer.size, self._corpus.labels),
            self._corpus.tokenizer,
            model,
            beam_size=beam_size,
            precision=machine.precision,
            fp32_products=machine.fp32_products,
        )
        source_lines = self._corpus.validation_lines("source")
        shared = list(machine.ranks.share(source_lines))
        hypotheses: list[str] = []
        # All ranks exchange requests equally often: as often as the one with the most lines.
        most_lines = -(-len(source_lines) // machine.ranks.size)
        with logs.progress("validation translations", "lines", len(shared)) as bar:
            for start in range(0, most_lines, LINES_BETWEEN_POLLS):
                stop.agree(machine.ranks.sum(stop.flags()))
                if stop.agreed:
                    break
                started = time.monotonic()
                hypotheses += _translated(translator, shared[start : start + LINES_BETWEEN_POLLS])
                stop.note_seconds("window", time.monotonic() - started)
                bar.advance(len(hypotheses) - start)
        return hypotheses

    def _score(self, by_rank: list[list[str]]) -> float:
        """Return the BLEU or F1 of the validation text, through the same code as translate | score.

        If the text is in pieces, the pieces of hypotheses and references are joined before.
        """
        dealt = zip_longest(*by_rank)  # line i was translated by rank i modulo the number of ranks
        hypotheses = [text for texts in dealt for text in texts if text is not None]
        if self._has_trees:
            return score_trees(hypotheses, self._corpus.validation_lines("target")).f1
        tokenizer = self._corpus.tokenizer
        references = [tokenizer.joined(line) for line in self._corpus.validation_lines("target")]
        return bleu.corpus_bleu(hypotheses, [references]).score


def _translated(translator: Translator, numbered: Sequence[tuple[int, str]]) -> list[str]:
    """Return the translations of lines. Raises UserError if one cannot be translated."""
    try:
        window = translator.translate_window([line for _, line in numbered])
    except LinesFailedError as error:
        numbers = [number for number, _ in numbered]
        failure = LinesFailedError(numbers[error.first], numbers[error.last])
        raise failure from error.__cause__
    if failed := next((t.error for t in window if t.error is not None), None):
        raise UserError(f"the validation text could not be translated: {failed}.")
    return [translation.text for translation in window]
