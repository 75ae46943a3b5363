"""The part ``decoding`` of a run: every engine translates the same text with the same weights."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.file_names import CHECKPOINTS
from nmt_cli.interchange.ctranslate2.exporter import write_ctranslate2
from nmt_cli.messages import logs
from nmt_cli.metrics.bleu import bleu_scorer
from nmt_cli.saved.model_directory import find_model, load_model
from tests.benchmarks import speed, targets
from tests.benchmarks.data import Text, write_recipe
from tests.benchmarks.decoding import costs
from tests.benchmarks.decoding.sample import (
    EXPORTED,
    Sample,
    read_exported,
    read_outputs,
    write_sample,
)
from tests.benchmarks.processes import OURS, Toolkit, WorkerError
from tests.benchmarks.shapes import PRECISIONS, SEED, Shape

TRANSLATOR = OURS._replace(module="tests.benchmarks.decoding.ours")
CTRANSLATE2 = Toolkit(targets.CTRANSLATE2, "tests.benchmarks.decoding.peer_ctranslate2")
GENERATE = Toolkit(targets.GENERATE, "tests.benchmarks.decoding.peer_huggingface")


class Training(NamedTuple):
    """How the weights of a shape are made: long enough for translations of natural lengths."""

    steps: int
    tokens_per_step: int
    warmup_steps: int
    peak_learning_rate: float
    norm: str


# With post-norm, base still guesses by the frequency of pieces after so many steps. Pre-norm has
# the same products, and one LayerNorm more.
TRAININGS = {
    "S": Training(700, 4_096, 250, 2e-3, "post"),
    "base": Training(450, 2_048, 80, 1e-3, "pre"),
    "big": Training(200, 8_192, 80, 5e-4, "pre"),  # on a GPU only
}
# Lines of captions; a line as long as news have it is made of several.
LINES = {"S": 1_000, "base": 256, "big": 256}
CAPTIONS_OF_NEWS = (1, 2, 3, 4)
# Rates of a turn differ by up to a quarter on machines that share their memory with others.
ROUNDS = speed.Rounds(warm_up=1, counted=1, max_rounds=10, seconds=2_400)


class Contender(NamedTuple):
    """An engine in one precision, and the settings of which the fastest counts."""

    toolkit: Toolkit
    precision: str
    settings: tuple[str, ...]

    @property
    def rows(self) -> list[speed.Row]:
        """A row of the table for each setting."""
        return [speed.Row(self.toolkit, f"{self.precision} {each}") for each in self.settings]


def contenders(precisions: Sequence[str], threads: int, *, with_generate: bool) -> list[Contender]:
    """Return all that is measured; processes or threads share the cores."""
    shares = tuple(dict.fromkeys((f"{threads}x1", f"1x{threads}")))
    # A process for each core was our fastest in each record.
    ours = tuple(f"{shares[0]} {tokens}" for tokens in (8_192, 16_384))
    theirs = tuple(f"{share} {batch}" for share in shares for batch in (32, 128))
    of_generate = PRECISIONS if with_generate else ()
    return [
        *(Contender(TRANSLATOR, precision, ours) for precision in precisions),
        *(Contender(CTRANSLATE2, name, theirs) for name in ("float32", "int8")),
        *(Contender(GENERATE, p, ("32", "128")) for p in of_generate if p in precisions),
    ]


def measure(
    folder: Path,
    text: "TestText",
    precisions: Sequence[str],
    threads: int,
    open_worker: speed.OpenWorker,
    *,
    with_generate: bool,
) -> dict[str, Any]:
    """Return the figures of ``speed.measure`` for the best setting of each contender.

    "outputs" has the BLEU of each row, and the share of lines that equal those of our first row,
    "costs" what ``costs.measure`` returns.
    """
    found, failures = [], {}
    measured_ones = contenders(precisions, threads, with_generate=with_generate)
    for contender in measured_ones:
        try:
            found.append(_fastest(contender, open_worker))
        except WorkerError as error:
            failures[contender.toolkit.name] = str(error)
    ceilings = [
        speed.Row(TRANSLATOR, f"ceiling {p} {threads}") for p in PRECISIONS if p in precisions
    ]
    measured = speed.measure([*found, *ceilings], open_worker, ROUNDS)
    measured["failures"] |= failures
    engines = [(each.toolkit, each.precision) for each in measured_ones if each.toolkit != GENERATE]
    lines = text.sample.lines
    further = costs.measure(engines, threads, lines, folder / "model", open_worker)
    return {**measured, "outputs": _compared(folder, found, text), "costs": further}


def _fastest(contender: Contender, open_worker: speed.OpenWorker) -> speed.Row:
    rates = {}
    for row in contender.rows:
        # CTranslate2 takes longer if its process has had another one of several threads.
        with open_worker(contender.toolkit) as worker:
            rates[row] = speed.rate_of(worker.turn(row.variant, 0, 2)["steps"][1:])
    logs.info(", ".join(f"{row.toolkit.name} {row.variant}: {rates[row]:,.0f}" for row in rates))
    return max(rates, key=rates.__getitem__)


def _compared(folder: Path, rows: Sequence[speed.Row], text: "TestText") -> dict[str, Any]:
    compared: dict[str, Any] = {}
    reference = read_outputs(folder, f"{rows[0].toolkit.name} {rows[0].variant}")
    for row in rows:
        outputs = read_outputs(folder, f"{row.toolkit.name} {row.variant}")
        lines = [text.tokenizer.decode(tokens) for tokens in outputs]
        compared.setdefault(row.toolkit.name, {})[row.variant] = {
            "equal": sum(a == b for a, b in zip(outputs, reference, strict=True)) / len(outputs),
            "bleu": bleu_scorer().score(lines, [text.references]).score,
        }
    return compared


def trained_model(folder: Path, name: str, shape: Shape, text: Text) -> Path:
    """Return a model of ``shape`` trained on ``text``; it is kept in ``folder``."""
    run_dir, training = folder / "run", TRAININGS[name]
    recipe = write_recipe(folder / "recipe.yaml", text, f"vocabulary_size: {text.pieces}")
    settings = {
        "model.num_layers": shape.num_layers,
        "model.d_model": shape.d_model,
        "model.d_ff": shape.d_ff,
        "model.num_heads": shape.num_heads,
        "model.norm": training.norm,
        "training.tokens_per_step": training.tokens_per_step,
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
        _nmt_cli("preprocess", *common, prepared, "--force")
        resume = ["--resume"] if (run_dir / CHECKPOINTS).exists() else []
        _nmt_cli("train", *common, prepared, f"--run-dir={run_dir}", *resume)
        shutil.copytree(find_model(run_dir).path, folder / "model")
    return folder / "model"


def _nmt_cli(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "nmt_cli", *arguments], check=True)


class TestText(NamedTuple):
    """Lines to translate, their references, and what cuts both into pieces."""

    sample: Sample
    references: tuple[str, ...]
    tokenizer: Tokenizer


def sample_of(text: Text, tokenizer: Tokenizer, num_captions: int, *, as_news: bool) -> TestText:
    """Return lines that are not trained on; ``as_news`` joins them to lines as long as news'."""
    sides = []
    for language in ("en", "de"):
        path = text.folder / f"{text.validation}.{language}"
        with path.open(encoding="utf-8", newline="\n") as lines:
            sides.append([line.rstrip("\n") for line in lines])
    pairs = list(zip(*sides, strict=True))[:num_captions]
    if as_news:
        rng, left = np.random.default_rng(SEED), iter(pairs)
        groups = iter(lambda: list(islice(left, int(rng.choice(CAPTIONS_OF_NEWS)))), [])
        pairs = [(" ".join(p[0] for p in group), " ".join(p[1] for p in group)) for group in groups]
    source, references = zip(*pairs, strict=True)
    return TestText(Sample(source, tokenizer.encode_batch(source)), references, tokenizer)


def write_test_text(folder: Path, model: Path, text: Text, name: str, *, as_news: bool) -> TestText:
    """Write the sample of shape ``name`` beside a link to the model; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = load_model(model).tokenizer
    test_text = sample_of(text, tokenizer, LINES[name], as_news=as_news)
    write_sample(folder, test_text.sample, tokenizer.pieces(range(tokenizer.size)))
    if not (folder / "model").exists():
        (folder / "model").symlink_to(model.resolve())
    # Written here, so that the memory of CTranslate2's process is only what translating needs. The
    # type of computation is chosen when it is loaded.
    (folder / EXPORTED).mkdir(exist_ok=True)
    write_ctranslate2(read_exported(folder), folder / EXPORTED, "float32")
    return test_text
