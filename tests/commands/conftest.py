"""Text files, a small corpus in a folder of its own, and a training of the toy model."""

import gzip
import hashlib
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from nmt_cli.commands import preprocess, train
from nmt_cli.corpus.prepared import PreparedCorpus, open_prepared
from nmt_cli.messages import logs
from nmt_cli.recipe.reading.reader import read_recipe

RECIPE = """
description: a small corpus
data:
  source_language: en
  target_language: de
  train: [{source: data/a.en, target: data/a.de}, {source: "data/b,c.en", target: data/b.de}]
  validation: {source: data/val.en, target: data/val.de}
tokenizer: {vocabulary_size: 300}
"""
WORDS = ["".join(random.Random(seed).choices("abcdefgh", k=4)) for seed in range(60)]
FP32 = {"device": "cpu", "precision": "fp32"}
TRAIN_OPTIONS = {**FP32, "max_tokens_per_device": 60}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress}


class SmallCorpus(NamedTuple):
    """A folder, also the current one, with ``small.yaml`` and the text it names in ``data/``."""

    folder: Path
    output: Path = Path("prepared/small")

    def prepare(self, *overrides: str, **settings: Any) -> dict[str, str]:
        """Run preprocess; return the hashes of the files it made."""
        preprocess.run(recipe="./small.yaml", overrides=overrides, **settings)
        return self.hashes()

    def hashes(self) -> dict[str, str]:
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (self.folder / self.output).iterdir()
        }

    def opened(self, *overrides: str) -> PreparedCorpus:
        recipe = read_recipe("./small.yaml", overrides).recipe
        return open_prepared(self.output, recipe, "nmt-cli preprocess small")

    def beside_output(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "prepared").iterdir())

    @staticmethod
    def sentences(num_sentences: int, seed: int) -> list[str]:
        generator = random.Random(seed)
        return [
            " ".join(generator.choices(WORDS, k=generator.randint(2, 9)))
            for _ in range(num_sentences)
        ]

    @staticmethod
    def write(path: str | Path, lines: list[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode()
        Path(path).write_bytes(COMPRESS.get(Path(path).suffix, bytes)(data))


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallCorpus:
    """Two training corpora of 80 and 30 pairs and a validation set of 20."""
    small = SmallCorpus(tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    for seed, (name, size) in enumerate([("a", 80), ("b", 30), ("val", 20)]):
        small.write(f"data/{name}.en", small.sentences(size, 2 * seed))
        small.write(f"data/{name}.de", small.sentences(size, 2 * seed + 1))
    Path("data/b.en").rename("data/b,c.en")
    Path("small.yaml").write_text(RECIPE)
    return small


@pytest.fixture
def files(tmp_path):
    """Return a function that writes lines to a file of ``tmp_path`` and returns its path."""
    logs.configure(quiet=True)

    def write(name, lines):
        path = tmp_path / name
        SmallCorpus.write(path, lines)
        return path

    return write


@pytest.fixture
def run(toy, tmp_path):
    """Train the toy into tmp_path/run with the options given; return the run directory."""

    def call(*overrides, **options):
        chosen = {"prepared": toy.prepared, "run_dir": tmp_path / "run", **TRAIN_OPTIONS, **options}
        train.run(str(toy.recipe_path), overrides=overrides, **chosen)
        return chosen["run_dir"]

    return call


def undrawn(chart, _):
    """Return a chart that takes no time, where the report of a run does not matter."""
    return SimpleNamespace(name=chart.name, title=chart.title, html="", png=b"drawn")
