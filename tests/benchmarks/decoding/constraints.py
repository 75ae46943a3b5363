"""Translates with random words of the references as constraints; prints a table of what they do.

python -m tests.benchmarks.decoding.constraints MODEL SOURCE REFERENCE [--lines N]

A word that occurs twice in a reference is one constraint. A line that is also at the length limit
without constraints is not there because of them. Times are the CPU's, of one thread.
"""

import argparse
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path

import click
import torch

from nmt_cli import Request, Translator
from nmt_cli.corpus.tokenizers.tokenizer import load_tokenizer
from nmt_cli.files.file_names import CONFIG
from nmt_cli.metrics.bleu import bleu_scorer
from nmt_cli.metrics.tokenization import TOKENIZATION
from nmt_cli.recipe.model_settings import read_config

MOST_WORDS = 4


def random_words(reference: str, number: int, seed: int) -> list[str]:
    """Return different words of ``reference``, without the punctuation around them."""
    words = [re.sub(r"^\W+|\W+$", "", word) for word in reference.split()]
    different = [word for word in dict.fromkeys(words) if word]
    return random.Random(seed).sample(different, min(number, len(different)))


def has_words(text: str, words: Sequence[str]) -> bool:
    """Return whether all ``words`` occur in ``text``, each between borders of words."""
    return all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for word in words)


def main() -> None:
    """Print a row for each number of constraints, and a first one without any."""
    parser = argparse.ArgumentParser()
    for name in ("model", "source", "reference"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--lines", type=int)
    parser.add_argument("--beam-size", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    translator = Translator.load(arguments.model, device="cpu", beam_size=arguments.beam_size)
    sources, references = (
        path.read_text(encoding="utf-8").split("\n")[:-1][: arguments.lines]
        for path in (arguments.source, arguments.reference)
    )
    list(translator.translate(sources[:20]))  # warms up
    settings = read_config(arguments.model / CONFIG)
    encoded = load_tokenizer(arguments.model, settings.text).encode_batch(sources)
    limits = [len(tokens) + settings.decoding.max_extra_length for tokens in encoded]
    click.echo(
        "| words | BLEU | lines that have them all | lines at the length limit because of them "
        "| longest output, pieces | CPU time |"
    )
    click.echo("|---|---|---|---|---|---|")
    unconstrained, without = 0.0, set[int]()
    for number in range(MOST_WORDS + 1):
        wanted = [random_words(text, number, seed) for seed, text in enumerate(references)]
        requests = [
            Request(source, required=words) for source, words in zip(sources, wanted, strict=True)
        ]
        begun = time.process_time()
        translations = list(translator.translate(requests))
        seconds = time.process_time() - begun
        unconstrained = unconstrained or seconds
        texts = [each.text for each in translations]
        bleu = bleu_scorer(TOKENIZATION, lowercase=False).score(texts, [references])
        num_met = sum(map(has_words, texts, wanted))
        lengths = [len(each.tokens) for each in translations]
        at_limit = {n for n, length in enumerate(lengths) if length >= limits[n]}
        without = without if number else at_limit
        click.echo(
            f"| {number} | {bleu.score:.2f} | {num_met / len(texts):.1%} "
            f"| {len(at_limit - without)} | {max(lengths)} "
            f"| {seconds:.1f} s, {seconds / unconstrained:.2f} |"
        )


if __name__ == "__main__":
    main()
