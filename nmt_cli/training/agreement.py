"""Checks that text, recipe, precision and weights are the same on every rank."""

import hashlib

from nmt_cli.corpus.binarized import PreparedCorpus
from nmt_cli.errors import UserError
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.ranks import Ranks
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


def require_same_weights(model: Transformer, ranks: Ranks, step: int) -> None:
    """Raise UserError if the ranks' weights differ in a single bit."""
    if ranks.size == 1:
        return
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    _require_same(ranks, digest.hexdigest(), f"weights at step {step:,}")


def _require_same(ranks: Ranks, value: object, what: str) -> None:
    for rank, other in enumerate(ranks.gather(value)):
        if other != value:
            raise UserError(
                f"the {what} of rank {ranks.rank} and of rank {rank} differ; "
                "make them the same on all nodes, and start again with --resume."
            )
