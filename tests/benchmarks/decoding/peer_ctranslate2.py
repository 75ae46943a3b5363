"""CTranslate2: a turn translates the whole sample.

A variant is "float32 2x1 32": type of computation, workers x threads of each, sentences of a batch.
With "alone" in place of them, it translates a few sentences one after the other.
"""

from pathlib import Path

import ctranslate2  # type: ignore[import-not-found, unused-ignore]

from nmt_cli.interchange.ctranslate2.exporter import vocabulary_of
from tests.benchmarks.decoding.sample import (
    ALONE,
    BEAM_SIZE,
    EXPORTED,
    EXTRA_LENGTH,
    LENGTH_PENALTY,
    LINES_ALONE,
    read_pieces,
    read_sample,
    write_outputs,
)
from tests.benchmarks.shapes import Setup
from tests.benchmarks.targets import CTRANSLATE2
from tests.benchmarks.worker import Step, serve


class CTranslate2Loop:
    """One translator for each type and number of workers, kept between turns."""

    def __init__(self, setup: Setup) -> None:
        self._folder = Path(setup.folder)
        pieces = vocabulary_of(read_pieces(self._folder))
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        sample = read_sample(self._folder)
        self._sentences = [[pieces[token] for token in tokens] for tokens in sample.tokens]
        self._longest = max(map(len, self._sentences)) + EXTRA_LENGTH
        self._translators: dict[str, ctranslate2.Translator] = {}
        self.facts = {"version": f"ctranslate2 {ctranslate2.__version__}"}

    def step(self, variant: str, index: int) -> Step:
        """Translate the sample."""
        setting, _, batch = variant.rpartition(" ")
        translator = self._translator(setting)
        if batch == ALONE:
            for sentence in self._sentences[:LINES_ALONE]:
                self._translated(translator, [sentence], 1)
            return Step(LINES_ALONE, 0.0)
        results = self._translated(translator, self._sentences, int(batch))
        outputs = [[self._ids[piece] for piece in result.hypotheses[0]] for result in results]
        return Step(write_outputs(self._folder, f"{CTRANSLATE2} {variant}", outputs), 0.0)

    def _translated(
        self, translator: ctranslate2.Translator, sentences: list[list[str]], batch_size: int
    ) -> list[ctranslate2.TranslationResult]:
        results: list[ctranslate2.TranslationResult] = translator.translate_batch(
            sentences,
            beam_size=BEAM_SIZE,
            length_penalty=LENGTH_PENALTY,
            max_batch_size=batch_size,
            max_decoding_length=self._longest,
        )
        return results

    def _translator(self, setting: str) -> ctranslate2.Translator:
        if setting not in self._translators:
            compute_type, counts = setting.split()
            workers, threads = map(int, counts.split("x"))
            self._translators[setting] = ctranslate2.Translator(
                str(self._folder / EXPORTED),
                compute_type=compute_type,
                inter_threads=workers,
                intra_threads=threads,
            )
        return self._translators[setting]


if __name__ == "__main__":
    serve(CTranslate2Loop)
