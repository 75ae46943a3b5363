"""IBM model 2 with a diagonal prior, estimated by EM in both directions at once.

Dyer, Chahuneau and Smith 2013, "A Simple, Fast, and Effective Reparameterization of IBM Model 2":
target word i of m comes from source word j of n with a probability in proportion to
exp(-tension |i / m - j / n|), or from no word. Translation probabilities have a sparse Dirichlet
prior (variational Bayes), and the tension follows its gradient. The other direction exchanges the
sides.

Legend: K different pairs of a source word and a target word that occur together, L those of one
chunk, C cells of a chunk (``pair_cells``), G words of a chunk that one direction predicts, V
different words that it predicts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from nmt_cli.alignment.pair_cells import Array, Cells, NumberedPairs
from nmt_cli.alignment.symmetrization import SYMMETRIZATIONS
from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.text.links import Links, pharaoh

MOST_CELLS = 1 << 22  # of a chunk, which needs about 200 MB while a process works on it
PAIRS_WORTH_A_WORKER = 5_000  # aligning them takes about as long as starting a process
NO_WORD = 0.08  # probability that a word comes from no word
CONCENTRATION = 0.01  # of the Dirichlet prior
TENSION, LEAST_TENSION, MOST_TENSION = 4.0, 0.1, 14.0
TENSION_STEPS, TENSION_RATE = 8, 20.0  # gradient steps after each iteration but the first
LEAST_PROBABILITY = 1e-30  # products of probabilities stay normal numbers in fp32

Advance = Callable[[int], None]
Result = TypeVar("Result")


class Weights(NamedTuple):
    """Where the words that one direction predicts may come from, before normalization."""

    of_cells: Array  # C
    of_no_word: Array  # G
    words: Array  # C, the predicted word of each cell, counted over the chunk

    def best_cells(self) -> Array:
        """Return the most probable cell of each predicted word, for those that come from one."""
        order = np.lexsort((-self.of_cells, self.words))
        firsts = np.searchsorted(self.words[order], np.arange(len(self.of_no_word)))
        best = order[firsts]
        return best[self.of_cells[best] > self.of_no_word]


class ExpectedCounts(NamedTuple):
    """What one direction expects of a chunk."""

    counts: Array  # L, how often the two words of a pair translate each other
    of_no_word: Array  # G, the probability that the word comes from none
    distance: float  # the sum of the distances between words that translate each other


class CellChunk(NamedTuple):
    """Some sentence pairs, with the number of the word pair of each cell."""

    pairs: NumberedPairs
    cells: Cells
    word_pairs: Array  # C, the place in ``numbers``
    numbers: Array  # L, numbers of pairs of words, of all K

    @classmethod
    def load(cls, folder: Path, number: int) -> "CellChunk":
        """Return a chunk that ``WordAligner`` wrote into ``folder``."""
        pairs = read_pairs(folder, number)
        cells = Cells.of(pairs.source_lengths, pairs.target_lengths)
        word_pairs, numbers = (np.load(folder / f"{name}-{number}.npy") for name in FILES_OF_CHUNK)
        return cls(pairs, cells, word_pairs, numbers)

    def weights(self, folder: Path, direction: str, tension: float) -> Weights:
        """Return the weights of a direction with the tables in ``folder``."""
        is_forward = direction == "forward"
        words = self.cells.targets if is_forward else self.cells.sources
        ids = self.pairs.target_words if is_forward else self.pairs.source_words
        table = np.load(folder / f"{direction}-table.npy", mmap_mode="r")[self.numbers]
        no_word = np.load(folder / f"{direction}-no-word.npy")[ids]
        prior = np.exp(self.cells.distances * np.float32(-tension))
        sums = np.bincount(words, prior, len(ids)).astype(np.float32)
        prior *= (1 - NO_WORD) / sums[words]
        return Weights(prior * table[self.word_pairs], NO_WORD * no_word, words)


FILES_OF_CHUNK = ("word-pairs", "numbers")  # as in CellChunk
DIRECTIONS = ("forward", "backward")  # forward predicts target words


def write_pairs(folder: Path, number: int, pairs: NumberedPairs) -> None:
    """Write a chunk's sentence pairs, before anything is known of them."""
    np.savez(folder / f"pairs-{number}.npz", **pairs._asdict())


