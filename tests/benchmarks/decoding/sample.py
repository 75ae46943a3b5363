"""The text that every engine translates, and the translations: files beside the model.

pieces.json      [...], the vocabulary, by id
sentences.json   {"lines": [...], "tokens": [[...], ...]}, the tokens without </s>
outputs/*.json   [[...], ...], the tokens of each translation, without </s>
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

BEAM_SIZE = 4
LENGTH_PENALTY = 0.6
EXTRA_LENGTH = 50

Tokens = Sequence[int]


class Sample(NamedTuple):
    """The text."""

    lines: Sequence[str]
    tokens: Sequence[Tokens]


def read_pieces(folder: Path) -> list[str]:
    """Return the vocabulary that ``write_sample`` wrote."""
    pieces: list[str] = json.loads((folder / "pieces.json").read_text(encoding="utf-8"))
    return pieces


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
