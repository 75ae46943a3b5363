"""A prepared corpus: the folder that preprocess writes and train reads.

train.source.tokens      token ids of all sentences, one after the other, each with its </s>
train.source.lengths     number of tokens of each sentence, including </s>
train.target.*  validation.source.*  validation.target.*                        likewise
validation.source.txt  validation.target.txt             text, to translate while training
validation.NAME.*        likewise for each validation set, if they have names
train.links.*            likewise the links of words, each a source word and a target word;
                         only if a corpus has alignments
tokenizer.model | vocabulary.txt  recipe.yaml  manifest.json
(with model.from, the files of that model's tokenizer)
"""

import mmap
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.number_files import (
    HEADER,
    ArrayWriter,
    Numbers,
    dtype_holding,
    map_numbers,
    writing_numbers,
)
from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.files.atomic_files import read_manifest, refuse_broken_link, verify
from nmt_cli.files.file_names import (
    FURTHER_TOKENIZER_FILES,
    MANIFEST,
    RECIPE,
    TOKENIZER_FILES,
    validation_part,
)
from nmt_cli.files.folders import PREPARED, kind_of, what_to_give
from nmt_cli.files.lines import texts_of
from nmt_cli.files.locks import restore_replaced
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.proposals import missing_hint
from nmt_cli.parsing.labels import Labels
from nmt_cli.recipe.changes import leaves
from nmt_cli.recipe.model_settings import labels_from_json, text_settings
from nmt_cli.recipe.schema import Recipe, sections_that_matter
from nmt_cli.recipe.values import SET_NAME

OWN_FILE = re.compile(
    rf"(train|validation(\.{SET_NAME.pattern})?)\.(source|target)\.(tokens|lengths|txt)|"
    r"train\.links\.(tokens|lengths)|"
    + "|".join(map(re.escape, (MANIFEST, RECIPE, *TOKENIZER_FILES, *FURTHER_TOKENIZER_FILES)))
)
LINKS = "train.links"
BLOCK = 64  # sentences; RAM holds one offset of 8 bytes for each block
BLOCKS_AT_ONCE = 1 << 14
INDICES_AT_ONCE = 1 << 14

Indices = npt.NDArray[np.int64]


