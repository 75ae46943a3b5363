"""The part ``decoding`` of a run: every engine translates the same text with the same weights."""

import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt_cli import logs
from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.file_names import CHECKPOINTS
from nmt_cli.metrics.bleu import BleuScorer
from nmt_cli.model_directory import find_model, load_model
from tests.benchmarks import speed
from tests.benchmarks.data import Text, write_recipe
from tests.benchmarks.decoding.sample import Sample, read_outputs, write_sample
from tests.benchmarks.processes import OURS, Toolkit
from tests.benchmarks.shapes import SEED, Shape

TRANSLATOR = OURS._replace(module="tests.benchmarks.decoding.ours")
CTRANSLATE2 = Toolkit("CTranslate2", "tests.benchmarks.decoding.peer_ctranslate2")
GENERATE = Toolkit("Hugging Face generate", "tests.benchmarks.decoding.peer_huggingface")


class Training(NamedTuple):
    """How the weights of a shape are made: long enough for translations of natural lengths."""

    steps: int
    warmup_steps: int
    peak_learning_rate: float


TRAININGS = {"S": Training(1_000, 300, 2e-3), "base": Training(250, 100, 7e-4)}
LINES = {"S": 1_000, "base": 200}
SENTENCES_OF_NEWS = (1, 2, 3, 4)  # captions that are joined to a line as long as news have it
ROUNDS = speed.Rounds(warm_up=1, counted=1, max_rounds=5, seconds=240)


def trained_model(folder: Path, shape: Shape, training: Training, text: Text) -> Path:
    """Return a model of ``shape`` trained on ``text``; it is kept in ``folder``."""
    run_dir = folder / "run"
    recipe = write_recipe(folder / "recipe.yaml", text, f"vocabulary_size: {text.pieces}")
    settings = {
        "model.num_layers": shape.num_layers,
        "model.d_model": shape.d_model,
        "model.d_ff": shape.d_ff,
        "model.num_heads": shape.num_heads,
        "training.tokens_per_step": shape.tokens,
        "training.max_steps": training.steps,
        "training.warmup_steps": training.warmup_steps,
        "training.peak_learning_rate": training.peak_learning_rate,
        "training.seed": SEED,
        "validation.bleu": "off",
        "validation.every_steps": training.steps,
        "checkpoints.every_steps": 50,
    }
    if not (folder / "model").exists():
        common = [str(recipe), *(f"--set={key}={value}" for key, value in settings.items())]
        prepared = f"--prepared={folder / 'prepared'}"
        _nmt_cli("preprocess", *common, f"--output={folder / 'prepared'}", "--force")
        resume = ["--resume"] if (run_dir / CHECKPOINTS).exists() else []
        _nmt_cli("train", *common, prepared, f"--run-dir={run_dir}", *resume)
        shutil.copytree(find_model(run_dir), folder / "model")
    return folder / "model"


def _nmt_cli(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "nmt_cli", *arguments], check=True)


def sample_of(text: Text, tokenizer: Tokenizer, num_lines: int, *, as_news: bool) -> "TestText":
    """Return lines that are not trained on; ``as_news`` joins them to lines as long as news'."""
    sides = []
    for language in ("en", "de"):
        path = text.folder / f"{text.validation}.{language}"
        with path.open(encoding="utf-8", newline="\n") as lines:
            sides.append([line.rstrip("\n") for line in lines])
    pairs = list(zip(*sides, strict=True))
    if as_news:
        rng, left = np.random.default_rng(SEED), iter(pairs)
        groups = iter(lambda: list(islice(left, int(rng.choice(SENTENCES_OF_NEWS)))), [])
        pairs = [(" ".join(p[0] for p in group), " ".join(p[1] for p in group)) for group in groups]
    source, references = zip(*pairs[:num_lines], strict=True)
    return TestText(Sample(source, tokenizer.encode_batch(source)), references)


class TestText(NamedTuple):
    """Lines to translate and their references."""

    sample: Sample
    references: tuple[str, ...]


def rows_of(precisions: tuple[str, ...], threads: int) -> list[speed.Row]:
    """Return what is measured; of several batch sizes and numbers of workers the best counts."""
    ours = [
        speed.Row(TRANSLATOR, f"{precision} {tokens}")
        for precision in precisions
        for tokens in (8_192, 16_384, 32_768)
    ]
    counts = dict.fromkeys((f"{threads}x1", f"1x{threads}"))
    theirs = [
        speed.Row(CTRANSLATE2, f"{compute_type} {count} {batch}")
        for compute_type in ("float32", "int8")
        for count in counts
        for batch in (32, 128)
    ]
    plain = [
        speed.Row(GENERATE, f"{precision} {batch}")
        for precision in precisions
        for batch in (32, 128)
    ]
    return [*ours, *theirs, *plain]


def compare_outputs(
    folder: Path, rows: list[speed.Row], tokenizer: Tokenizer, text: TestText
) -> dict[str, Any]:
    """Return for each row its BLEU, and the share of lines equal to our first row's."""
    found: dict[str, Any] = {}
    reference = read_outputs(folder, f"{rows[0].toolkit.name} {rows[0].variant}")
    for row in rows:
        name = f"{row.toolkit.name} {row.variant}"
        try:
            outputs = read_outputs(folder, name)
        except FileNotFoundError:  # the engine failed
            continue
        equal = sum(a == b for a, b in zip(outputs, reference, strict=True))
        lines = [tokenizer.decode(tokens) for tokens in outputs]
        found[name] = {
            "equal": equal / len(outputs),
            "bleu": BleuScorer().score(lines, text.references).score,
        }
    return found


def write_test_text(folder: Path, model: Path, text: Text, name: str, *, as_news: bool) -> TestText:
    """Write the sample of shape ``name`` beside a link to the model; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = load_model(model).tokenizer
    test_text = sample_of(text, tokenizer, LINES[name], as_news=as_news)
    write_sample(folder, test_text.sample, tokenizer.pieces(range(tokenizer.size)))
    if not (folder / "model").exists():
        (folder / "model").symlink_to(model.resolve())
    logs.info(f"decoding: {len(test_text.references):,} lines in {folder}")
    return test_text
