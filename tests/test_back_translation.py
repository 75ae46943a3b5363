"""The example of back-translation in the documentation runs line by line, here on a small text."""

import importlib
import json
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.recipe.reading.reader import read_recipe

ROOT = Path(__file__).parents[1]
GRAMMAR = ROOT / "data" / "quickstart"
SIZES = {"train": 250, "validation": 10, "test": 5}
SMALLER = {"head -n 20000": "head -n 200", "tail -n 10000": "tail -n 50"}
SETTINGS = {
    "tokenizer.vocabulary_size": 450,
    "tokenizer.sampling": 0.1,
    "model": "{num_layers: 1, d_model: 16, d_ff: 32, num_heads: 2, norm: pre}",
    "training.tokens_per_step": 1200,
    "training.max_steps": 4,
    "validation.bleu": "off",
    "checkpoints.every_steps": 2,
    "checkpoints.keep_for_average": 2,
    "decoding.beam_size": 1,
    "decoding.max_extra_length": 3,
}
ON_CPU = ["--device", "cpu", "--threads", "1", "--precision", "fp32"]


def parts_of_the_section():
    """Yield the name of a file, or "", and the lines of each indented block."""
    text = (ROOT / "docs/tutorials/back-translation.md").read_text(encoding="utf-8")
    named = ""
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if all(line.startswith("    ") for line in lines):
            yield named, [line.removeprefix("    ") for line in lines]
            named = ""
        elif match := re.match(r"`([\w.]+)`", lines[0]):
            named = match[1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a quickstart corpus of a few pairs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(GRAMMAR))
    generate = importlib.import_module("generate")
    for module in [name for name, m in sys.modules.items() if is_grammar(m)]:
        monkeypatch.delitem(sys.modules, module)  # names such as "words" are free again afterwards
    target = tmp_path / "data" / "quickstart"
    target.mkdir(parents=True)
    pairs = generate.sentence_pairs(generate.SEED)
    for name, size in SIZES.items():
        part = [next(pairs) for _ in range(size)]
        for place, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[place]}\n" for pair in part)
            (target / f"{name}.{language}").write_text(lines, encoding="utf-8")
    return tmp_path


def is_grammar(module):
    return str(GRAMMAR) in str(getattr(module, "__file__", ""))


def call(line):
    """Run one line of the section in a small form."""
    for documented, small in SMALLER.items():
        line = line.replace(documented, small)
    match = re.fullmatch(r"nmt-cli (.*?)( [|>] .*)?", line)
    if match is None:
        subprocess.run(["sh", "-euc", line], check=True)
        return
    name, *arguments = shlex.split(match[1])
    if name == "run":
        arguments += [f"--set={key}={value}" for key, value in SETTINGS.items()]
        arguments += ["--until", "average"]
    result = CliRunner().invoke(cli.main, [name, *arguments, *ON_CPU], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    if match[2] is not None:
        subprocess.run(["sh", "-euc", f"cat{match[2]}"], input=result.stdout_bytes, check=True)


@pytest.mark.slow
def test_each_line_of_the_example_runs(folder):
    scores: list[float] = []
    for name, lines in parts_of_the_section():
        if name:
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            continue
        for line in lines:
            if line.startswith("paste scores "):
                scores = [float(score) for score in lines_of(folder / "scores")]
                assert "$1 > -6 " in line
                line = line.replace("-6 ", f"{statistics.median(scores)} ")
            call(line)
    check_pairs(folder, scores)


def check_pairs(folder, scores):
    """Assert that the best half became pairs of the tagged text and its original."""
    sampled, mono = lines_of(folder / "sampled.en"), lines_of(folder / "mono.de")
    assert len(scores) == len(sampled) == len(mono) == 50
    assert mono == lines_of(folder / "data/quickstart/train.de")[-50:]
    best = [place for place, score in enumerate(scores) if score > statistics.median(scores)]
    kept = [place for place in best if sampled[place]]
    assert len(kept) > 20
    assert lines_of(folder / "back.en") == [sampled[place] for place in kept]
    assert lines_of(folder / "back.de") == [mono[place] for place in kept]

    recipe = read_recipe("runs/back/recipe.yaml").recipe
    assert recipe.tokenizer.sampling == 0.1
    corpus = open_prepared(folder / "prepared/back", recipe, "")
    assert corpus.corpus_sizes == (200, len(kept))
    assert corpus.tokenizer.pieces(corpus.tokenizer.encode("<bt> The"))[0] == "\u2581<bt>"
    assert corpus.source.gather(np.array([200])).tokens[0] == corpus.tokenizer.encode("<bt>")[0]
    records = map(json.loads, lines_of(folder / "runs/back/metrics.jsonl"))
    assert [record["step"] for record in records if "loss" in record] == [1, 2, 3, 4]


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]
