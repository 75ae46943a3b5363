"""Hugging Face's ``generate``: a turn translates the whole sample, longest sentences first.

A variant is "fp32 32": precision, sentences of a batch.
"""

from pathlib import Path

import torch
import transformers  # type: ignore[import-not-found, unused-ignore]

from nmt_cli.interchange.huggingface.exporter import write_huggingface
from tests.benchmarks.decoding.sample import (
    BEAM_SIZE,
    EXTRA_LENGTH,
    LENGTH_PENALTY,
    Tokens,
    read_exported,
    read_sample,
    write_outputs,
)
from tests.benchmarks.shapes import Setup
from tests.benchmarks.targets import GENERATE
from tests.benchmarks.worker import Step, serve


class GenerateLoop:
    """The class that computes our model, with our weights, in each precision."""

    def __init__(self, setup: Setup) -> None:
        self._folder = Path(setup.folder)
        model, exported = read_exported(self._folder), self._folder / "huggingface"
        exported.mkdir(exist_ok=True)
        write_huggingface(model, exported, "float32")
        self._begin, self._end = model.bos_id, model.eos_id
        self._models = {
            precision: transformers.AutoModelForSeq2SeqLM.from_pretrained(
                str(exported), dtype=dtype
            ).eval()
            for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
        }
        self._sentences = read_sample(self._folder).tokens
        self.facts = {"version": f"transformers {transformers.__version__}"}

    def step(self, variant: str, index: int) -> Step:
        """Translate the sample."""
        precision, batch_size = variant.split()
        order = sorted(range(len(self._sentences)), key=lambda i: -len(self._sentences[i]))
        outputs: list[Tokens] = [()] * len(order)
        for start in range(0, len(order), int(batch_size)):
            places = order[start : start + int(batch_size)]
            found = self._generate(precision, [self._sentences[place] for place in places])
            for place, tokens in zip(places, found, strict=True):
                outputs[place] = tokens
        return Step(write_outputs(self._folder, f"{GENERATE} {variant}", outputs), 0.0)

    @torch.no_grad()
    def _generate(self, precision: str, sentences: list[Tokens]) -> list[Tokens]:
        longest = max(map(len, sentences)) + 1
        source = torch.full((len(sentences), longest), self._begin)
        keep = torch.zeros_like(source)
        for row, tokens in enumerate(sentences):
            source[row, : len(tokens) + 1] = torch.tensor([*tokens, self._end])
            keep[row, : len(tokens) + 1] = 1
        rows = self._models[precision].generate(
            input_ids=source,
            attention_mask=keep,
            num_beams=BEAM_SIZE,
            length_penalty=LENGTH_PENALTY,
            max_length=longest + EXTRA_LENGTH + 1,  # with the start mark
            early_stopping=False,
        )
        return [_without_marks(row, self._end) for row in rows[:, 1:].tolist()]


def _without_marks(row: list[int], end: int) -> list[int]:
    return row[: row.index(end)] if end in row else row


if __name__ == "__main__":
    serve(GenerateLoop)