def read_pairs(folder: Path, number: int) -> NumberedPairs:
    """Return what ``write_pairs`` wrote."""
    with np.load(folder / f"pairs-{number}.npz") as arrays:
        return NumberedPairs(**arrays)


def _find_word_pairs(number: int, folder: Path, num_targets: int) -> None:
    """Write the different pairs of words of a chunk, as keys: source * ``num_targets`` + target.

    Another file has the place among these keys of each cell's.
    """
    pairs = read_pairs(folder, number)
    cells = Cells.of(pairs.source_lengths, pairs.target_lengths)
    keys = pairs.source_words[cells.sources].astype(np.int64) * num_targets
    keys += pairs.target_words[cells.targets]
    found, places = np.unique(keys, return_inverse=True)
    np.save(folder / f"keys-{number}.npy", found)
    np.save(folder / f"word-pairs-{number}.npy", places.astype(np.int32))


def _expect(number: int, folder: Path, tensions: Sequence[float]) -> list[ExpectedCounts]:
    """Return what each direction expects of a chunk (the E step)."""
    chunk = CellChunk.load(folder, number)
    found = []
    for direction, tension in zip(DIRECTIONS, tensions, strict=True):
        weights = chunk.weights(folder, direction, tension)
        size = len(weights.of_no_word)
        sums = np.bincount(weights.words, weights.of_cells, size) + weights.of_no_word
        shares = weights.of_cells / sums.astype(np.float32)[weights.words]
        counts = np.bincount(chunk.word_pairs, shares, len(chunk.numbers))
        distance = float(np.dot(shares, chunk.cells.distances))
        found.append(ExpectedCounts(counts, weights.of_no_word / sums, distance))
    return found


def _link(number: int, folder: Path, tensions: Sequence[float], symmetrization: str) -> list[str]:
    """Return the links of each sentence pair of a chunk, as text."""
    chunk = CellChunk.load(folder, number)
    forward, backward = (
        _by_pair(chunk, chunk.weights(folder, direction, tension).best_cells())
        for direction, tension in zip(DIRECTIONS, tensions, strict=True)
    )
    symmetrize = SYMMETRIZATIONS[symmetrization]
    both = zip(forward, backward, strict=True)
    return [pharaoh(tuple(sorted(symmetrize(*links)))) for links in both]


def _by_pair(chunk: CellChunk, best: Array) -> list[Links]:
    """Return the links of each sentence pair that the cells ``best`` stand for."""
    best = np.sort(best)
    sizes = chunk.pairs.source_lengths * chunk.pairs.target_lengths
    ends = np.searchsorted(best, sizes.cumsum())
    first_sources, first_targets = (
        lengths.cumsum() - lengths
        for lengths in (chunk.pairs.source_lengths, chunk.pairs.target_lengths)
    )
    of_pair = np.repeat(np.arange(len(sizes)), np.diff(ends, prepend=0))
    sources = (chunk.cells.sources[best] - first_sources[of_pair]).tolist()
    targets = (chunk.cells.targets[best] - first_targets[of_pair]).tolist()
    links = list(zip(sources, targets, strict=True))
    return [
        tuple(links[first:end])
        for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    ]


