"""nmt-cli: a turn translates the whole sample.

A variant is "fp32 16384": precision, tokens of all hypotheses in the search.
"""

from pathlib import Path

import torch

from nmt_cli.decoding.translator import Translator
from nmt_cli.hardware.memory import keep_freed_memory
from tests.benchmarks.decoding.sample import (
    BEAM_SIZE,
    EXTRA_LENGTH,
    LENGTH_PENALTY,
    read_pieces,
    read_sample,
    write_outputs,
)
from tests.benchmarks.shapes import Setup
from tests.benchmarks.worker import Step, serve


class TranslatorLoop:
    """One translator for each variant, kept between turns."""

    def __init__(self, setup: Setup) -> None:
        keep_freed_memory()
        self._folder = Path(setup.folder)
        self._lines = read_sample(self._folder).lines
        self._ids = {piece: number for number, piece in enumerate(read_pieces(self._folder))}
        self._translators: dict[str, Translator] = {}
        self.facts = {"version": f"this checkout, torch {torch.__version__}"}

    def step(self, variant: str, index: int) -> Step:
        """Translate the sample."""
        translator = self._translator(variant)
        pieces = [translation.tokens for translation in translator.translate(self._lines)]
        outputs = [[self._ids[piece] for piece in line] for line in pieces]
        return Step(write_outputs(self._folder, f"nmt-cli {variant}", outputs), 0.0)

    def _translator(self, variant: str) -> Translator:
        precision, max_tokens = variant.split()
        if variant not in self._translators:
            self._translators[variant] = Translator.load(
                self._folder / "model",
                beam_size=BEAM_SIZE,
                length_penalty=LENGTH_PENALTY,
                max_extra_length=EXTRA_LENGTH,
                max_tokens_per_device=int(max_tokens),
                precision=precision,
            )
        return self._translators[variant]


if __name__ == "__main__":
    serve(TranslatorLoop)
