"""Hugging Face's ``generate``: a turn translates the whole sample, longest sentences first.

A variant is "fp32 32": precision, sentences of a batch.
"""

from pathlib import Path

import torch
import transformers  # type: ignore[import-not-found, unused-ignore]

from tests.benchmarks.decoding.exported import BEGIN, END, LONGEST, ExportedModel, marian_state
from tests.benchmarks.decoding.sample import (
    BEAM_SIZE,
    EXTRA_LENGTH,
    LENGTH_PENALTY,
    Tokens,
    read_sample,
    write_outputs,
)
from tests.benchmarks.shapes import Setup
from tests.benchmarks.worker import Step, serve


class GenerateLoop:
    """MarianMTModel with our weights in each precision."""

    def __init__(self, setup: Setup) -> None:
        self._folder = Path(setup.folder)
        model = ExportedModel(self._folder / "model")
        self._begin, self._end = model.pieces.index(BEGIN), model.pieces.index(END)
        self._models = {"fp32": _marian(model, self._begin, self._end)}
        self._models["bf16"] = _marian(model, self._begin, self._end).to(torch.bfloat16)
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
        return Step(write_outputs(self._folder, f"Hugging Face {variant}", outputs), 0.0)

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
            max_new_tokens=longest + EXTRA_LENGTH,
            early_stopping=False,
        )
        return [_without_marks(row, self._end) for row in rows[:, 1:].tolist()]


def _without_marks(row: list[int], end: int) -> list[int]:
    return row[: row.index(end)] if end in row else row


def _marian(model: ExportedModel, begin: int, end: int) -> transformers.MarianMTModel:
    sizes = model.sizes
    config = transformers.MarianConfig(
        vocab_size=len(model.pieces),
        d_model=sizes["d_model"],
        encoder_layers=sizes["num_layers"],
        decoder_layers=sizes["num_layers"],
        encoder_attention_heads=sizes["num_heads"],
        decoder_attention_heads=sizes["num_heads"],
        encoder_ffn_dim=sizes["d_ff"],
        decoder_ffn_dim=sizes["d_ff"],
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=LONGEST,
        pad_token_id=begin,
        bos_token_id=begin,
        decoder_start_token_id=begin,
        eos_token_id=end,
        forced_eos_token_id=None,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
    )
    marian = transformers.MarianMTModel(config)
    state = {name: torch.from_numpy(array.copy()) for name, array in marian_state(model).items()}
    missing, unexpected = marian.load_state_dict(state, strict=False)
    tied = ("embed_tokens.weight", "lm_head.weight", "embed_positions.weight")
    assert not unexpected, unexpected
    assert all(name.endswith(tied) for name in missing), missing
    marian.tie_weights()
    marian.generation_config.bad_words_ids = [[begin]]
    return marian.eval()


if __name__ == "__main__":
    serve(GenerateLoop)