class DirectionModel:
    """The parameters of one direction, and what is counted for the next ones."""

    def __init__(
        self, given: Array, num_predicted: int, lengths: Iterable[tuple[int, int, int]]
    ) -> None:
        """``given`` is the word of each of the K pairs that is not predicted.

        ``lengths`` are those of a predicted and a given sentence, and how often they occur.
        """
        self.given = given
        self._num_pairs = np.bincount(given).clip(min=1)  # 0 of words that never occur
        self.table = np.ones(len(given), np.float32)  # K, probability of the predicted word
        self.no_word = np.ones(num_predicted, np.float32)  # V, the same if it comes from no word
        self.tension = TENSION
        of_predicted, of_given, numbers = np.array(sorted(lengths), np.int64).T
        self._numbers = np.repeat(numbers, of_predicted)
        self._lengths = np.repeat(of_given, of_predicted)
        own_lengths = np.repeat(of_predicted, of_predicted)
        firsts = np.repeat(of_predicted.cumsum() - of_predicted, of_predicted)
        places = np.arange(1, len(firsts) + 1) - firsts
        self._places = places / own_lengths  # where in its sentence a word is, as a share
        # How many words of the given sentence are not behind that place.
        self._before = places * self._lengths // own_lengths
        self.begin()

    def begin(self) -> None:
        """Begin an iteration: nothing is counted."""
        self._counts = np.zeros(len(self.table))
        self._no_word_counts = np.zeros(len(self.no_word))
        self._distance, self._num_words = 0.0, 0

    def add(self, expected: ExpectedCounts, numbers: Array, words: Array) -> None:
        """Count what a chunk expects of its pairs of words ``numbers`` [L] and ``words`` [G]."""
        self._counts[numbers] += expected.counts
        self._no_word_counts += np.bincount(words, expected.of_no_word, len(self.no_word))
        self._distance += expected.distance
        self._num_words += len(words)

    def estimate(self) -> None:
        """Set the probabilities by what was counted (the M step)."""
        sums = np.bincount(self.given, self._counts)
        logs_of_sums = digamma(sums + CONCENTRATION * self._num_pairs)
        for first in range(0, len(self.table), MOST_CELLS):
            part = slice(first, first + MOST_CELLS)
            logs = digamma(self._counts[part] + CONCENTRATION) - logs_of_sums[self.given[part]]
            self.table[part] = np.exp(logs).clip(min=LEAST_PROBABILITY)
        counts = self._no_word_counts + CONCENTRATION
        logs = digamma(counts) - digamma(counts.sum(keepdims=True))
        self.no_word[:] = np.exp(logs).clip(min=LEAST_PROBABILITY)

    def fit_tension(self) -> None:
        """Follow the gradient: the prior shall expect the distances that were counted."""
        for _ in range(TENSION_STEPS):
            too_far = (self.expected_distance(self.tension) - self._distance) / self._num_words
            tension = self.tension + TENSION_RATE * too_far
            self.tension = min(max(tension, LEAST_TENSION), MOST_TENSION)

    def expected_distance(self, tension: float) -> float:
        """Return the sum of the distances that the prior alone expects.

        Before a word's place and behind it, the prior is a geometric series.
        """
        step = 1 / self._lengths
        nearest_before = self._places - self._before * step
        before = _series(nearest_before, step, self._before, tension)
        behind = _series(step - nearest_before, step, self._lengths - self._before, tension)
        sums, distances = (one + other for one, other in zip(before, behind, strict=True))
        return float(np.dot(self._numbers, distances / sums))


def _series(first: Array, step: Array, number: Array, tension: float) -> tuple[Array, Array]:
    """Return the sums of exp(-tension d) and of d exp(-tension d), d = first, first + step ..."""
    ratio = np.exp(-tension * step)
    power = ratio**number
    scale = np.exp(-tension * first)
    sums = (1 - power) / (1 - ratio)
    of_steps = (ratio * sums - number * power) / (1 - ratio)
    return scale * sums, scale * (first * sums + step * of_steps)


def digamma(numbers: Array) -> Array:
    """Return the derivative of the logarithm of the gamma function, of positive numbers."""
    sums, shifted = np.zeros_like(numbers), numbers + 6.0
    for step in range(6):
        sums -= 1 / (numbers + step)
    square = 1 / (shifted * shifted)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    result: Array = sums + np.log(shifted) - 0.5 / shifted - series
    return result


