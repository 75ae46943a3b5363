"""A small treebank of our own: every sentence of a tiny grammar, with traces and functions."""

from itertools import product

NOUNS = ("dog", "cat", "child", "boat")
VERBS = ("sees", "finds", "likes")
RECIPE = """\
description: A tiny parser.
data:
  source_language: en
  target_language: trees
  treebank: {}
  train: [{source: train.mrg, target: train.mrg}]
  validation: {source: dev.mrg, target: dev.mrg}
  test: {source: dev.mrg, target: dev.mrg}
  max_length: 60
tokenizer: {vocabulary_size: 300}
model: {num_layers: 1, d_model: 16, d_ff: 32, num_heads: 2, dropout: 0.0}
training: {tokens_per_step: 1100, max_steps: 6, warmup_steps: 4, peak_learning_rate: 1e-2}
validation: {every_steps: 3, bleu: off, parseval: greedy, best_by: parseval}
checkpoints: {every_steps: 3, keep_for_average: 2}
decoding: {beam_size: 2, length_penalty: 0.3, max_extra_length: 30}
"""


def raw_trees():
    """Yield each tree over several lines, as the Penn Treebank has them."""
    for number, (subject, verb, noun) in enumerate(product(NOUNS, VERBS, NOUNS)):
        determiner = "the" if number % 2 else "a"
        yield (
            f"( (S (NP-SBJ-1 (DT the) (NN {subject}))\n"
            f"     (VP (VBZ {verb}) (NP (DT {determiner}) (NN {noun})) (S (-NONE- *-1)))\n"
            "     (. .)) )\n"
        )


def write_treebank(folder):
    """Write train.mrg, dev.mrg and tiny.yaml; return the recipe."""
    trees = list(raw_trees())
    (folder / "train.mrg").write_text("".join(t for n, t in enumerate(trees) if n % 6))
    (folder / "dev.mrg").write_text("".join(trees[::6]))
    (folder / "tiny.yaml").write_text(RECIPE)
    return folder / "tiny.yaml"
