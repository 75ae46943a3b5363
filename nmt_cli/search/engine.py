"""Searches sentences with models, in the way that suits the rules, the models and the device."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.hardware.choices import Computing
from nmt_cli.messages import logs
from nmt_cli.model.compiled.kernels import Kernels, NoKernelsError, load_kernels
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.recipe.model_values import ModelShape
from nmt_cli.search.beams import SearchSettings
from nmt_cli.search.choice import Choice
from nmt_cli.search.compiled_model import CompiledTransformer
from nmt_cli.search.driver import Driver, Finish
from nmt_cli.search.ensemble import Ensemble
from nmt_cli.search.rules.rule import Rule
from nmt_cli.search.search import BeamSearch, Search, StepModel
from nmt_cli.search.search_size import SearchSize
from nmt_cli.search.sentences import Sentence

if TYPE_CHECKING:
    from nmt_cli.search.graphed.model import GraphedTransformer

# Pieces; shorter sentences count as this long, to bound the number of rows of logits.
SHORTEST_COUNTED = 32
# Tokens of all hypotheses: 512 rows of 32 pieces keep two CPU cores busy, 2,048 rows a GPU.
MOST_TOKENS = {"cpu": 1 << 14, "cuda": 1 << 16}
# Numbers in keys and values, which are in fp32 on a CPU. With a wide model fewer rows keep a CPU as
# busy, and more of them only take memory: base needs this for 8,192 tokens, its fastest.
CACHED_ON_CPU = 48 << 20
# Sentences, however long: every step reads all weights, whether for few hypotheses or for many.
LEAST_SENTENCES = 8
# Sentences of a text that are encoded ahead, as a share of those inside. The keys and values of
# more of them take memory, 10 MB with captions and width 256, and save a CPU no time.
PREPARED_SHARE = {"cpu": 1 / 4, "cuda": 1.0}


TicketedSentence = tuple[Any, Sentence]  # with what its line recognizes it by


class PreparedModels(NamedTuple):
    """Models that are prepared for searches, by the library for CPUs or by torch."""

    models: Sequence[Any]  # in the precision in which they translate
    chosen: dict[str, str]  # what "auto" became
    graphed: "GraphedTransformer | None" = None  # for sentences without rules
    computing: Callable[[], AbstractContextManager[Any]] = nullcontext


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
        choice: Choice,
        computing: Computing,
        finish_of: Callable[[Any], Finish],
    ) -> None:
        """Prepare for searches of all ``models`` together: each packed, or a Transformer.

        ``finish_of`` returns, for the first model, what completes the results of the search.
        Raises UserError if ``computing`` asks for what is not possible here.
        """
        self.settings, self._rules, self._choice = settings, rules, choice
        prepared = _prepared(models, settings, computing)
        self.model, self.chosen = prepared.models[0], prepared.chosen
        self._graphed = prepared.graphed
        self._computing, steps = prepared.computing, list(map(step_model, prepared.models))
        self._model: StepModel = steps[0] if len(steps) == 1 else Ensemble(steps)
        # Whether a library computes the layers, with copies of the weights.
        self.is_compiled = self._model.kernels is not None
        if computing.max_tokens is not None:
            size = SearchSize(computing.max_tokens)
        else:
            most = default_max_tokens(self.model.config, self.chosen["device"])
            size = SearchSize(most, LEAST_SENTENCES)
        self.driver = Driver[Any](
            self._start,
            size,
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
        not wait for new ones.
        """
        try:
            with self._computing():
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

    def forget_search(self) -> None:
        """Forget a search in progress, whose thread does not exist in this process."""
        self.driver.forget_search()
        self.free_caches()

    def in_order(self, sentences: list[TicketedSentence]) -> list[TicketedSentence]:
        """Return the sentences of a text in the order in which they are searched: longest first.

        If there are CUDA graphs for sentences without rules, these come before the others.
        """
        are_split = self._graphed is not None
        return sorted(
            sentences,
            key=lambda each: (are_split and each[1].has_rules, -len(each[1].tokens)),
        )

    def _start(self, sentences: Sequence[Sentence], most: int) -> BeamSearch[Any]:
        """Return a search for ``sentences`` which may get ``most`` slots.

        It repeats CUDA graphs, except with rules or a choice, which need the CPU, and except for a
        single slot: then the graphs free their memory, which a long sentence may need. All searches
        share the caches of the model, so the previous search cannot continue.
        """
        have_rules = any(each.has_rules for each in sentences)
        if self._graphed is not None and not have_rules and most > 1:
            from nmt_cli.search.graphed.search import ahead  # it imports torch

            return ahead(self._graphed, len(sentences), most, self.settings)
        if self._graphed is not None and most == 1:
            self._graphed.release()
        search = Search if self._graphed is None or not have_rules else SearchOfRules
        number = len(sentences)
        return search(self._model, number, self.settings, self._rules, self._choice)

    def _tokens_of(self, sentence: Sentence) -> int:
        return max(len(sentence.tokens), SHORTEST_COUNTED) * self.settings.beam_size

    def _end_after_failure(self) -> None:
        """Free all caches and graphs; errors of a GPU that has failed are ignored."""
        if self._graphed is not None:
            with suppress(Exception):
                self._graphed.release()
        with suppress(Exception):
            self.free_caches()


def _prepared(
    models: Sequence[Any], settings: SearchSettings, computing: Computing
) -> PreparedModels:
    first = models[0]
    if isinstance(first, PackedModel):
        chosen = {"device": "cpu", "precision": first.precision}
        return PreparedModels(models, chosen)
    from nmt_cli.search.torch_models import prepared_by_torch  # it imports torch

    return prepared_by_torch(models, settings, computing)


def step_model(model: Any) -> StepModel:
    """Return a model, packed or a Transformer, as a search takes it."""
    if isinstance(model, PackedModel):
        return CompiledTransformer(model)
    from nmt_cli.search.incremental import CachedTransformer  # it imports torch

    return CachedTransformer(model)


_warned_of = set[str]()  # why there is no library


def kernels_for(device: str) -> Kernels | None:
    """Return the library for CPUs; None on a GPU, and where there is none, with one warning.

    Raises UserError if it was built from other sources, or if there is no torch in its place.
    """
    if device != "cpu":
        return None
    try:
        return load_kernels()
    except NoKernelsError as error:
        if find_spec("torch") is None:
            raise
        if str(error) not in _warned_of:
            _warned_of.add(str(error))
            logs.warning(f"torch translates, several times as slowly, because {error}")
        return None


def default_max_tokens(config: ModelShape, device: str) -> int:
    """Return how many tokens of hypotheses a model of ``config`` searches at a time."""
    most = MOST_TOKENS[device]
    if device != "cpu":
        return most
    shape = config.decoder
    width = shape.num_heads * (shape.key_width + shape.value_width)
    return max(1, min(most, CACHED_ON_CPU // (shape.num_layers * width)))
