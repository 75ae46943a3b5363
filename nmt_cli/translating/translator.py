"""Translates lines of text in order: the public Python interface to a model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.hardware.machine_options import Computing
from nmt_cli.messages.errors import LinesFailedError, WrongUsageError
from nmt_cli.recipe.model_settings import (
    ModelSettings,
    common_characters,
    languages_of,
    least_share,
    length_limits,
)
from nmt_cli.search.engine import SearchEngine
from nmt_cli.search.loading import EnsembleMember, load_models
from nmt_cli.search.sentences import SearchSettings
from nmt_cli.search.shortlist import Shortlists
from nmt_cli.translating.encoding.language_tags import LanguageTags, for_pair
from nmt_cli.translating.encoding.output_limits import OutputLimits
from nmt_cli.translating.encoding.sentence_builder import SentenceBuilder
from nmt_cli.translating.interface.options import LoadOptions, TranslatorOptions, taking
from nmt_cli.translating.interface.request import Request, numbered, require_lines, windows_of
from nmt_cli.translating.interface.translation import Translation, in_order
from nmt_cli.translating.outputs.attention_to_source import AttentionToSource
from nmt_cli.translating.outputs.translation_builder import TranslationBuilder
from nmt_cli.translating.scheduling.continuous_search import ContinuousSearch, LineKey, LineSource
from nmt_cli.translating.scheduling.line_processor import LineProcessor
from nmt_cli.translating.scheduling.submitted_lines import SubmittedLines
from nmt_cli.translating.segmentation.segmenter import Segmenter

if TYPE_CHECKING:
    from nmt_cli.corpus.lexicon import Lexicon
    from nmt_cli.model.compiled.packed_model import PackedModel
    from nmt_cli.model.transformer import Transformer
    from nmt_cli.pictures.attention import Attention
    from nmt_cli.search.rules.well_formed_trees import WellFormedTrees


class Translator:
    """Translates lines with one model; load it once and translate as often as needed.

    If the model parses, the text of each translation is a tree of the line's words. Raises
    UserError if an option is wrong or does not suit the model.

    With ``sampling``, ``n_best`` translations are drawn, in this order, instead of searched.
    ``tag`` comes in front of every line, and of every part of a line that is split. If the model
    knows the pairs of its training text, ``source_language`` and ``target_language`` choose one and
    so its tag, and a line without a tag fails if all of these have one.

    With ``split_sentences``, each sentence of a line is translated by itself, by the rules of
    ``source_language``. By default it is, if the model was trained on single sentences and the line
    certainly has several. With ``markup``, the texts in HTML or XML are translated, and the rest
    stays. A ``Request`` may ask for either, or against it, for its own line. Texts without letters
    and list marks stay, unless ``translate_everything``.

    ``constraints`` are rules for all outputs; a ``Request`` may add rules for its own.

    The model is set to evaluation mode. If its dtype is not ``precision``, the translator keeps a
    converted copy and ignores later changes of the model; otherwise it uses the model itself.

    Between calls it holds the model, the tokenizer and, on a GPU, what CUDA graphs need; on a CPU
    the caches of ``submit`` for five seconds without a line. During a call it also holds one window
    of lines, their translations, and the attention caches of the sentences in the search, which
    ``max_tokens_per_device`` limits. If memory is full, it searches fewer at a time from then on.
    On a GPU, searches of ``translate`` without rules repeat their steps as CUDA graphs, unless
    ``no_cuda_graphs``. Translators that share a model must then not translate at the same time. On
    a CPU a library in C computes the layers, with copies of the weights, so the model must not
    change afterwards.

    Threads may share it: windows of ``translate`` and the lines of ``submit`` use the model in the
    order in which they came. One thread may hold several iterators of ``translate`` open and
    advance them in any order. Where ``submit`` is used, ``close`` ends it, and so does a ``with``
    block.
    """

    def __init__(
        self,
        settings: ModelSettings,
        tokenizer: Tokenizer,
        model: Transformer | PackedModel,
        *,
        ensemble: Sequence[EnsembleMember] = (),
        lexicon: Lexicon | None = None,
        **keywords: Any,
    ) -> None:
        """The keywords are the fields of ``TranslatorOptions``.

        With a ``lexicon``, each line has a shortlist of the pieces that may translate it.
        """
        options = TranslatorOptions(**keywords)
        of_all = settings, *(each.settings for each in ensemble)
        share = least_share(*(each.single_sentences for each in of_all))
        settings = settings._replace(characters=common_characters(*of_all), single_sentences=share)
        asked = options.tag, options.source_language, options.target_language
        settings, tag = for_pair(settings, *asked)
        sampling, constraints = options.sampling, options.constraints
        is_parser = settings.trees is not None
        words_of: Callable[[str], list[str]] | None = None
        if is_parser or options.tokenize != "none":
            from nmt_cli.parsing.tree_output import splitter  # other models need no such imports

            words_of = splitter(options.tokenize, settings.trees)
        search = _search_settings(settings, tokenizer, options)
        constraints.refuse_wrong()
        constraints.refuse_beside(tokenizer, options)
        if constraints.memory is not None:
            memory = constraints.memory.for_model(languages_of(settings.text))
            constraints = constraints._replace(memory=memory)
        lengths = length_limits(settings, *(each.settings for each in ensemble))
        extra_length, is_shared = options.max_extra_length, tokenizer.source_size is None
        limits = OutputLimits(
            settings.decoding.max_extra_length if extra_length is None else extra_length,
            lengths.target_within(constraints.max_length),
            options.n_best,
            search.beam_size if sampling is None else None,
            settings.max_length,
            _trees_only(settings, tokenizer, options),
            None if lexicon is None else Shortlists(lexicon, search, is_shared=is_shared),
        )
        builder = SentenceBuilder(
            tokenizer,
            limits,
            constraints,
            tags=LanguageTags(settings, tokenizer, tag),
            end=source_end(settings.architecture, tokenizer),
            sampling=sampling,
            is_parser=is_parser,
        )
        translations = TranslationBuilder(
            tokenizer, settings, search.length_penalty, options, limits.trees
        )
        segmenter = Segmenter(settings, tokenizer, options)
        # Rules for every line exclude CUDA graphs: these hold also for sentences without data.
        has_rules = constraints.min_length or constraints.no_repeat_ngram
        no_graphs = options.no_cuda_graphs or sampling is not None or has_rules or lexicon
        finish_of = partial(
            AttentionToSource,
            tokenizer=tokenizer,
            settings=settings,
            of_all=options.alignments or options.replace_unknown,
        )
        self._engine = SearchEngine(
            [model, *(each.model for each in ensemble)],
            search,
            builder.rules(search.eos_id),
            builder.choice(search),
            Computing(options.precision, options.max_tokens_per_device, not no_graphs),
            finish_of,
        )
        if lexicon is not None and self._engine.is_compiled and not ensemble:
            self._engine.model.unpack_output()  # before workers are forked, which share it
        # The model, and what "auto" became: for a record of how a text was translated.
        self.chosen = dict(self._engine.chosen)
        self._processor = LineProcessor(
            tokenizer, builder, translations, segmenter, lengths.source, options.too_long, words_of
        )
        self._submitted = SubmittedLines(self._processor, self._engine)
        self._settings, self._tokenizer = settings, tokenizer

    @classmethod
    @taking(LoadOptions)
    def load(cls, path: Path | str, options: LoadOptions) -> Translator:
        """Return a translator with the model of ``path``: a model, a checkpoint or a run.

        The keywords are the fields of ``LoadOptions``. The models of ``ensemble`` search together
        with it. Raises UserError if there is no model, if the models do not fit together, or if
        ``device`` or an option is wrong, and DamagedError if a file of a model is damaged.
        """
        models = load_models(path, options.ensemble, options.device, options.precision)
        (first, *others), tokenizer = models.members, models.tokenizer
        lexicon = models.lexicon(is_wanted=options.shortlist)
        own = {**vars(options), "ensemble": others, "precision": models.precision}
        del own["device"]
        translator = cls(first.settings, tokenizer, first.model, lexicon=lexicon, **own)
        translator.chosen["model"] = " ".join(member.fingerprint for member in models.members)
        return translator

    def translate(self, lines: Iterable[str | Request]) -> Iterator[Translation]:
        """Return a generator of the translation of each line, in order.

        Nothing is translated until its items are taken: by a loop, or by ``list``. Lines are read
        and translated in windows of ``WINDOW_LINES`` lines, or fewer if they are long. A line that
        cannot be translated gets a translation with an ``error``. Raises LinesFailedError for a
        bug, after yielding the translations of the lines before, and TypeError for what is no line.
        """
        require_lines(lines)
        return self._translate(lines)

    def _translate(self, lines: Iterable[str | Request]) -> Iterator[Translation]:
        num_translated = 0
        for window in windows_of(numbered(lines)):
            try:
                translations = self.translate_window(window)
            except LinesFailedError as error:
                yield from error.finished
                raise error.behind(num_translated) from error.__cause__
            yield from translations
            num_translated += len(window)

    def translate_window(self, lines: Sequence[str | Request]) -> list[Translation]:
        """Return the translation of each line; they are translated together, longest first.

        Raises LinesFailedError for a bug; the error holds the translations of the lines before.
        """
        require_lines(lines)
        window = _Window(numbered(lines))
        with self._submitted.paused():
            self.continuous_search(window).run()
        return window.finished()

    def submit(
        self, line: str | Request, *, most_waiting: int | None = None, timeout: float | None = None
    ) -> Future[Translation]:
        """Return the future of the translation of ``line``, for services and notebooks.

        A thread of the translator translates the lines of all callers in one search, which a line
        joins as soon as there is room, and leaves when it is done. A line that cannot be translated
        gets a translation with an ``error``; a bug becomes the exception of the future. A line may
        be cancelled: it leaves the search after the step in progress. A line that waits for room
        gets an error after ``timeout`` seconds.
        Lines are numbered in the order in which they are submitted, which decides what is sampled.
        Callbacks of futures run in that thread, so they should be short.

        Raises queue.Full if ``most_waiting`` lines wait, and RuntimeError after ``close``.
        """
        return self._submitted.submit(line, most_waiting, timeout)

    def continuous_search(self, lines: LineSource[LineKey]) -> ContinuousSearch[LineKey]:
        """Return what translates ``lines`` as they come, while nothing else uses the translator."""
        return ContinuousSearch(self._processor, self._engine, lines)

    @property
    def may_be_shared(self) -> bool:
        """Whether ``attention`` may be used beside everything else: the library computes it."""
        return self._engine.is_compiled

    def attention(self, source: str, target: str, name: str) -> Attention:
        """Return all attention of the first model between a sentence and its translation.

        The picture calls the model ``name``. Where torch computes it, waits for the lines that were
        submitted before. Raises UserError if the texts are too long.
        """
        # Translating needs no pictures.
        from nmt_cli.translating.shown_attention import Shown, Target, attention_between

        settings, tokenizer = self._settings, self._tokenizer
        tokens = tokenizer.encode(target, "target")
        with ExitStack() as stack:
            if not self.may_be_shared:
                stack.enter_context(self._submitted.paused())
                stack.enter_context(self._engine.computing())
            return attention_between(
                settings,
                tokenizer,
                self._engine.model,
                name,
                source,
                Target(target, tokens, is_given=True),
                Shown.everything(settings.architecture),
            )

    def close(self, *, cancel_futures: bool = False) -> None:
        """End ``submit``: wait for the submitted lines, or cancel those that wait for room.

        At the end of a ``with`` block they are cancelled if it ends with an error. The memory of
        CUDA graphs is freed.
        """
        self._submitted.close(cancel_futures=cancel_futures)
        self._engine.release_graphs()

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(cancel_futures=kind is not None)


class _Window(LineSource[int]):
    """Lines that are translated together, by their places, and their translations."""

    is_text = True

    def __init__(self, requests: Iterable[Request]) -> None:
        self._waiting = deque(enumerate(requests))
        self._num_lines = self._end = len(self._waiting)  # behind the first line that met a bug
        self._answers: dict[int, Translation | BaseException] = {}

    def take(self) -> tuple[int, Request] | None:
        """Return the next line and its place; None at the end."""
        return self._waiting.popleft() if self._waiting else None

    def take_withdrawn(self, inside: Collection[int]) -> Collection[int]:
        """Return the lines behind one that met a bug, because the error ends before them."""
        return range(self._end, self._num_lines)

    def answer(self, line: int, answer: Translation | BaseException) -> None:
        """Take the translation of a line, or the bug that it met."""
        self._answers[line] = answer
        if isinstance(answer, BaseException):
            self._end = min(self._end, line + 1)

    def finished(self) -> list[Translation]:
        """Return the translation of each line, in order. Raises LinesFailedError for a bug."""
        return in_order(self._answers[place] for place in range(self._end))


def _trees_only(
    settings: ModelSettings, tokenizer: Tokenizer, options: TranslatorOptions
) -> WellFormedTrees | None:
    """Return the rule that outputs are trees, if it holds."""
    is_wanted = options.well_formed_trees
    if not (settings.decoding.well_formed_trees if is_wanted is None else is_wanted):
        return None
    from nmt_cli.search.rules.well_formed_trees import WellFormedTrees

    return WellFormedTrees.of_model(tokenizer, settings.trees)


def _search_settings(
    settings: ModelSettings, tokenizer: Tokenizer, options: TranslatorOptions
) -> SearchSettings:
    beam_size, alpha = options.beam_size, options.length_penalty
    search = SearchSettings(
        settings.decoding.beam_size if beam_size is None else beam_size,
        settings.decoding.length_penalty if alpha is None else alpha,
        options.n_best,
        start_id(settings.architecture, tokenizer),
        tokenizer.eos_id,
        options.token_scores,
    )
    if options.sampling is not None:
        options.sampling.refuse_wrong(options.n_best)
        if beam_size is not None:
            raise WrongUsageError("--beam-size is not for --sample, which draws --n-best samples.")
        search = search._replace(beam_size=1, n_best=1)
    search.refuse_wrong()
    return search
