"""Attention weights without a model, for tests of the pictures."""

import numpy as np

from nmt_cli.pictures.attention import KINDS, Attention

VOWELS, CONSONANTS = "aeiou", "bdfgklmnprst"


def words(count, seed):
    """Return ``count`` words of two to twelve letters."""
    rng = np.random.default_rng(seed)
    return tuple(
        "".join(
            rng.choice(list(CONSONANTS)) + rng.choice(list(VOWELS))
            for _ in range(rng.integers(1, 7))
        )
        for _ in range(count)
    )


def attention_of(source, target, *, layers=(1, 2), heads=(1, 2, 3), kinds=tuple(KINDS), seed=1):
    """Return random weights between these pieces, most of them small as in a trained model."""
    rng = np.random.default_rng(seed)
    pieces = {
        "source": (*source, "</s>"),
        "target_input": ("<s>", *target),
        "target_output": (*target, "</s>"),
    }
    weights = {}
    for name in kinds:
        queries, keys = (len(pieces[side]) for side in (KINDS[name].queries, KINDS[name].keys))
        scores = rng.normal(size=(len(layers), len(heads), queries, keys), scale=3.0)
        if name == "decoder":
            rows, columns = np.triu_indices(queries, 1)
            scores[:, :, rows, columns] = -np.inf
        powers = np.exp(scores - scores.max(3, keepdims=True))
        weights[name] = (powers / powers.sum(3, keepdims=True)).astype(np.float32)
    languages = {"source": "en", "target_input": "de", "target_output": "de"}
    texts = (" ".join(source), " ".join(target))
    return Attention("runs/toy", *texts, False, pieces, languages, layers, 0, heads, weights)
