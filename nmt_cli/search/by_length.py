"""Searches sentences of similar length together: the shorter they are, the more at a time."""

from collections.abc import Callable, Sequence

import torch

from nmt_cli.costs.parameters import BYTES_OF_FP32
from nmt_cli.recipe.model_config import ModelConfig
from nmt_cli.search.isolation import Isolation, Item, Outcome, SearchFunction, naming_lines

# Tokens of all hypotheses: 512 rows of 32 pieces keep two CPU cores busy, 2,048 rows a GPU.
MOST_TOKENS = {"cpu": 1 << 14, "cuda": 1 << 16}
# Bytes of fp32 keys and values. With a wide model fewer rows keep a CPU as busy, and more of them
# only take memory: base needs this for 10,922 tokens.
CACHED_ON_CPU = 1 << 28
# Sentences, however long: every step reads all weights, whether for few hypotheses or for many.
LEAST_SENTENCES = 8


class SearchByLength:
    """Runs searches over sentences; those that fail do not affect the others.

    At most ``max_tokens`` are searched at a time, but ``least`` sentences however long they are. If
    memory is full, ``max_tokens`` is lowered for good and ``least`` no longer holds.
    """

    def __init__(self, max_tokens: int, least: int = 1) -> None:
        self.max_tokens, self._least = max_tokens, least

    def num_slots(self, tokens: int) -> int:
        """Return how many sentences of so many tokens are searched at a time."""
        return max(self._least, self.max_tokens // tokens)

    def lower_to(self, max_tokens: int) -> None:
        """Search at most ``max_tokens`` at a time from now on."""
        self.max_tokens, self._least = max(1, min(self.max_tokens, max_tokens)), 1

    def run(
        self,
        search: SearchFunction[Item],
        sentences: Sequence[Item],
        tokens_of: Callable[[Item], int],
        lines: Sequence[int],
    ) -> list[Outcome]:
        """Return the outcomes of ``sentences``, which come longest first.

        ``tokens_of`` returns how many tokens a sentence takes of the limit. ``lines`` are the line
        numbers of the sentences. Raises LinesFailedError for a bug.
        """

        outcomes: list[Outcome] = []
        while len(outcomes) < len(sentences):
            num_slots = self.num_slots(tokens_of(sentences[len(outcomes)]))
            group = []
            for sentence in sentences[len(outcomes) :]:
                if self.num_slots(tokens_of(sentence)) >= 2 * num_slots:
                    break
                group.append(sentence)
            isolation = Isolation(search, group, num_slots)
            with naming_lines(lines[len(outcomes) :]):
                outcomes += isolation.run()
            if isolation.num_slots < num_slots:  # that many did not fit into memory
                self.lower_to(isolation.num_slots * tokens_of(group[0]))
        return outcomes


def default_max_tokens(config: ModelConfig, device: torch.device) -> int:
    """Return how many tokens of hypotheses a model of ``config`` searches at a time."""
    most = MOST_TOKENS[device.type]
    if device.type != "cpu":
        return most
    shape = config.decoder
    width = shape.num_heads * (shape.key_width + shape.value_width)
    return max(1, min(most, CACHED_ON_CPU // (shape.num_layers * width * BYTES_OF_FP32)))
