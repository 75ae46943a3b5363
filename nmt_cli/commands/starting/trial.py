"""A trial of a recipe on a sample of its text: how fast this machine trains it."""

import json
import math
import subprocess
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from nmt_cli.commands.starting.plan import Measured
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.files.file_names import METRICS
from nmt_cli.files.lines import one_line
from nmt_cli.launch.python_process import NMT_CLI, python_command
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.reading.yaml_tree import write_yaml
from nmt_cli.recipe.sections.corpora import ParallelFiles

NUM_STEPS, NUM_COUNTED = 20, 10  # the first ones are slower
MOST_PAIRS = 50_000
VALIDATION_PAIRS = 50
FEWEST_PIECES = 500


class Trial(NamedTuple):
    """What was measured, and how many pieces the vocabulary may have at most."""

    measured: Measured
    vocabulary_size: int


def try_out(
    parent: str, files: ParallelFiles, num_pairs: int, vocabulary_size: int, *, is_shared: bool
) -> Trial:
    """Prepare a sample of the ``num_pairs`` of a text and train ``parent`` on it for some steps.

    The sample is from all of the text, which may be sorted by length.
    A vocabulary that the text cannot fill is halved until it can. Raises UserError with the message
    of the command that fails.
    """
    with TemporaryDirectory(prefix="nmt-cli-init-") as name:
        folder = Path(name)
        every = max(1, math.ceil(num_pairs / MOST_PAIRS))
        pairs = list(islice(ParallelText(files), 0, None, every))
        for part, chosen in (("train", pairs), ("validation", pairs[:VALIDATION_PAIRS])):
            for side, ending in enumerate(SIDES):
                lines = (f"{one_line(pair[side])}\n" for pair in chosen)
                (folder / f"{part}.{ending}").write_bytes("".join(lines).encode(errors="replace"))
        while True:
            recipe = _write_recipe(folder, parent, vocabulary_size, is_shared=is_shared)
            try:
                _call("preprocess", recipe, "--prepared", folder / "prepared", "--force")
                break
            except UserError as error:
                if "vocabulary_size" not in str(error) or vocabulary_size // 2 < FEWEST_PIECES:
                    raise
                vocabulary_size //= 2
        _call("train", recipe, "--prepared", folder / "prepared", "--run-dir", folder / "run")
        return Trial(_measured(folder), vocabulary_size)


def _write_recipe(folder: Path, parent: str, vocabulary_size: int, *, is_shared: bool) -> Path:
    train, validation = (
        {side: str(folder / f"{part}.{side}") for side in SIDES} for part in ("train", "validation")
    )
    recipe = {
        "extends": parent,
        "data": {"train": [train], "validation": validation, "test": None},
        "tokenizer": {"vocabulary_size": vocabulary_size, "shared": is_shared},
        "training": {"max_steps": NUM_STEPS},
        "validation": {"bleu": "off", "best_by": "loss"},
        "checkpoints": {"every_steps": NUM_STEPS},
    }
    path = folder / "trial.yaml"
    path.write_text(write_yaml(recipe), encoding="utf-8")
    return path


def _call(command: str, *arguments: str | Path) -> None:
    """Run a command of nmt-cli. Raises UserError with its message if it fails."""
    words = python_command(NMT_CLI, command, *map(str, arguments), "--quiet")
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    if done.returncode:
        message = done.stderr.strip().rpartition("\n")[2].removeprefix("Error: ")
        raise UserError(f"the trial of {command} failed: {message}")


def _measured(folder: Path) -> Measured:
    manifest = read_manifest(folder / "prepared")
    num_pairs = sum(manifest["corpus_sizes"])
    with (folder / "run" / METRICS).open(encoding="utf-8") as stream:
        steps = [step for step in map(json.loads, stream) if "seconds" in step]
    rates = [step["target_tokens"] / step["seconds"] for step in steps[-NUM_COUNTED:]]
    tokens = manifest["tokens"]["train"]
    return Measured(median(rates), tokens["source"] / num_pairs, tokens["target"] / num_pairs)
