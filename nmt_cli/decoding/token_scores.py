"""The log-probability of each token of given translations, in one pass of the decoder.

Legend: T target tokens and </s> of all pairs, V vocabulary.
"""

import math
from collections.abc import Sequence
from itertools import chain

import torch

from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.decoding.teacher_forcing import SentencePair, teacher_forced
from nmt_cli.decoding.top_k import log_normalizers
from nmt_cli.model.transformer import Transformer

# Enough to keep the product busy; the logits of so many rows are V times as many numbers.
ROWS_AT_ONCE = {"cpu": 512, "cuda": 4096}


@torch.no_grad()
def token_scores(
    model: Transformer, pairs: Sequence[SentencePair], tokenizer: Tokenizer
) -> list[list[float]]:
    """Return the log-probability of each token of each target, and at last of its ``</s>``.

    It is normalized over the whole vocabulary, as in the search. ``model`` is in evaluation mode.
    """
    forced = teacher_forced(model, pairs, tokenizer)
    device = forced.rows.device
    targets = torch.tensor(
        list(chain.from_iterable([*pair.target, tokenizer.eos_id] for pair in pairs)),
        device=device,
    )
    at_once = ROWS_AT_ONCE.get(device.type, ROWS_AT_ONCE["cpu"])
    scores = []
    for rows, tokens in zip(forced.rows.split(at_once), targets.split(at_once), strict=True):
        logits = model.project(rows)
        chosen = logits.gather(1, tokens[:, None]).squeeze(1).float()
        scores.append(chosen - log_normalizers(logits))
    return [of_pair.tolist() for of_pair in torch.cat(scores).split(forced.lengths)]


def mean_of_models(scores: Sequence[list[list[float]]]) -> list[list[float]]:
    """Return the logarithm of each token's mean probability; ``scores`` are those of each model."""
    if len(scores) == 1:
        return scores[0]
    of_pairs = (torch.tensor(each, dtype=torch.float64) for each in zip(*scores, strict=True))
    return [(each.logsumexp(0) - math.log(len(scores))).tolist() for each in of_pairs]
