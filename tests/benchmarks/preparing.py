"""CPU time in which a rank prepares a batch: RECIPE PREPARED [KEY=VALUE of the recipe]...

A thread of each rank reads, cuts and packs a batch. If the recipe augments or samples, processes of
each rank change it before that (``corpus/change_pool.py``); here the thread does it.
"""

import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import torch

from nmt_cli.corpus.augmenter import changes_of
from nmt_cli.corpus.loader import Batch, SentencePairs, load_batches
from nmt_cli.corpus.prepared import PreparedCorpus, open_prepared
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.ranks import Ranks
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.training.batch_cut import BatchCut, own_pairs
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.graphed_gradient import GraphedGradient
from nmt_cli.training.starting import plan_batches

WARM_UP, COUNTED = 3, 50


def milliseconds(recipe: Recipe, corpus: PreparedCorpus, num_ranks: int) -> float:
    """Return the milliseconds of CPU time of a batch, in padded shapes as for a GPU."""
    model = Transformer(recipe.model, corpus.tokenizer.size)
    machine = Machine(torch.device("cpu"), "bf16", Ranks(0, num_ranks))
    engine = GradientEngine.of(model, 1, 0.1, 1, machine)
    engine = engine._replace(graphed=GraphedGradient(model, engine.total, machine.device))
    cut = BatchCut(2 * recipe.training.tokens_per_step, num_ranks)  # changed batches are larger

    def own(batch: Batch) -> Iterator[SentencePairs]:
        return own_pairs(cut.of(batch), machine.ranks)

    def prepare(batch: Batch) -> Batch:
        for pairs in own(batch):
            engine.on_cpu(pairs)
        return batch

    plan, texts = plan_batches(recipe, corpus), [corpus.source, corpus.target]
    batches = load_batches(plan, texts, count(), changes_of(recipe, corpus, {}), prepare, own)
    list(islice(batches, WARM_UP))
    started = time.process_time()
    list(islice(batches, COUNTED))
    return 1_000 * (time.process_time() - started) / COUNTED


def main(path: str, prepared: str, *overrides: str) -> None:
    """Print a line for one rank and one for eight."""
    recipe = read_recipe(path, overrides).recipe
    corpus = open_prepared(Path(prepared), recipe, "nmt-cli preprocess")
    for num_ranks in (1, 8):
        found = milliseconds(recipe, corpus, num_ranks)
        sys.stdout.write(f"{num_ranks} ranks: {found:.1f} ms of CPU time a batch and rank\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
