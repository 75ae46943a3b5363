"""How many sentences are searched at a time: the shorter they are, the more."""

import torch

from nmt_cli.costs.parameters import BYTES_OF_FP32
from nmt_cli.recipe.model_config import ModelConfig

# Tokens of all hypotheses: 512 rows of 32 pieces keep two CPU cores busy, 2,048 rows a GPU.
MOST_TOKENS = {"cpu": 1 << 14, "cuda": 1 << 16}
# Bytes of fp32 keys and values. With a wide model fewer rows keep a CPU as busy, and more of them
# only take memory: base needs this for 10,922 tokens.
CACHED_ON_CPU = 1 << 28
# Sentences, however long: every step reads all weights, whether for few hypotheses or for many.
LEAST_SENTENCES = 8


class SearchSize:
    """At most ``max_tokens`` are searched at a time, but ``least`` sentences however long they are.

    When memory was full, ``lower_to`` lowers ``max_tokens`` for good.
    """

    def __init__(self, max_tokens: int, least: int = 1) -> None:
        self.max_tokens, self._least = max_tokens, least

    def num_slots(self, tokens: int) -> int:
        """Return how many sentences of so many tokens are searched at a time."""
        return max(self._least, self.max_tokens // tokens)

    def lower_to(self, max_tokens: int) -> None:
        """Search at most ``max_tokens`` at a time from now on; ``least`` no longer holds."""
        self.max_tokens, self._least = max(1, min(self.max_tokens, max_tokens)), 1


def default_max_tokens(config: ModelConfig, device: torch.device) -> int:
    """Return how many tokens of hypotheses a model of ``config`` searches at a time."""
    most = MOST_TOKENS[device.type]
    if device.type != "cpu":
        return most
    shape = config.decoder
    width = shape.num_heads * (shape.key_width + shape.value_width)
    return max(1, min(most, CACHED_ON_CPU // (shape.num_layers * width * BYTES_OF_FP32)))


def search_size(config: ModelConfig, device: torch.device, max_tokens: int | None) -> SearchSize:
    """Return the size of searches with ``max_tokens``, or with the default of the model."""
    if max_tokens is not None:
        return SearchSize(max_tokens)
    return SearchSize(default_max_tokens(config, device), LEAST_SENTENCES)
