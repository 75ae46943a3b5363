"""Encodes chunks of text pairs as token ids."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.number_files import dtype_holding
from nmt_cli.corpus.text.cleaning import KEPT, LengthLimits, rules_broken
from nmt_cli.corpus.text.looking_over import CorpusChunk
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer, tag_ids
from nmt_cli.recipe.model_settings import TextSettings

PAIRS_WORTH_A_WORKER = 20_000  # encoding them takes about as long as starting a process


class EncodedSide(NamedTuple):
    """Sentences of one side, one after the other, each with its ``</s>``."""

    tokens: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]
    num_unknown: int


class EncodedPairs(NamedTuple):
    """Encoded pairs: the rule that each pair broke, and the tokens of pairs that broke none."""

    broken: npt.NDArray[np.int8]
    source: EncodedSide
    target: EncodedSide


class EncodingJob(NamedTuple):
    """What an encoding process needs: the folder and settings of the tokenizer, and the limits."""

    directory: Path
    text: TextSettings
    limits: LengthLimits
    tags: Sequence[str | None] = ()  # of each corpus; none has one if it is empty

    def start(self) -> Callable[[CorpusChunk], EncodedPairs]:
        """Load the tokenizer; return the function that encodes a chunk."""
        tokenizer = load_tokenizer(self.directory, self.text)
        tags = [(tag and tag_ids(tag, tokenizer)) or [] for tag in self.tags]
        return partial(encode_chunk, tokenizer=tokenizer, limits=self.limits, tags=tags)


def encode_chunk(
    chunk: CorpusChunk,
    tokenizer: Tokenizer,
    limits: LengthLimits,
    tags: Sequence[list[int]] = (),
) -> EncodedPairs:
    """Return the pairs as token ids, without those that break a rule.

    The source of each pair begins with the pieces ``tags[chunk.corpus]``, if there are any.
    """
    broken, pairs = chunk.text_pairs()
    sources = tokenizer.encode_batch(pairs.sources, "source")
    if tags and tags[chunk.corpus]:
        sources = [[*tags[chunk.corpus], *source] for source in sources]
    targets = tokenizer.encode_batch(pairs.targets, "target")
    of_lengths = rules_broken(_lengths(sources), _lengths(targets), limits)
    kept = np.flatnonzero(of_lengths == KEPT)
    broken[broken == KEPT] = of_lengths
    return EncodedPairs(
        broken, _encoded_side(sources, kept, tokenizer), _encoded_side(targets, kept, tokenizer)
    )


def _lengths(encoded: list[list[int]]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))


def _encoded_side(
    encoded: list[list[int]], kept: npt.NDArray[np.intp], tokenizer: Tokenizer
) -> EncodedSide:
    end, sentences = tokenizer.eos_id, [encoded[place] for place in kept]
    for sentence in sentences:
        sentence.append(end)
    lengths = _lengths(sentences)
    # Few bytes to send to the process that writes them.
    dtype = dtype_holding(max(tokenizer.size, tokenizer.source_size or 0) - 1)
    tokens = np.fromiter(chain.from_iterable(sentences), dtype, count=int(lengths.sum()))
    num_unknown = int((tokens == tokenizer.unk_id).sum())
    return EncodedSide(tokens, lengths, num_unknown)
