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
from pathlib import Path
from statistics import median

import sentencepiece

from nmt_cli.commands import preprocess
from nmt_cli.corpus.encoding import EncodingJob, encode_in_order
from nmt_cli.corpus.text.cleaning import training_limits
from nmt_cli.corpus.text.parallel_corpora import TextPair
from nmt_cli.recipe.model_settings import text_settings
from nmt_cli.recipe.reader import read_recipe

ROUNDS = 15


def main() -> None:
    """Print one line of JSON."""
    corpus, text = Path(sys.argv[1]), Path(sys.argv[2])
    sources, targets = (_lines(text / f"train.{language}") for language in ("en", "de"))
    pairs = [
        TextPair(0, line, source, target)
        for line, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]
    rates = encoding_rates(corpus, pairs)
    with tempfile.TemporaryDirectory() as folder:
        rates["whole"] = whole_rate(corpus, 2 * len(pairs), Path(folder))
    sys.stdout.write(json.dumps(rates) + "\n")


def encoding_rates(corpus: Path, pairs: list[TextPair]) -> dict[str, float]:
    """Return sentences a second on one core, of SentencePiece and of us, taking turns."""
    recipe = read_recipe(str(corpus / "recipe.yaml")).recipe
    job = EncodingJob(
        corpus, text_settings(recipe.tokenizer, recipe.data), training_limits(recipe.data)
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(corpus / "tokenizer.model"))
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def theirs() -> None:
        for sentences in sides:
            processor.encode(sentences, out_type=int, num_threads=1)

    def ours() -> None:
        for _ in encode_in_order(pairs, job, workers=1):
            pass

    seconds = [(_seconds(theirs), _seconds(ours)) for _ in range(ROUNDS)]
    return {
        "sentencepiece": 2 * len(pairs) / median(pair[0] for pair in seconds),
        "ours": 2 * len(pairs) / median(pair[1] for pair in seconds),
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


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _seconds(work: Callable[[], None]) -> float:
    started = time.process_time()  # of all threads: a rate of one core, whoever else computes
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
