import random
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from nmt_cli.corpus.chunk_pool import CHUNKS_IN_FLIGHT, ChunkPool
from nmt_cli.corpus.encoding import encode_chunk
from nmt_cli.corpus.text.cleaning import KEPT, RULES, PairLimits
from nmt_cli.corpus.text.first_pass import CorpusChunk
from nmt_cli.corpus.text.parallel_text import LineChunk
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.recipe.model_settings import TextSettings
from nmt_cli.recipe.model_values import TextNormalization

PIECES = ["ant", "bee", "cat", "dog"]
RECIPE = """\
description: Text already in pieces.
data:
  source_language: en
  target_language: de
  train: [{{source: {folder}/text.en, target: {folder}/text.de}}]
  validation: {{source: {folder}/few.en, target: {folder}/few.de}}
tokenizer: {{type: whitespace}}
"""
# The rusage of this process itself includes what it inherited from pytest.
MEASURED = """
import re, resource, sys
from pathlib import Path
from nmt_cli.commands import preprocess

if __name__ == "__main__":
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    recipe = str(folder / "recipe.yaml")
    preprocess.run(recipe=recipe, output=folder / "prepared", workers=workers)
    print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.fixture
def encode():
    normalizer = Normalizer(TextSettings("en", "de", "whitespace", None, TextNormalization()))
    tokenizer = WhitespaceTokenizer([*CONTROL, *PIECES], normalizer, None)
    return partial(
        encode_chunk,
        tokenizer=tokenizer,
        limits=PairLimits(6, 2, 3.0),
        tags=[[]],
        languages=["en"],
        finders=None,
    )


def pair(number):
    rng = random.Random(number)
    words = [*PIECES, "owl"]
    source, target = (" ".join(rng.choices(words, k=rng.randint(1, 8))) for _ in range(2))
    return (source, target) if number % 20 else (source, " ")


def chunk_of(first, count):
    pairs = [pair(number) for number in range(first, first + count)]
    source, target = ("\n".join(side).encode() for side in zip(*pairs, strict=True))
    is_repeated = np.arange(first, first + count) % 20 == 7
    left_out = np.where(is_repeated, RULES.index("duplicate"), KEPT).astype(np.int8)
    return CorpusChunk(0, first, LineChunk(first, count, source, target), left_out)


def ids(text):
    return [PIECES.index(w) + len(CONTROL) if w in PIECES else 0 for w in text.split()]


def rule_broken(number):
    if number % 20 == 0:
        return RULES.index("empty")
    if number % 20 == 7:
        return RULES.index("duplicate")
    shorter, longer = sorted(len(text.split()) for text in pair(number))
    if longer > 6:
        return RULES.index("too_long")
    if shorter < 2:
        return RULES.index("too_short")
    return RULES.index("length_ratio") if longer > 3 * shorter else KEPT


def by_pool(chunks, encode, folder, workers):
    with ChunkPool(folder, workers) as pool:
        yield from pool.in_order(chunks, encode, workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_each_side_is_its_pieces_and_an_end_for_every_kept_pair(encode, tmp_path, workers):
    chunks, first = [chunk_of(first, 30) for first in range(0, 180, 30)], 0
    for chunk, encoded in by_pool(chunks, encode, tmp_path, workers):
        assert chunk.first_index == first
        broken = [rule_broken(number) for number in range(first, first + 30)]
        assert encoded.broken.tolist() == broken
        assert encoded.broken.dtype == np.int8
        kept = [pair(first + place) for place, rule in enumerate(broken) if rule == KEPT]
        assert 0 < len(kept) < 28
        sides = zip(*kept, strict=True)
        for side, texts in zip((encoded.source, encoded.target), sides, strict=True):
            sentences = [[*ids(text), 2] for text in texts]
            assert side.lengths.tolist() == [len(sentence) for sentence in sentences]
            assert side.tokens.tolist() == [token for sentence in sentences for token in sentence]
            assert side.num_unknown == sum(sentence.count(0) for sentence in sentences) > 0
            assert side.tokens.dtype == np.uint16
        first += 30
    assert first == 180


@pytest.mark.parametrize("workers", [1, 2])
def test_no_more_chunks_are_read_than_are_in_the_works(encode, tmp_path, workers):
    num_read = 0

    def chunks():
        nonlocal num_read
        for num_read in range(1, 31):
            yield chunk_of(10 * num_read, 10)

    num_done, most_ahead = 0, 0
    for _ in by_pool(chunks(), encode, tmp_path, workers):
        most_ahead = max(most_ahead, num_read - num_done)
        num_done += 1
    assert num_done == 30
    assert most_ahead == (1 if workers == 1 else CHUNKS_IN_FLIGHT * workers)


def write_corpus(folder, num_pairs):
    rng = random.Random(num_pairs)
    words = ["".join(rng.choices("abcdefgh", k=5)) for _ in range(500)]
    lines = [" ".join(rng.choices(words, k=150)) for _ in range(100)]
    for side in ("en", "de"):
        for name, count in (("text", num_pairs), ("few", 10)):
            with (folder / f"{name}.{side}").open("w") as stream:
                for number in range(count):
                    stream.write(f"{rng.choice(lines)} {number % 1000}\n")
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder))


def peak_memory(folder, workers):
    """Return the largest resident set, in bytes, of preprocess or one of its workers."""
    output = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder), str(workers)],
        capture_output=True,
        check=True,
    ).stdout
    return 1024 * max(int(number) for number in output.split())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_memory_does_not_grow_with_the_corpus(tmp_path, workers):
    peaks = []
    for num_pairs in (5_000, 50_000):
        folder = tmp_path / str(num_pairs)
        folder.mkdir()
        write_corpus(folder, num_pairs)
        peaks.append(peak_memory(folder, workers))
    growth = 2 * 45_000 * 900  # bytes of text on both sides
    assert peaks[1] - peaks[0] < 0.1 * growth
