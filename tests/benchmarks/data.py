"""The corpora that are trained on: token files as ``nmt-cli preprocess`` writes them, and batches.

train.source.tokens .lengths   train.target.tokens .lengths     uint16 after a header of 64 bytes
batches.npz                    pairs [N] in the order of the batches, bounds [batches + 1]
"""

import math
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.commands import preprocess
from nmt_cli.corpus.binarized import BinarizedText, writing_binarized
from tests.benchmarks.shapes import SEED

FIRST_PIECE, END = 3, 2  # 0, 1 and 2 are the unknown piece, <s> and </s>
BATCHES = "batches.npz"
LONGEST = 250

Lengths = NDArray[np.int64]

RECIPE = """\
description: What the benchmarks train on.
data:
  source_language: en
  target_language: de
  train:
{train}
{validation}
tokenizer: {{{tokenizer}}}
"""
TRAIN = '    - {{source: "{text}/train.en", target: "{text}/train.de"}}\n'
VALIDATION = '  validation: {{source: "{text}/{name}.en", target: "{text}/{name}.de"}}'


class Text(NamedTuple):
    """Parallel text: train.en and train.de in a folder, and a part to validate on."""

    folder: Path
    validation: str
    pieces: int  # of a vocabulary of suitable size
    name: str


class Corpus(NamedTuple):
    """A folder of token files, and its description for a table."""

    folder: Path
    description: str


class LengthModel(NamedTuple):
    """The distribution of the lengths of random sentences, in tokens with ``</s>``."""

    mean: float
    deviation: float
    ratio_deviation: float  # of the logarithm of target length over source length
    name: str


CAPTIONS = LengthModel(15.3, 4.8, 0.17, "image captions'")
NEWS = LengthModel(27.0, 14.0, 0.25, "news'")


def parallel_text(build: Path, shared: Path | None) -> Text:
    """Return Multi30k from the folder ``shared``, else the bundled corpus, written anew."""
    if shared is not None:
        return Text(shared / "multi30k", "val", 8_000, "Multi30k EN-DE")
    folder = build / "quickstart-text"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "data/quickstart/generate.py", str(folder)], check=True)
    return Text(folder, "validation", 4_000, "the quickstart corpus")


def prepared_corpus(folder: Path, text: Text) -> Corpus:
    """Return ``text`` after ``nmt-cli preprocess`` with a vocabulary of its own."""
    recipe = write_recipe(folder.with_suffix(".yaml"), text, f"vocabulary_size: {text.pieces}")
    (folder / BATCHES).unlink(missing_ok=True)  # of an earlier run; not preprocess's
    preprocess.run(recipe=str(recipe), output=folder, workers=1, force=True)
    return Corpus(folder, text.name)


def write_recipe(path: Path, text: Text, tokenizer: str, *, copies: int = 1) -> Path:
    """Write a recipe that trains on so many copies of the text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    train = TRAIN.format(text=text.folder.resolve())
    validation = VALIDATION.format(text=text.folder.resolve(), name=text.validation)
    recipe = RECIPE.format(train=train * copies, validation=validation, tokenizer=tokenizer)
    path.write_text(recipe, encoding="utf-8")
    return path


def random_corpus(
    folder: Path, num_pairs: int, vocabulary_size: int, lengths: LengthModel
) -> Corpus:
    """Write pairs of random pieces."""
    rng = np.random.default_rng(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    sides = zip(("source", "target"), random_lengths(rng, num_pairs, lengths), strict=True)
    for side, side_lengths in sides:
        tokens = rng.integers(FIRST_PIECE, vocabulary_size, side_lengths.sum())
        tokens[np.cumsum(side_lengths) - 1] = END
        with writing_binarized(folder, f"train.{side}", vocabulary_size, LONGEST) as writer:
            writer.append(tokens, side_lengths)
    return Corpus(folder, f"random pieces in sentences of {lengths.name} lengths")


def random_lengths(
    rng: np.random.Generator, num_pairs: int, lengths: LengthModel
) -> tuple[Lengths, Lengths]:
    """Return lengths of both sides: the source's are gamma, the target's that times log-normal."""
    shape = (lengths.mean / lengths.deviation) ** 2
    source = rng.gamma(shape, lengths.mean / shape, num_pairs)
    ratios = rng.lognormal(0.0, lengths.ratio_deviation, num_pairs)
    return _whole(source), _whole(source * ratios)


def _whole(lengths: NDArray[np.float64]) -> Lengths:
    return np.clip(np.rint(lengths), 2, LONGEST).astype(np.int64)


def write_batches(corpus: Corpus, tokens: int, max_batches: int | None = None) -> float:
    """Write ``batches.npz``; return the share of padding that padded batches of them have."""
    source, target = (
        BinarizedText.open(corpus.folder, f"train.{side}").lengths.astype(np.int64)
        for side in ("source", "target")
    )
    batches = sorted_batches(source, target, tokens)[:max_batches]
    bounds = np.cumsum([0, *map(len, batches)])
    np.savez(corpus.folder / BATCHES, pairs=np.concatenate(batches), bounds=bounds)
    return padding_share(batches, source, target)


def sorted_batches(source: Lengths, target: Lengths, tokens: int) -> list[NDArray[np.int64]]:
    """Return all pairs in batches of at most ``tokens`` a side, in a seeded random order.

    Pairs are sorted by the longer side first, then by target, then by source: the order that
    leaves padded toolkits the least padding. The longest pairs, where they do not fill a batch,
    are left out.
    """
    order = np.lexsort((source, target, np.maximum(source, target)))
    batches, first, sums = [], 0, np.zeros(2, dtype=np.int64)
    for place, pair in enumerate(order):
        lengths = np.array([source[pair], target[pair]])
        if (sums + lengths > tokens).any():
            batches.append(order[first:place])
            first, sums = place, np.zeros(2, dtype=np.int64)
        sums += lengths
    if not batches:
        return [order]
    rng = np.random.default_rng(SEED)
    return [batches[number] for number in rng.permutation(len(batches))]


def padding_share(batches: list[NDArray[np.int64]], source: Lengths, target: Lengths) -> float:
    """Return the share of places that hold no token where every sentence is padded."""
    real = places = 0
    for pairs in batches:
        for lengths in (source[pairs], target[pairs]):
            real += int(lengths.sum())
            places += len(lengths) * int(lengths.max())
    return 1.0 - real / places if places else math.nan
