"""Parallel text of any size, made in memory that does not grow with it."""

from pathlib import Path

import numpy as np

WORDS, PAIRS_AT_ONCE = 4000, 100_000
RECIPE = """\
description: Many generated pairs, already in pieces.
data:
  source_language: en
  target_language: de
  train: [{{source: {folder}/train.en, target: {folder}/train.de}}]
  validation: {{source: {folder}/validation.en, target: {folder}/validation.de}}
  filters: {{remove_duplicates: {remove_duplicates}}}
tokenizer: {{type: whitespace}}
"""


def write_generated(folder: Path, num_pairs: int, *, remove_duplicates: bool = True) -> Path:
    """Write pairs of 4 to 11 words a side, and a recipe for them; return the recipe's path.

    Each pair ends in its number, but every thousandth pair repeats the one before it, and every
    ten-thousandth one is blank.
    """
    rng = np.random.default_rng(num_pairs)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", num_pairs), ("validation", 100)):
        for side in ("en", "de"):
            words = np.array([f"{side}{number:x}" for number in range(WORDS)], dtype=object)
            with (folder / f"{name}.{side}").open("w") as stream:
                for first in range(0, count, PAIRS_AT_ONCE):
                    lines = _lines(rng, words, range(first, min(count, first + PAIRS_AT_ONCE)))
                    stream.write("".join(f"{line}\n" for line in lines))
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        RECIPE.format(folder=folder, remove_duplicates=str(remove_duplicates).lower())
    )
    return recipe


def _lines(rng: np.random.Generator, words: np.ndarray, numbers: range) -> list[str]:
    lengths = rng.integers(3, 11, len(numbers))
    # The square makes some words more frequent than others.
    chosen = words[(WORDS * rng.random(int(lengths.sum())) ** 2).astype(np.int64)].tolist()
    ends, lines = np.cumsum(lengths).tolist(), []
    for start, end, number in zip([0, *ends[:-1]], ends, numbers, strict=True):
        lines.append(f"{' '.join(chosen[start:end])} {number % 1000} {number // 1000 % 1000}")
        if number % 1000 == 999:
            lines[-1] = lines[-2]
        if number % 10_000 == 5_000:
            lines[-1] = ""
    return lines
