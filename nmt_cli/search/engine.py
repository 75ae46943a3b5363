"""Searches sentences with models, in the way that suits the rules, the models and the device.

Legend: R rows of hypotheses, V vocabulary, B new sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from nmt_cli.hardware.machine_options import Computing
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.recipe.model_values import ModelShape
from nmt_cli.search.beams import StepInput
from nmt_cli.search.compiled_model import CompiledTransformer
from nmt_cli.search.driver import Completion, Driver
from nmt_cli.search.logits import Logits
from nmt_cli.search.rules.rule import CandidateChoice, Rule
from nmt_cli.search.search import BeamSearch, Search, StepModel
from nmt_cli.search.search_size import SearchSize
from nmt_cli.search.sentences import SearchSettings, Sentence

if TYPE_CHECKING:
    from nmt_cli.model.transformer import Transformer
    from nmt_cli.search.graphed.model import GraphedTransformer

# Pieces; shorter sentences count as this long, to bound the number of rows of logits.
SHORTEST_COUNTED = 32
SHORTEST_OF_LIBRARY = 16  # a slot has room for its own sentence only
# Tokens of all hypotheses: 2,048 rows of 32 pieces keep a GPU busy. On a CPU each process takes
# memory for its rows, and every step reads all weights: with 300 rows of 16 pieces a sentence takes
# 5 % more time than with 512. In bf16 and int8, whose weights are read sooner, it does with 180.
MOST_TOKENS = {"cpu": 4_800, "cuda": 1 << 16}
MOST_TOKENS_OF_SMALL_WEIGHTS = 2_880  # on a CPU, in bf16 and int8
# Numbers in keys and values, which are in fp32 on a CPU. With a wide model fewer rows keep a CPU as
# busy, and more of them only take memory: base needs this for 4,096 tokens.
CACHED_ON_CPU = 24 << 20
# Sentences, however long: every step reads all weights, whether for few hypotheses or for many.
LEAST_SENTENCES = 8
# Sentences of a text that are encoded ahead, as a share of those inside. The keys and values of
# more of them take memory and save a CPU no time.
PREPARED_SHARE = {"cpu": 1 / 4, "cuda": 1.0}


TicketedSentence = tuple[Any, Sentence]  # with what its line recognizes it by


class SearchOfRules(Search):
    """A search for sentences with rules where CUDA graphs search those without, which is faster.

    Sentences without rules may only join while one with rules is in the search. So a search that
    other sentences join again and again ends, and one with graphs can follow.
    """

    def accepts(self, sentence: Sentence) -> bool:
        """Return whether ``sentence`` may join now."""
        inside = compress(self._sentences, self._beams.is_busy)
        return any(each is not None and each.has_rules for each in (sentence, *inside))


class SearchEngine:
    """All models of a translator, and the driver of its searches.

    The driver is used within ``computing``. Not to be shared between threads.
    """

    def __init__(
        self,
        models: Sequence[Any],
        settings: SearchSettings,
        rules: Sequence[Rule],
        choice: CandidateChoice,
        computing: Computing,
        finish_of: Callable[[Any], Completion],
    ) -> None:
        """Prepare for searches of all ``models`` together: each packed, or a Transformer.

        ``finish_of`` returns, for the first model, what completes the results of the search.
        Raises UserError if ``computing`` asks for what is not possible here.
        """
        self.settings, self._rules, self._choice = settings, rules, choice
        self._graphed: GraphedTransformer | None = None  # for sentences without rules
        self._computing: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._is_computing = False
        if isinstance(models[0], PackedModel):
            self.chosen = {"device": "cpu", "precision": models[0].precision}
        else:
            from nmt_cli.search import torch_models  # it imports torch

            models, self.chosen = torch_models.prepared(models, computing.precision)
            if not isinstance(models[0], PackedModel):
                device = models[0].output_weight.device
                self._computing = partial(torch_models.without_gradients, device)
                if computing.cuda_graphs and len(models) == 1 and device.type == "cuda":
                    from nmt_cli.search.graphed.model import GraphedTransformer

                    self._graphed = GraphedTransformer(models[0], settings)
        self.model, steps = models[0], list(map(step_model, models))
        self._model: StepModel = steps[0] if len(steps) == 1 else Ensemble(steps)
        # Whether a library computes the layers, with copies of the weights.
        self.is_compiled = self._model.c_library is not None
        most, least = computing.max_tokens, 1
        if most is None:
            most, least = default_max_tokens(self.model.config, **self.chosen), LEAST_SENTENCES
        self.driver = Driver[Any](
            self._start,
            SearchSize(most, least, slots_are_alike=not self.is_compiled),
            self._tokens_of,
            give_up=self._end_after_failure,
            finish=finish_of(self.model),
            may_begin_with=lambda one, other: (
                self._graphed is None or one.has_rules == other.has_rules
            ),
            prepared_share=PREPARED_SHARE[self.chosen["device"]],
        )

    @contextmanager
    def computing(self, *, of_single_lines: bool = False) -> Iterator[None]:
        """Compute as the options ask for in this block; after it only CUDA graphs keep memory.

        After ``of_single_lines`` compiled layers keep their caches, so that the next line need
        not wait for new ones. Within such a block, another one changes nothing.
        """
        if self._is_computing:
            yield
            return
        self._is_computing = True
        try:
            with self._computing():
                yield
        except BaseException:
            self._end_after_failure()
            raise
        finally:
            self._is_computing = False
        if self._graphed is not None:
            self._graphed.wait()
        if not (of_single_lines and self.is_compiled):
            self.free_caches()

    def release_graphs(self) -> None:
        """Free the memory of CUDA graphs; they are recorded again when they are needed."""
        if self._graphed is not None:
            self._graphed.release()

    def free_caches(self) -> None:
        """Free the memory of caches; no search may continue."""
        self._model.reset(0, 1)

    def in_order(self, sentences: list[TicketedSentence]) -> list[TicketedSentence]:
        """Return the sentences of a text in the order in which they are searched: longest first.

        If there are CUDA graphs for sentences without rules, these come before the others.
        """
        are_split = self._graphed is not None
        return sorted(
            sentences, key=lambda each: (are_split and each[1].has_rules, -len(each[1].tokens))
        )

    def _start(self, sentences: Sequence[Sentence], most: int) -> BeamSearch[Any]:
        """Return a search for ``sentences`` which may get ``most`` slots.

        It repeats CUDA graphs, except with rules, which need the CPU, and except for a
        single slot: then the graphs free their memory, which a long sentence may need. All searches
        share the caches of the model, so the previous search cannot continue.
        """
        have_rules = any(each.has_rules for each in sentences)
        if self._graphed is not None and not have_rules and most > 1:
            from nmt_cli.search.graphed import model, search  # they import torch

            number = min(model.size_for(len(sentences)), most)
            return search.GraphedSearch(self._graphed, number, self.settings)
        if most == 1:
            self.release_graphs()
        kind = Search if self._graphed is None or not have_rules else SearchOfRules
        return kind(self._model, len(sentences), self.settings, self._rules, self._choice)

    def _tokens_of(self, sentence: Sentence) -> int:
        shortest = SHORTEST_OF_LIBRARY if self.is_compiled else SHORTEST_COUNTED
        return max(len(sentence.tokens), shortest) * self.settings.beam_size

    def _end_after_failure(self) -> None:
        """Free all caches and graphs; errors of a GPU that has failed are ignored."""
        if self._graphed is not None:
            with suppress(Exception):
                self._graphed.release()
        with suppress(Exception):
            self.free_caches()


class Ensemble:
    """A ``StepModel`` of several: a token's probability is the mean of theirs.

    Not to be shared between threads.
    """

    def __init__(self, models: Sequence[StepModel]) -> None:
        self._models = models
        self.c_library = models[0].c_library

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches of all models."""
        for model in self._models:
            model.reset(num_slots, beam_size)

    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[tuple[Any, ...]], Logits]:
        """Return what each model makes of each sentence, and the means [B, V] for first tokens."""
        each = (model.encode(sentences, start_mark) for model in self._models)
        encoded, (first, *others) = zip(*each, strict=True)
        return list(zip(*encoded, strict=True)), first.mean_with(others)

    def start(self, slots: Sequence[int], encoded: Sequence[tuple[Any, ...]]) -> None:
        """Put a new sentence into each of ``slots`` of all models."""
        for model, own in zip(self._models, zip(*encoded, strict=True), strict=True):
            model.start(slots, own)

    def step(self, state: StepInput) -> Logits:
        """Return the logarithms [R, V] of the mean probabilities of the next tokens."""
        first, *others = self._models
        return first.step(state).mean_with(model.step(state) for model in others)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, in all models."""
        for model in self._models:
            model.keep_slots(slots)

    def forget(self, slots: Sequence[int]) -> None:
        """Empty the caches of ``slots`` in all models."""
        for model in self._models:
            model.forget(slots)


def step_model(model: PackedModel | Transformer) -> StepModel:
    """Return a model, packed or a Transformer, as a search takes it."""
    if isinstance(model, PackedModel):
        return CompiledTransformer(model)
    from nmt_cli.search.incremental import CachedTransformer  # it imports torch

    return CachedTransformer(model)


def default_max_tokens(config: ModelShape, device: str, precision: str) -> int:
    """Return how many tokens of hypotheses a model of ``config`` searches at a time."""
    most = MOST_TOKENS[device]
    if device != "cpu" or config.is_recurrent:  # whose states do not grow
        return most
    if precision != "fp32":
        most = MOST_TOKENS_OF_SMALL_WEIGHTS
    shape = config.decoder_shape
    width = shape.num_heads * (shape.key_width + shape.value_width)
    return max(1, min(most, CACHED_ON_CPU // (shape.num_layers * width)))
