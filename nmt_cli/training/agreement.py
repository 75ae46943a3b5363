"""Checks that text, recipe, precision and weights are the same on every rank."""

import hashlib
from collections import Counter
from pathlib import Path

from nmt_cli.corpus.binarized import PreparedCorpus
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.ranks import Ranks
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.reader import section_hash
from nmt_cli.recipe.schema import Recipe


def require_same_training(recipe: Recipe, corpus: PreparedCorpus, machine: Machine) -> None:
    """Raise UserError if the ranks' text, recipe or precision differ."""
    files = {n: f["sha256"] for n, f in corpus.manifest["files"].items()}
    _require_same(machine.ranks, files, f"prepared text in {corpus.directory}")
    sections = set(type(recipe).model_fields) - {"data"}  # the text was compared above
    _require_same(machine.ranks, section_hash(recipe, *sorted(sections)), "recipe")
    _require_same(machine.ranks, machine.precision, "--precision")


def require_same_weights(
    model: Transformer, ranks: Ranks, step: int, saved_step: int, run_dir: Path
) -> None:
    """Raise UserError if the ranks' weights differ in a single bit.

    The message names the checkpoint of ``saved_step``, the newest one in ``run_dir``.
    """
    if ranks.size == 1:
        return
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    digests = ranks.gather(digest.hexdigest())
    (common, _), *others = Counter(digests).most_common()
    if not others:
        return
    groups = " and of ".join(
        f"{counted(len(group), 'rank')} ({', '.join(map(str, group))})"
        for group in (
            [rank for rank, found in enumerate(digests) if (found == common) == is_common]
            for is_common in (True, False)
        )
    )
    continued = (
        f"Step {saved_step:,} in {run_dir} was the same on all ranks: run the same command with "
        "--resume to continue from it."
        if saved_step
        else "Nothing is saved yet: run the same command again."
    )
    raise UserError(
        f"the weights of {groups} differ at step {step:,}, though all added the same gradients: a "
        "device, its memory or a library computed wrong numbers. Find and repair it, or leave its "
        f"machine out. {continued}"
    )


def _require_same(ranks: Ranks, value: object, what: str) -> None:
    for rank, other in enumerate(ranks.gather(value)):
        if other != value:
            raise UserError(
                f"the {what} of rank {ranks.rank} and of rank {rank} differ; "
                "make them the same on all nodes, and start again with --resume."
            )
