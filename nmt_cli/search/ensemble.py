"""Several models of one vocabulary that search together.

Legend: R rows of hypotheses, V vocabulary, B new sentences.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from nmt_cli.search.logits import Logits
from nmt_cli.search.search import StepInput, StepModel


class Ensemble:
    """A ``StepModel`` of several: a token's probability is the mean of theirs.

    Not to be shared between threads.
    """

    def __init__(self, models: Sequence[StepModel]) -> None:
        self._models = models
        self.kernels = models[0].kernels

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches of all models."""
        for model in self._models:
            model.reset(num_slots, beam_size)

    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[tuple[Any, ...]], Logits]:
        """Return what each model makes of each sentence, and the means [B, V] for first tokens."""
        encoded: list[Sequence[Any]] = []

        def of_models() -> Iterator[Logits]:  # only the logits of one model are in memory
            for model in self._models:
                own, logits = model.encode(sentences, start_mark)
                encoded.append(own)
                yield logits

        logits = of_models()
        mean = next(logits).mean_with(logits)
        return list(zip(*encoded, strict=True)), mean

    def start(self, slots: Sequence[int], encoded: Sequence[tuple[Any, ...]]) -> None:
        """Put a new sentence into each of ``slots`` of all models."""
        for model, own in zip(self._models, zip(*encoded, strict=True), strict=True):
            model.start(slots, own)

    def step(self, state: StepInput) -> Logits:
        """Return the logarithms [R, V] of the mean probabilities of the next tokens."""
        first, *others = self._models
        return first.step(state).mean_with(model.step(state) for model in others)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, in all models."""
        for model in self._models:
            model.keep_slots(slots)

    def forget(self, slots: Sequence[int]) -> None:
        """Empty the caches of ``slots`` in all models."""
        for model in self._models:
            model.forget(slots)
