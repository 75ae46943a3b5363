"""CTranslate2: a turn translates the whole sample.

A variant is "float32 2x1 32": type of computation, workers x threads of each, sentences of a batch.
"""

from pathlib import Path

import ctranslate2  # type: ignore[import-not-found, unused-ignore]

from nmt_cli.interchange.ctranslate2.exporter import vocabulary_of, write_ctranslate2
from tests.benchmarks.decoding.sample import (
    BEAM_SIZE,
    EXTRA_LENGTH,
    LENGTH_PENALTY,
    read_exported,
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
        model, exported = read_exported(self._folder), self._folder / "ctranslate2"
        exported.mkdir(exist_ok=True)
        write_ctranslate2(model, exported)  # quantization is chosen when it is loaded
        pieces = vocabulary_of(model.pieces)
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        sample = read_sample(self._folder)
        self._sentences = [[pieces[token] for token in tokens] for tokens in sample.tokens]
        self._longest = max(map(len, self._sentences)) + EXTRA_LENGTH
        self._translators: dict[str, ctranslate2.Translator] = {}
        self.facts = {"version": f"ctranslate2 {ctranslate2.__version__}"}

    def step(self, variant: str, index: int) -> Step:
        """Translate the sample."""
        setting, _, batch = variant.rpartition(" ")
        results = self._translator(setting).translate_batch(
            self._sentences,
            beam_size=BEAM_SIZE,
            length_penalty=LENGTH_PENALTY,
            max_batch_size=int(batch),
            max_decoding_length=self._longest,
        )
        outputs = [[self._ids[piece] for piece in result.hypotheses[0]] for result in results]
        return Step(write_outputs(self._folder, f"{CTRANSLATE2} {variant}", outputs), 0.0)

    def _translator(self, setting: str) -> ctranslate2.Translator:
        if setting not in self._translators:
            compute_type, counts = setting.split()
            workers, threads = map(int, counts.split("x"))
            self._translators[setting] = ctranslate2.Translator(
                str(self._folder / "ctranslate2"),
                compute_type=compute_type,
                inter_threads=workers,
                intra_threads=threads,
            )
        return self._translators[setting]


if __name__ == "__main__":
    serve(CTranslate2Loop)
