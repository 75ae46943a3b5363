"""The text that every engine translates, and the translations: files beside the model.

pieces.json      [...], the vocabulary, by id
sentences.json   {"lines": [...], "tokens": [[...], ...]}, the tokens without </s>
outputs/*.json   [[...], ...], the tokens of each translation, without </s>
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors.numpy import load_file

from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.recipe.model_settings import read_settings

BEAM_SIZE = 4
LENGTH_PENALTY = 0.6
EXTRA_LENGTH = 50
EXPORTED = "ctranslate2"  # the model as CTranslate2 reads it
ALONE = "alone"  # in place of a batch size: one sentence after the other
USUAL = "usual"  # of what a search holds: as many tokens as it chooses
LINES_ALONE = 20

Tokens = Sequence[int]


class Sample(NamedTuple):
    """The text."""

    lines: Sequence[str]
    tokens: Sequence[Tokens]


def read_pieces(folder: Path) -> list[str]:
    """Return the vocabulary that ``write_sample`` wrote."""
    pieces: list[str] = json.loads((folder / "pieces.json").read_text(encoding="utf-8"))
    return pieces


def read_exported(folder: Path) -> ExportedModel:
    """Return the model in ``folder`` for the exports to other engines.

    Their environment lacks packages that loading a tokenizer needs.
    """
    model, pieces = folder / "model", read_pieces(folder)
    unknown, start, end = (pieces.index(mark) for mark in ("<unk>", "<s>", "</s>"))
    settings = read_settings(model)
    weights = load_file(model / "model.safetensors")
    both = (tuple(pieces), tuple(pieces))
    return ExportedModel(settings, weights, *both, unknown, start, end, start_id=start)


def write_sample(folder: Path, sample: Sample, pieces: Sequence[str]) -> None:
    """Write the text and the vocabulary for the engines' processes."""
    (folder / "pieces.json").write_text(json.dumps(pieces), encoding="utf-8")
    (folder / "sentences.json").write_text(json.dumps(sample._asdict()), encoding="utf-8")


def read_sample(folder: Path) -> Sample:
    """Return the text that ``write_sample`` wrote."""
    return Sample(**json.loads((folder / "sentences.json").read_text(encoding="utf-8")))


def write_outputs(folder: Path, name: str, outputs: Sequence[Tokens]) -> int:
    """Write an engine's translations; return the number of their tokens, with ``</s>``."""
    (folder / "outputs").mkdir(exist_ok=True)
    (folder / "outputs" / f"{name}.json").write_text(json.dumps(outputs))
    return sum(len(tokens) + 1 for tokens in outputs)


def read_outputs(folder: Path, name: str) -> list[Tokens]:
    """Return the translations that ``write_outputs`` wrote."""
    outputs: list[Tokens] = json.loads((folder / "outputs" / f"{name}.json").read_text())
    return outputs
