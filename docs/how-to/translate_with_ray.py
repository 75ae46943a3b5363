"""Translate a text on all machines of a Ray cluster, with one line of output for each line.

    python translate_with_ray.py MODEL INPUT OUTPUT NUM_ACTORS

Every machine must see MODEL and INPUT under the same path. An actor that dies is started again, and
what it had is translated once more. OUTPUT appears when it is complete.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from nmt_cli import Translator

LINES = 1_000  # of a batch: what is translated once more if an actor dies
CPUS = 1  # of an actor, which computes in as many threads
GPUS = 0  # of an actor


def batches(source: Path) -> Iterator[dict[str, int]]:
    """Yield where each batch of lines begins and ends, in bytes."""
    begin = end = 0
    with source.open("rb") as file:
        for number, line in enumerate(file, start=1):
            end += len(line)
            if number % LINES == 0:
                yield {"begin": begin, "end": end}
                begin = end
    if end > begin:
        yield {"begin": begin, "end": end}


class Translate:
    """An actor: it loads the model once, and translates batch after batch."""

    def __init__(self, model: Path, source: Path) -> None:
        self.translator, self.source = Translator.load(model), source

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the translation of the one batch that ``batch`` describes."""
        begin, end = int(batch["begin"][0]), int(batch["end"][0])
        with self.source.open("rb") as file:
            file.seek(begin)
            lines = file.read(end - begin).decode().removesuffix("\n").split("\n")
        translations = list(self.translator.translate(lines))
        num_failed = sum(each.error is not None for each in translations)
        text = "".join(f"{each.text}\n" for each in translations)
        return {"text": [text], "num_failed": [num_failed]}


def main(model: Path, source: Path, target: Path, num_actors: int) -> int:
    """Translate ``source``, and return the number of lines that could not be translated."""
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    parts = list(batches(source))
    translated = ray.data.from_items(parts, override_num_blocks=max(len(parts), 1)).map_batches(
        Translate,
        fn_constructor_args=(model.resolve(), source.resolve()),
        batch_size=1,
        num_cpus=CPUS,
        num_gpus=GPUS,
        compute=ray.data.ActorPoolStrategy(size=num_actors),
    )
    num_failed = 0
    partial = target.with_name(f"{target.name}.partial")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        for row in translated.iter_rows():
            file.write(row["text"])
            file.flush()
            num_failed += row["num_failed"]
    partial.replace(target)
    return num_failed


if __name__ == "__main__":
    failed = main(*map(Path, sys.argv[1:4]), int(sys.argv[4]))
    if failed:
        sys.stderr.write(f"{failed:,} lines could not be translated\n")