class Sentences:
    """Sentences of one side: their tokens one after the other, and how many tokens each has."""

    def __init__(self, tokens: Indices, lengths: Indices) -> None:
        self._tokens: Indices | None = tokens
        self.lengths = lengths

    @property
    def tokens(self) -> Indices:
        """The tokens of all sentences, each with its ``</s>``."""
        assert self._tokens is not None
        return self._tokens

    def __iter__(self) -> Iterator[Indices]:
        """Yield the tokens and the lengths."""
        yield self.tokens
        yield self.lengths

    def expect(self) -> None:
        """Let the system begin to read the tokens, if they are on a disk."""

    def parts(self, slices: Iterable[slice]) -> "Iterator[Sentences]":
        """Yield the sentences of each slice."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        for part in slices:
            tokens = self.tokens[ends[part.start] : ends[part.stop]]
            yield Sentences(tokens, self.lengths[part])


class SentencesOnDisk(Sentences):
    """Sentences of a text whose tokens are read when they are first used.

    So a rank reads only the parts that it computes.
    """

    def __init__(self, text: "BinarizedText", indices: Indices) -> None:
        self._text, self._indices, self._tokens = text, indices, None
        self.lengths = text.lengths[indices].astype(np.int64)

    @property
    def tokens(self) -> Indices:
        """The tokens of all sentences, each with its ``</s>``."""
        if self._tokens is None:
            self._tokens = self._text.read(self._starts, self.lengths)
        return self._tokens

    def expect(self) -> None:
        """Let the system begin to read the tokens, if they are on a disk."""
        self._text.expect(self._starts, self.lengths)

    def parts(self, slices: Iterable[slice]) -> Iterator[Sentences]:
        """Yield the sentences of each slice; what was not read before is not read now."""
        if self._tokens is not None:
            yield from super().parts(slices)
        else:
            yield from (SentencesOnDisk(self._text, self._indices[part]) for part in slices)

    @cached_property
    def _starts(self) -> Indices:
        return self._text.starts_of(self._indices)


class BinarizedText:
    """One side of a corpus on disk, memory-mapped: only sentences that are gathered are read."""

    def __init__(self, tokens: Numbers, lengths: Numbers) -> None:
        self._tokens, self.lengths = tokens, lengths
        self._block_starts = _starts_of_blocks(lengths)
        self.longest = int(lengths.max(initial=0))  # tokens, with the ``</s>``

    @classmethod
    def open(cls, directory: Path, name: str) -> "BinarizedText":
        """Map ``name``, such as train.source, of a folder whose checksums were verified before.

        Raises DamagedError if a file has a wrong header or the two files do not fit together.
        """
        tokens_path = directory / f"{name}.tokens"
        tokens = map_numbers(tokens_path)
        text = cls(tokens, map_numbers(directory / f"{name}.lengths"))
        if text.num_tokens != len(tokens):
            raise DamagedError(
                f"{tokens_path} has {len(tokens):,} tokens, but the lengths beside it add up to "
                f"{text.num_tokens:,}; it is damaged."
            )
        return text

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all sentences, including each ``</s>``."""
        return int(self._block_starts[-1])

    def gather(self, indices: Indices) -> Sentences:
        """Return the sentences at ``indices``, in that order."""
        return SentencesOnDisk(self, indices)

    def starts_of(self, indices: Indices) -> Indices:
        """Return the token at which each of the sentences at ``indices`` starts."""
        parts = range(0, len(indices), INDICES_AT_ONCE)
        starts = [self._starts(indices[part : part + INDICES_AT_ONCE]) for part in parts]
        return np.concatenate([*starts, indices[:0]])

    def read(self, starts: Indices, lengths: Indices) -> Indices:
        """Return the tokens of sentences that start at ``starts`` and have these ``lengths``."""
        ends = np.cumsum(lengths)
        num_tokens = int(ends[-1]) if len(ends) else 0
        # Token t of the result is token t + shift on disk; a sentence has one shift.
        shifts = starts - (ends - lengths)
        places = np.arange(num_tokens) + np.repeat(shifts, lengths)
        return self._tokens[places].astype(np.int64)

    def expect(self, starts: Indices, lengths: Indices) -> None:
        """Let the system read what ``read`` of the same will need, all sentences at the same time.

        Otherwise each sentence that is not in memory is read when it is needed, one after the
        other, and the system reads megabytes around it.
        """
        mapped, size = self._tokens.base, self._tokens.itemsize
        if not isinstance(mapped, mmap.mmap):
            return  # there are no tokens
        pages = (HEADER.size + starts * size) // mmap.PAGESIZE * mmap.PAGESIZE
        num_bytes = HEADER.size + (starts + lengths) * size - pages
        for page, number in zip(pages.tolist(), num_bytes.tolist(), strict=True):
            mapped.madvise(mmap.MADV_WILLNEED, page, number)

    def _starts(self, indices: Indices) -> Indices:
        blocks, places = np.divmod(indices, BLOCK)
        neighbours = blocks[:, None] * BLOCK + np.arange(BLOCK)  # sentence block
        lengths = self.lengths[np.minimum(neighbours, len(self.lengths) - 1)].astype(np.int64)
        before = np.arange(BLOCK) < places[:, None]
        return self._block_starts[blocks] + (lengths * before).sum(axis=1)


