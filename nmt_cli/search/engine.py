"""Searches sentences with models, in the way that suits the rules, the models and the device."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import compress
from typing import Any

import torch

from nmt_cli.hardware.choices import Computing
from nmt_cli.hardware.device import (
    DecodingPrecision,
    choose_decoding_precision,
    prefer_flash_attention,
)
from nmt_cli.hardware.fp32_products import choose_fp32_products, use_fp32_products
from nmt_cli.messages import logs
from nmt_cli.model.compiled.kernels import (
    Kernels,
    NoKernelsError,
    load_kernels,
    use_kernels,
)
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.model.precision import at_precision
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_config import ModelConfig
from nmt_cli.search.beams import SearchSettings
from nmt_cli.search.choice import Choice
from nmt_cli.search.compiled_model import CompiledTransformer
from nmt_cli.search.driver import Driver, Finish, SearchSize
from nmt_cli.search.ensemble import Ensemble
from nmt_cli.search.graphed.model import GraphedTransformer, size_for, size_within
from nmt_cli.search.graphed.search import SearchAhead
from nmt_cli.search.incremental import CachedTransformer
from nmt_cli.search.rules.logits_rule import LogitsRule
from nmt_cli.search.search import BeamSearch, Search, StepModel
from nmt_cli.search.sentences import Sentence

# Pieces; shorter sentences count as this long, to bound the number of rows of logits.
SHORTEST_COUNTED = 32
# Tokens of all hypotheses: 512 rows of 32 pieces keep two CPU cores busy, 2,048 rows a GPU.
MOST_TOKENS = {"cpu": 1 << 14, "cuda": 1 << 16}
# Bytes of keys and values. With a wide model fewer rows keep a CPU as busy, and more of them only
# take memory: base needs this for 8,192 tokens in fp32, and 16,384 in bf16, each its fastest.
CACHED_ON_CPU = 192 << 20
# Sentences, however long: every step reads all weights, whether for few hypotheses or for many.
LEAST_SENTENCES = 8


Entry = tuple[Any, Sentence]  # a sentence, and what its line recognizes it by


class SearchOfRules(Search):
    """A search for sentences with rules where CUDA graphs search those without, which is faster.

    Sentences without rules may only join while one with rules is in the search. So a search that
    other sentences join again and again ends, and one with graphs can follow.
    """

    def accepts(self, sentence: Sentence) -> bool:
        """Return whether ``sentence`` may join now."""
        inside = compress(self._sentences, self._beams.is_busy)
        of_rules = any(each is not None and each.has_rules for each in (sentence, *inside))
        return of_rules and super().accepts(sentence)


class SearchEngine:
    """All models of a translator, and the driver of its searches.

    The driver is used within ``computing``. Not to be shared between threads.
    """

    def __init__(
        self,
        models: Sequence[Any],
        settings: SearchSettings,
        rules: Callable[[], Sequence[LogitsRule]],
        choice: Callable[[], Choice | None],
        computing: Computing,
        finish_of: Callable[[Any], Finish[Sentence]],
    ) -> None:
        """Prepare for searches of all ``models`` together: each a Transformer, or packed.

        ``rules`` and ``choice`` return those of the next search; a choice of None is the usual one.
        ``finish_of`` returns, for the first model, what completes the results of the search.
        Raises UserError if ``computing`` asks for what is not possible here.
        """
        self.settings, self._rules, self._choice = settings, rules, choice
        is_packed = isinstance(models[0], PackedModel)
        self._device = torch.device("cpu") if is_packed else models[0].output_weight.device
        prefer_flash_attention(self._device)
        precision = choose_decoding_precision(computing.precision, self._device)
        if is_packed:
            precision = models[0].precision
        self._fp32_products = choose_fp32_products(computing.fp32_products, self._device, precision)
        self._kernels = kernels_for(self._device)
        if precision == "bf16" and self._kernels and not self._kernels.functions.has_bf16():
            logs.warning("bf16 is computed in fp32: this CPU has no instructions for it.")
            precision = "fp32"
        # What "auto" became.
        self.chosen = {
            "device": self._device.type,
            "precision": precision,
            "fp32_products": self._fp32_products,
        }
        cached = [_cached(each, precision, self._kernels) for each in models]
        self.models = [
            each if is_packed else at_precision(each.eval(), precision) for each in models
        ]
        first = self.models[0]
        self._model: StepModel = cached[0] if len(cached) == 1 else Ensemble(cached)
        self._graphed: GraphedTransformer | None = None  # for sentences without rules
        if computing.cuda_graphs and len(models) == 1 and self._device.type == "cuda":
            self._graphed = GraphedTransformer(first, settings)
        # Whether a library computes the layers, with copies of the weights.
        self.is_compiled = isinstance(cached[0], CompiledTransformer)
        size = _search_size(first, computing.max_tokens, is_compiled=self.is_compiled)
        self.driver = Driver[Any, Sentence](
            self._start,
            size,
            self._tokens_of,
            give_up=self._end_after_failure,
            finish=finish_of(first),
        )

    @contextmanager
    def computing(self, *, of_single_lines: bool = False) -> Iterator[None]:
        """Compute as the options ask for in this block; after it only CUDA graphs keep memory.

        After ``of_single_lines`` compiled layers keep their caches, so that the next line need
        not wait for new ones.

        A search of single lines holds few of them. Its attention is then computed by MKL: oneDNN
        takes 15 to 20 µs more for each product, compiles it for each size, and is faster only with
        many long sentences. Layers that have products of their own keep them.
        """
        no_autocast = torch.autocast(self._device.type, enabled=False)
        have_own = all(model.output_projection is not None for model in self.models)
        is_mkl = of_single_lines and have_own
        products = use_fp32_products("mkl" if is_mkl else self._fp32_products)
        kernels = use_kernels(self._kernels)
        try:
            # Caches of one call may serve the next, so they must not be inference tensors.
            with torch.inference_mode(False), torch.no_grad(), no_autocast, products, kernels:
                yield
        except BaseException:
            self._end_after_failure()
            raise
        if self._graphed is not None:
            self._graphed.wait()
        if not (of_single_lines and self.is_compiled):
            self.free_caches()

    def free_caches(self) -> None:
        """Free the memory of caches; no search may continue."""
        self._model.reset(0, 1)

    def groups(self, entries: list[Entry]) -> list[list[Entry]]:
        """Return ``entries`` in groups to be searched one after another.

        Sentences without rules are one group if there are CUDA graphs for them.
        """
        if self._graphed is None:
            return [entries]
        groups = [
            [entry for entry in entries if entry[1].has_rules == has_rules]
            for has_rules in (False, True)
        ]
        return [group for group in groups if group]

    def _start(self, sentences: Sequence[Sentence], most: int) -> BeamSearch[Any]:
        """Return a search for ``sentences`` which may get ``most`` slots.

        It repeats CUDA graphs, except with rules or a choice, which need the CPU, and except for a
        single slot: then the graphs free their memory, which a long sentence may need. All searches
        share the caches of the model, so the previous search cannot continue.
        """
        have_rules = any(each.has_rules for each in sentences)
        if self._graphed is not None and not have_rules and most > 1:
            num_slots = min(size_for(len(sentences)), size_within(most))
            return SearchAhead(self._graphed, num_slots, self.settings)
        if self._graphed is not None and most == 1:
            self._graphed.release()
        rules, choice = self._rules(), self._choice()
        search = Search if self._graphed is None or not have_rules else SearchOfRules
        return search(self._model, len(sentences), self.settings, rules, choice)

    def _tokens_of(self, sentence: Sentence) -> int:
        return max(len(sentence.tokens), SHORTEST_COUNTED) * self.settings.beam_size

    def _end_after_failure(self) -> None:
        """Free all caches and graphs; errors of a GPU that has failed are ignored."""
        if self._graphed is not None:
            with suppress(Exception):
                self._graphed.release()
        with suppress(Exception):
            self.free_caches()


_warned_of = set[str]()  # why there is no library


def kernels_for(device: torch.device) -> Kernels | None:
    """Return the library for CPUs; None on a GPU, and where there is none, with one warning.

    Raises UserError if it was built from other sources.
    """
    if device.type != "cpu":
        return None
    try:
        return load_kernels()
    except NoKernelsError as error:
        if str(error) not in _warned_of:
            _warned_of.add(str(error))
            logs.warning(f"torch translates, several times as slowly, because {error}")
        return None


def _cached(
    model: Transformer | PackedModel, precision: DecodingPrecision, kernels: Kernels | None
) -> StepModel:
    """Return ``model`` for searches, with its layers computed by ``kernels`` if there are any."""
    if isinstance(model, PackedModel):
        return CompiledTransformer(model)
    if kernels is None:
        return CachedTransformer(at_precision(model.eval(), precision))
    weights = {
        name: weight.detach().float().cpu().numpy() for name, weight in model.named_parameters()
    }
    return CompiledTransformer(PackedModel(model.config, weights, precision, kernels))


def default_max_tokens(config: ModelConfig, device: torch.device, bytes_of_number: int) -> int:
    """Return how many tokens of hypotheses a model of ``config`` searches at a time.

    ``bytes_of_number`` is the size of a number in its caches.
    """
    most = MOST_TOKENS[device.type]
    if device.type != "cpu":
        return most
    shape = config.decoder
    width = shape.num_heads * (shape.key_width + shape.value_width)
    return max(1, min(most, CACHED_ON_CPU // (shape.num_layers * width * bytes_of_number)))


def _search_size(model: Any, max_tokens: int | None, *, is_compiled: bool) -> SearchSize:
    """Return the size of searches with ``max_tokens``, or with the default of the model."""
    if max_tokens is not None:
        return SearchSize(max_tokens)
    if is_compiled:
        size, device = torch.float32.itemsize, torch.device("cpu")
    else:  # caches have the type of the weights
        size, device = model.output_weight.element_size(), model.output_weight.device
    return SearchSize(default_max_tokens(model.config, device, size), LEAST_SENTENCES)
