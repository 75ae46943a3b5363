"""Copies of a validation set whose text is changed, for validation.robustness."""

import random
from collections.abc import Sequence
from itertools import chain

import numpy as np

from nmt_cli.corpus.batching import derived_bits
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.prepared import PreparedCorpus, ValidationSet
from nmt_cli.corpus.text.augmentation import Augmenting, TextPair
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.corpora import Augmentation


def changed_sets(recipe: Recipe, corpus: PreparedCorpus) -> list[ValidationSet]:
    """Return the copies of the set that decides, as ``validation.robustness`` asks for them.

    The changes depend only on the kind and the line, so they are the same in all trainings.
    """
    decides = recipe.validation.deciding(corpus.validation)
    return [_changed(decides, kind, recipe, corpus) for kind in recipe.validation.robustness]


def _changed(
    measured: ValidationSet, kind: str, recipe: Recipe, corpus: PreparedCorpus
) -> ValidationSet:
    config = Augmentation.model_validate({kind: 1.0})
    symbols = recipe.tokenizer.user_defined_symbols
    files = next(each for each in recipe.data.validation_sets if each.name == measured.name)
    augmenting = Augmenting(config, symbols, None, files.tag)
    pairs = []
    for number, lines in enumerate(zip(*map(measured.lines, SIDES), strict=True)):
        pair = TextPair(*(line.split() for line in lines))
        draw = random.Random(derived_bits("validation.robustness", kind, number))
        pairs.append(augmenting.changed(pair, [kind], (), draw))
    texts = {side: [" ".join(getattr(pair, side)) for pair in pairs] for side in SIDES}
    encoded = [corpus.tokenizer.encode_batch(texts[side], side) for side in SIDES]
    longest = min(recipe.data.max_length, corpus.longest - 1)
    with_loss = [
        pair for pair in zip(*encoded, strict=True) if all(0 < len(ids) <= longest for ids in pair)
    ]
    source, target = (
        _binarized([pair[place] for pair in with_loss], corpus.tokenizer) for place in (0, 1)
    )
    return ValidationSet(kind, source, target, texts.__getitem__)


def _binarized(sentences: Sequence[list[int]], tokenizer: Tokenizer) -> BinarizedText:
    with_ends = [[*ids, tokenizer.eos_id] for ids in sentences]
    lengths = np.array([len(ids) for ids in with_ends], dtype=np.uint32)
    return BinarizedText(np.array([*chain.from_iterable(with_ends)], dtype=np.uint32), lengths)
