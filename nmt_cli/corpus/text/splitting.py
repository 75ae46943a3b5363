"""Cuts validation and test pairs off a corpus, so that no sentence of theirs stays in the rest."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.text.cleaning import sentence_hash
from nmt_cli.corpus.text.parallel_text import LineChunk, ParallelText
from nmt_cli.files.lines import is_blank
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.sections.corpora import ParallelFiles

LEFT_OUT, TRAINING = -1, 0  # parts of a corpus; those that are held out have numbers from 1
BLANK = 0  # in place of the hash of a sentence


class Lines(NamedTuple):
    """Bytes of adjacent lines, and the part that each belongs to."""

    parts: npt.NDArray[np.int8]
    texts: tuple[list[bytes], ...]  # of each file


class Split:
    """Decides to which part of a corpus each of its pairs belongs.

    Two sentences are the same if their letters are; case, digits, punctuation and spaces do not
    count.
    """

    def __init__(
        self,
        files: ParallelFiles,
        sizes: list[int],
        seed: int,
        advance: Callable[[int], None],
        name: str,
    ) -> None:
        """Read the corpus, and draw as many pairs for each held-out part as ``sizes`` has.

        Messages call the corpus ``name``. ``advance`` is called with numbers of pairs. Raises
        UserError if a file cannot be read, or if it has too few pairs of different sentences.
        """
        self._files, self._name = files, name
        hashes: list[npt.NDArray[np.uint64]] = []
        for chunk in ParallelText(files).chunks():
            texts = chunk.texts()
            sides = [[_hash(text) for text in side] for side in (texts.sources, texts.targets)]
            hashes.append(np.array(sides, dtype=np.uint64))
            advance(chunk.num_lines)
        self.parts = _drawn(name, np.concatenate(hashes, axis=1), sizes, seed)

    def lines(self) -> Iterator[Lines]:
        """Yield all lines again, in order. Raises UserError if the corpus has changed."""
        num_read = 0
        for chunk in ParallelText(self._files).chunks():
            parts = self.parts[num_read : num_read + chunk.num_lines]
            num_read += chunk.num_lines
            if len(parts) == chunk.num_lines:
                yield Lines(parts, _texts(chunk))
        if num_read != len(self.parts):
            raise UserError(f"{self._name} changed while it was read; run again.")


def _hash(text: str) -> int:
    return BLANK if is_blank(text) else int.from_bytes(sentence_hash(text)[:8], "big") | 1


def _drawn(
    name: str, hashes: npt.NDArray[np.uint64], sizes: list[int], seed: int
) -> npt.NDArray[np.int8]:
    """Return the part of each pair; ``hashes`` has a row for each side, ``name`` is the corpus."""
    num_pairs = hashes.shape[1]
    counts = [min(size, num_pairs + 1) for size in sizes]  # numpy has no larger integers
    numbers = np.repeat(np.arange(1, len(sizes) + 1), counts).tolist()
    parts = np.full(num_pairs, TRAINING, dtype=np.int8)
    taken: tuple[set[int], set[int]] = (set(), set())
    for place in np.random.default_rng(seed).permutation(num_pairs).tolist():
        if not numbers:
            break
        of_pair = hashes[:, place].tolist()
        if BLANK in of_pair or any(map(set.__contains__, taken, of_pair)):
            continue
        for side, value in zip(taken, of_pair, strict=True):
            side.add(value)
        parts[place] = numbers.pop()
    held_out = parts != TRAINING
    for side in hashes:
        parts[~held_out & np.isin(side, side[held_out])] = LEFT_OUT
    if numbers:
        raise UserError(
            f"{counted(num_pairs, 'pair')} in {name}, {int(held_out.sum()):,} of them with "
            f"sentences of their own, but {sum(sizes):,} are to be held out; lower --validation or "
            "--test."
        )
    if not (parts == TRAINING).any():
        raise UserError(f"no pair of {name} is left for training; lower --validation or --test.")
    return parts


def _texts(chunk: LineChunk) -> tuple[list[bytes], ...]:
    sides = (chunk.source,) if chunk.rows is not None else (chunk.source, chunk.target)
    return tuple(side.split(b"\n") for side in sides)
