"""How many pairs of a text each filter drops, alone, and its CPU time; prints JSON.

    python -m tests.benchmarks.cleaning SOURCE TARGET SOURCE_LANGUAGE TARGET_LANGUAGE

Times are CPU seconds of one process a million pairs, beside those of preprocess without filters.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from nmt_cli.corpus.text.cleaning import KEPT, HeldOut
from nmt_cli.corpus.text.first_pass import Cleaner, CorpusChunk, findings_in
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.recipe.sections.corpora import Corpus, HeldOutFiles, ParallelFiles
from nmt_cli.recipe.sections.data import DataConfig, Filters

# The values that the how-to proposes.
FILTERS: dict[str, Any] = {
    "min_characters": 3,
    "max_characters": 600,
    "max_characters_ratio": 3,
    "min_words": 2,
    "max_words": 100,
    "max_words_ratio": 3,
    "max_word_length": 40,
    "remove_copies": True,
    "min_letters": 0.5,
    "min_script": 0.5,
    "min_equal_digits": 0.5,
    "remove_different_urls": True,
    "max_urls": 0.5,
    "max_repeated_ngrams": 0.3,
    "min_language": 0.05,
    "remove_duplicates": True,
    "remove_duplicate_sources": True,
}


def measure(files: ParallelFiles, languages: list[str], filters: dict[str, Any]) -> dict[str, Any]:
    """Return the pairs that are dropped and the CPU seconds a million pairs."""
    data = DataConfig(
        source_language=languages[0],
        target_language=languages[1],
        train=(Corpus(source=files.source, target=files.target),),
        validation=HeldOutFiles(source=files.source, target=files.target),
        filters=Filters(**filters),
    )
    held_out = HeldOut(pair for number, pair in enumerate(ParallelText(files)) if number % 10 == 0)
    chunks = [CorpusChunk(0, c.num_before, c, None) for c in ParallelText(files).chunks()]
    look = partial(findings_in, held_out={"validation": held_out}, cleaner=Cleaner(data))
    look(chunks[0])  # what is loaded when it is first used
    started, num_dropped = time.process_time(), 0
    for chunk in chunks:
        broken = look(chunk).broken
        num_dropped += 0 if broken is None else int((broken != KEPT).sum())
    seconds = time.process_time() - started
    num_pairs = sum(chunk.lines.num_lines for chunk in chunks)
    return {"dropped": num_dropped, "pairs": num_pairs, "seconds": 1e6 * seconds / num_pairs}


def main() -> None:
    """Print a line of JSON for each filter."""
    files = ParallelFiles(source=Path(sys.argv[1]), target=Path(sys.argv[2]))
    without = min(measure(files, sys.argv[3:5], {})["seconds"] for _ in range(3))
    for name, value in [("none", None), *FILTERS.items(), ("all", None)]:
        filters = {"all": FILTERS, "none": {}}.get(name, {name: value})
        found = measure(files, sys.argv[3:5], filters)
        found["seconds"] -= without if name != "none" else 0
        sys.stdout.write(json.dumps({"filter": name, "value": value, **found}) + "\n")


if __name__ == "__main__":
    main()