class BinarizedWriter(NamedTuple):
    """Writes one side of a corpus, sentence after sentence."""

    tokens: ArrayWriter
    lengths: ArrayWriter

    def append(self, tokens: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        """Write sentences: their tokens, each sentence with its ``</s>``, and their lengths."""
        self.tokens.append(tokens)
        self.lengths.append(lengths)


@contextmanager
def writing_binarized(
    directory: Path, name: str, vocabulary_size: int, longest: int
) -> Iterator[BinarizedWriter]:
    """Yield a writer of ``name``, such as train.source; no sentence may exceed ``longest``."""
    of_tokens, of_lengths = dtype_holding(vocabulary_size - 1), dtype_holding(longest)
    with (
        writing_numbers(directory / f"{name}.tokens", of_tokens) as tokens,
        writing_numbers(directory / f"{name}.lengths", of_lengths) as lengths,
    ):
        yield BinarizedWriter(tokens, lengths)


class ValidationSet(NamedTuple):
    """A text to measure a model on."""

    directory: Path
    name: str | None  # None if it is the only one and has no name
    source: BinarizedText
    target: BinarizedText

    @classmethod
    def open(cls, directory: Path, name: str | None) -> "ValidationSet":
        """Map the files of a set. Raises DamagedError as ``BinarizedText.open`` does."""
        part = validation_part(name)
        sides = (BinarizedText.open(directory, f"{part}.{side}") for side in SIDES)
        return cls(directory, name, *sides)

    def lines(self, side: Side) -> list[str]:
        """Return all lines of one side, also those that have no loss.

        Pairs that are too long or have an empty side have no loss. Target lines are trees in
        brackets if the text is a treebank.
        """
        return texts_of(validation_text(self.directory, self.name, side))


class PreparedCorpus(NamedTuple):
    """The prepared text and its tokenizer, as train uses them."""

    directory: Path
    source: BinarizedText
    target: BinarizedText
    validation: tuple[ValidationSet, ...]  # in the order of the recipe
    corpus_sizes: tuple[int, ...]  # pairs kept of each entry of data.train, stored in that order
    tokenizer: Tokenizer
    manifest: dict[str, Any]
    links: BinarizedText | None = None  # of words; each link is a source word and a target word

    @property
    def longest(self) -> int:
        """The number of tokens of the longest sentence."""
        return max(side.longest for side in self.sides)

    @property
    def sides(self) -> list[BinarizedText]:
        """Both sides of the training text and of each validation set."""
        of_sets = [side for each in self.validation for side in (each.source, each.target)]
        return [self.source, self.target, *of_sets]

    @property
    def num_bytes(self) -> int:
        """The bytes of all its files."""
        return sum(facts["bytes"] for facts in self.manifest["files"].values())

    @property
    def labels(self) -> Labels | None:
        """The labels of the training treebanks; None if the text is no treebank."""
        labels = self.manifest.get("treebank")
        return None if labels is None else labels_from_json(labels)

    def completed(self, recipe: Recipe) -> Recipe:
        """Return ``recipe`` with the size of the source's own vocabulary, if it does not say it."""
        if recipe.tokenizer.shared or recipe.model.source_vocabulary_size is not None:
            return recipe
        update = {"source_vocabulary_size": self.tokenizer.source_size}
        return recipe.model_copy(update={"model": recipe.model.model_copy(update=update)})


def open_prepared(
    directory: Path, recipe: Recipe, preprocess: str, *, is_checked_elsewhere: bool = False
) -> PreparedCorpus:
    """Return the corpus that preprocess wrote for ``recipe``, after checking every byte of it.

    If another process of this machine checks every byte of the training text
    (``is_checked_elsewhere``), only the sizes of its files and the lengths of its sentences are
    compared here. Messages propose ``preprocess``, the command that writes the folder. Raises
    UserError if the folder is missing, is something else or was made for other text or another
    tokenizer, and DamagedError if a file in it is damaged.
    """
    restore_replaced(directory)
    refuse_broken_link(directory)
    if not directory.exists():
        raise UserError(f"{directory} not found{missing_hint(directory)}. Run: {preprocess}")
    _refuse_other_folder(directory)
    try:
        refuse_stale(directory, read_manifest(directory), recipe, preprocess)
        unread_prefix = "train." if is_checked_elsewhere else None
        corpus = _open(directory, verify(directory, unread_prefix=unread_prefix), recipe)
    except DamagedError as error:
        raise DamagedError(f"{error} Run: {_command_again(directory, preprocess)}") from None
    if corpus.completed(recipe).model.source_vocabulary_size != corpus.tokenizer.source_size:
        made_with = (
            f"the vocabularies of another model than {recipe.origin} is now"
            if recipe.origin is not None
            else f"{corpus.tokenizer.source_size:,} pieces of the source, but "
            f"model.source_vocabulary_size is {recipe.model.source_vocabulary_size:,}"
        )
        raise UserError(
            f"{directory} was made with {made_with}. Run: {_command_again(directory, preprocess)}"
        )
    return corpus


def _command_again(directory: Path, preprocess: str) -> str:
    """Return the command that prepares ``directory`` again, and what the user must do first."""
    foreign = foreign_file(directory)
    return f"{preprocess} --force" + (
        f" (first move {foreign} out of {directory}; preprocess did not write it)"
        if foreign is not None
        else ""
    )


def validation_text(directory: Path, name: str | None, side: Side) -> Path:
    """Return the path of the text of one side of a validation set."""
    return directory / f"{validation_part(name)}.{side}.txt"


def foreign_file(directory: Path) -> str | None:
    """Return the name of a file in ``directory`` that preprocess did not write, or None."""
    names = sorted(path.name for path in directory.iterdir())
    return next((name for name in names if not OWN_FILE.fullmatch(name)), None)


def _refuse_other_folder(directory: Path) -> None:
    """Raise UserError if ``directory`` is something other than a (perhaps damaged) corpus."""
    is_unmarked = directory.is_dir() and not (directory / MANIFEST).exists()
    if (
        not directory.is_dir()
        or kind_of(directory) not in {None, PREPARED}
        or (is_unmarked and foreign_file(directory) is not None)
    ):
        raise UserError(what_to_give(directory, "prepared corpus"))


def refuse_stale(
    directory: Path, manifest: Mapping[str, Any], recipe: Recipe, preprocess: str
) -> None:
    """Raise UserError if ``directory`` was made for other text or another tokenizer."""
    wanted = dict(leaves(sections_that_matter(recipe)))
    made = dict(leaves({section: manifest[section] for section in ("data", "tokenizer")}))
    different = [key for key in {**made, **wanted} if made.get(key) != wanted.get(key)]
    if different:
        was = " and ".join(f"{_short(key)} {_shown(made.get(key))}" for key in different)
        says = " and ".join(_shown(wanted.get(key)) for key in different)
        raise UserError(
            f"{directory} was made with {was}, the recipe says {says}. "
            f"Correct the recipe or make it again: {_command_again(directory, preprocess)}"
        )


def _open(directory: Path, manifest: dict[str, Any], recipe: Recipe) -> PreparedCorpus:
    source, target = (BinarizedText.open(directory, f"train.{side}") for side in SIDES)
    validation = [
        ValidationSet.open(directory, files.name) for files in recipe.data.validation_sets
    ]
    tokenizer = load_tokenizer(directory, text_settings(recipe.tokenizer, recipe.data))
    corpus_sizes = tuple(manifest["corpus_sizes"])
    if len({len(source), len(target), sum(corpus_sizes)}) > 1:
        raise DamagedError(
            f"{directory} is damaged: {len(source):,} source and {len(target):,} target sentences."
        )
    links = None
    if f"{LINKS}.tokens" in manifest["files"]:
        links = BinarizedText.open(directory, LINKS)
        if len(links) != len(source):
            raise DamagedError(
                f"{directory} is damaged: {len(links):,} pairs have links, {len(source):,} text."
            )
    return PreparedCorpus(
        directory,
        source,
        target,
        tuple(validation),
        corpus_sizes,
        tokenizer,
        manifest,
        links,
    )


def _starts_of_blocks(lengths: Numbers) -> Indices:
    """Return the token at which each block of sentences starts, and the end of the last block."""
    num_blocks = -(-len(lengths) // BLOCK)
    starts = np.zeros(num_blocks + 1, dtype=np.int64)
    for first in range(0, num_blocks, BLOCKS_AT_ONCE):
        some = lengths[first * BLOCK : (first + BLOCKS_AT_ONCE) * BLOCK].astype(np.int64)
        sums = np.add.reduceat(some, np.arange(0, len(some), BLOCK))
        starts[first + 1 : first + 1 + len(sums)] = starts[first] + np.cumsum(sums)
    return starts


def _short(key: str) -> str:
    return key.partition(".")[2]


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return "[" + ", ".join(_shown(inner) for inner in value) + "]"
    return f"{value:,}" if isinstance(value, int) else str(value)