class WordAligner:
    """Aligns the sentence pairs that ``write_pairs`` wrote into a folder, in its processes.

    The folder gets 4 bytes for each pair of a source word and a target word of the same sentence
    pair. The results do not depend on the number of processes.
    """

    def __init__(
        self,
        folder: Path,
        lengths: Counter[tuple[int, int]],
        num_words: tuple[int, int],
        pool: ChunkPool,
        workers: int,
    ) -> None:
        """``lengths`` counts the sentence pairs with each length of source and target.

        ``num_words`` is how many different words each side has.
        """
        self._folder, self._pool, self._workers = folder, pool, workers
        self._chunks = range(len(list(folder.glob("pairs-*.npz"))))
        self._lengths, self._num_words = lengths, num_words
        self._directions: list[DirectionModel] = []

    @property
    def num_chunks(self) -> int:
        """How many chunks each iteration works on."""
        return len(self._chunks)

    @property
    def tensions(self) -> tuple[float, ...]:
        """The tension of each direction."""
        return tuple(each.tension for each in self._directions)

    @property
    def translations(self) -> tuple[Array, Array, Array]:
        """Source word and target word of each of the K pairs, and how probable the latter is."""
        forward, backward = self._directions
        return forward.given, backward.given, forward.table

    def estimate(self, iterations: int, advance: Advance) -> None:
        """Make all iterations of EM; ``advance`` counts the chunks, and once those of reading."""
        self.find_word_pairs(advance)
        for iteration in range(iterations):
            # Before the first iteration has related words, only the prior places the links.
            self.iterate(advance, fits_tension=iteration > 0)

    def find_word_pairs(self, advance: Advance) -> None:
        """Number the words that occur together; ``advance`` counts the chunks."""
        num_sources, num_targets = self._num_words
        work = partial(_find_word_pairs, folder=self._folder, num_targets=num_targets)
        for _ in self._in_order(work):
            advance(1)
        paths = [self._folder / f"keys-{number}.npy" for number in self._chunks]
        keys = np.unique(np.concatenate([np.load(path) for path in paths]))
        for number, path in enumerate(paths):
            numbers = np.searchsorted(keys, np.load(path)).astype(np.int32)
            np.save(self._folder / f"numbers-{number}.npy", numbers)
            path.unlink()
        sources, targets = (part.astype(np.int32) for part in np.divmod(keys, num_targets))
        by_length = [(source, target, n) for (source, target), n in self._lengths.items()]
        turned = [(target, source, n) for source, target, n in by_length]
        self._directions = [
            DirectionModel(sources, num_targets, turned),
            DirectionModel(targets, num_sources, by_length),
        ]
        self._write_tables()

    def iterate(self, advance: Advance, *, fits_tension: bool) -> None:
        """Make one iteration of EM."""
        for direction in self._directions:
            direction.begin()
        work = partial(_expect, folder=self._folder, tensions=self.tensions)
        for number, found in self._in_order(work):
            pairs = read_pairs(self._folder, number)
            numbers = np.load(self._folder / f"numbers-{number}.npy")
            for direction, expected, words in zip(
                self._directions, found, (pairs.target_words, pairs.source_words), strict=True
            ):
                direction.add(expected, numbers, words)
            advance(1)
        for direction in self._directions:
            if fits_tension:
                direction.fit_tension()
            direction.estimate()
        self._write_tables()

    def links(self, symmetrization: str) -> Iterator[list[str]]:
        """Yield the links of the sentence pairs of each chunk, as text."""
        work = partial(
            _link, folder=self._folder, tensions=self.tensions, symmetrization=symmetrization
        )
        for _, lines in self._in_order(work):
            yield lines

    def _in_order(self, work: Callable[[int], Result]) -> Iterator[tuple[int, Result]]:
        return self._pool.in_order(self._chunks, work, self._workers, "aligning")

    def _write_tables(self) -> None:
        for direction, name in zip(self._directions, DIRECTIONS, strict=True):
            np.save(self._folder / f"{name}-table.npy", direction.table)
            np.save(self._folder / f"{name}-no-word.npy", direction.no_word)
