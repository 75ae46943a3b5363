"""How many tokens a search holds at a time, unless the user says."""

from typing import NamedTuple

import torch

from nmt_cli.costs.memory import BYTES_OF_FP32
from nmt_cli.recipe.model_config import ModelConfig

# Tokens of all hypotheses: 512 rows of 32 pieces keep two CPU cores busy, 2,048 rows a GPU.
MOST_TOKENS = {"cpu": 1 << 14, "cuda": 1 << 16}
# Bytes of fp32 keys and values. With a wide model fewer rows keep a CPU as busy, and more of them
# only take memory: base needs this for 10,922 tokens.
CACHED_ON_CPU = 1 << 28
# Sentences, however long: every step reads all weights, whether for few hypotheses or for many.
LEAST_SENTENCES = 8


class SearchSize(NamedTuple):
    """How much is searched at a time."""

    max_tokens: int  # of hypotheses
    least: int  # sentences, also where they have more than ``max_tokens``


def default_size(config: ModelConfig, device: torch.device) -> SearchSize:
    """Return the size of a search by a model of ``config``."""
    return SearchSize(_default_max_tokens(config, device), LEAST_SENTENCES)


def _default_max_tokens(config: ModelConfig, device: torch.device) -> int:
    most = MOST_TOKENS[device.type]
    if device.type != "cpu":
        return most
    shape = config.decoder
    width = shape.num_heads * (shape.key_width + shape.value_width)
    return max(1, min(most, CACHED_ON_CPU // (shape.num_layers * width * BYTES_OF_FP32)))
