"""Sentences a second and core: our encoding against SentencePiece's own batch encoding.

    python -m tests.benchmarks.preprocessing CORPUS TEXT

CORPUS is a prepared folder, TEXT the folder with its train.en and train.de. Prints JSON. "whole"
is ``nmt-cli preprocess`` from text to token files: reading, looking for repeated pairs, cleaning,
encoding and writing with its checksums.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import median

import sentencepiece

from nmt_cli.commands import preprocess
from nmt_cli.corpus.encoding import encode_chunk
from nmt_cli.corpus.text.cleaning import PairLimits
from nmt_cli.corpus.text.first_pass import CorpusChunk
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.corpus.tokenizers.tokenizer import load_tokenizer
from nmt_cli.recipe.model_settings import text_settings
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.sections.corpora import ParallelFiles

ROUNDS = 15


def main() -> None:
    """Print one line of JSON."""
    corpus, text = Path(sys.argv[1]), Path(sys.argv[2])
    files = ParallelFiles(source=text / "train.en", target=text / "train.de")
    chunks = [CorpusChunk(0, c.num_before, c, None) for c in ParallelText(files).chunks()]
    rates = encoding_rates(corpus, chunks)
    num_pairs = sum(chunk.lines.num_lines for chunk in chunks)
    with tempfile.TemporaryDirectory() as folder:
        rates["whole"] = whole_rate(corpus, 2 * num_pairs, Path(folder))
    sys.stdout.write(json.dumps(rates) + "\n")


def encoding_rates(corpus: Path, chunks: list[CorpusChunk]) -> dict[str, float]:
    """Return sentences a second on one core, of SentencePiece and of us, taking turns."""
    recipe = read_recipe(str(corpus / "recipe.yaml")).recipe
    tokenizer = load_tokenizer(corpus, text_settings(recipe.tokenizer, recipe.data))
    limits = PairLimits(recipe.data.max_length)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(corpus / "tokenizer.model"))
    texts = [chunk.lines.texts() for chunk in chunks]
    sides = [list(chain.from_iterable(side)) for side in list(zip(*texts, strict=True))[:2]]

    def theirs() -> None:
        for sentences in sides:
            processor.encode(sentences, out_type=int, num_threads=1)

    def ours() -> None:
        for chunk in chunks:
            encode_chunk(chunk, tokenizer, limits, tags=[[]], languages=["en"], finders=None)

    num_sentences = sum(map(len, sides))
    seconds = [(_seconds(theirs), _seconds(ours)) for _ in range(ROUNDS)]
    return {
        "sentencepiece": num_sentences / median(pair[0] for pair in seconds),
        "ours": num_sentences / median(pair[1] for pair in seconds),
    }


def whole_rate(corpus: Path, num_sentences: int, folder: Path) -> float:
    """Return sentences a second of CPU time of the whole command, with the tokenizer given."""

    started = time.process_time()
    preprocess.run(
        recipe=str(corpus / "recipe.yaml"),
        overrides=[
            f"tokenizer.model={corpus / 'tokenizer.model'}",
            "tokenizer.vocabulary_size=null",
        ],
        output=folder / "whole",
        workers=1,
    )
    return num_sentences / (time.process_time() - started)


def _seconds(work: Callable[[], None]) -> float:
    started = time.process_time()  # of all threads: a rate of one core, whoever else computes
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
