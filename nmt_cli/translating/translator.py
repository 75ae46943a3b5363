"""Translates lines of text in order: the public Python interface to a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import torch

from nmt_cli.checkpoints import fingerprint
from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.fp32_products import choose_fp32_products, use_fp32_products
from nmt_cli.hardware.precision import choose_decoding_precision
from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.model.precision import at_precision, by_columns
from nmt_cli.model.transformer import Transformer
from nmt_cli.parsing.tree_output import Tokenize, splitter
from nmt_cli.recipe.model_settings import ModelSettings
from nmt_cli.recipe.search_ranges import MOST_SAMPLES
from nmt_cli.search.beams import Found, SearchSettings
from nmt_cli.search.by_length import LEAST_SENTENCES, SearchByLength, default_max_tokens
from nmt_cli.search.ensemble import Member, load_models
from nmt_cli.search.isolation import own_failure_of
from nmt_cli.search.open_search import OpenSearch
from nmt_cli.search.rules.well_formed_trees import WellFormedTrees
from nmt_cli.search.sampling import SampledCandidates, Sampling
from nmt_cli.search.search import Search, Sentence, search_all
from nmt_cli.search.search_starter import SearchStarter
from nmt_cli.translating.answers import Answers, Trees, UnknownWords, WordAligner
from nmt_cli.translating.attention_to_source import AttentionToSource
from nmt_cli.translating.encoded_texts import tag_pieces
from nmt_cli.translating.line_engine import LineEngine
from nmt_cli.translating.line_jobs import LineJobs, LongLines, TooLong
from nmt_cli.translating.output_limits import OutputLimits, length_limits
from nmt_cli.translating.request import Constraints, Request, numbered, require_lines, windows_of
from nmt_cli.translating.service import Service
from nmt_cli.translating.slow_lines import SlowLines
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.wanted_output import Bounds, WantedOutputs

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Pieces; shorter sentences count as this long, to bound the number of rows of logits.
SHORTEST_COUNTED = 32


class TranslatorOptions(TypedDict, total=False):
    """The options of ``Translator``, which defines their defaults."""

    beam_size: int | None
    length_penalty: float | None
    max_extra_length: int | None
    n_best: int
    too_long: TooLong
    tokenize: Tokenize
    keep_pieces: bool
    token_scores: bool
    alignments: bool
    replace_unknown: bool
    tag: str | None
    max_tokens_per_device: int | None
    precision: str
    fp32_products: str
    no_cuda_graphs: bool
    well_formed_trees: bool | None
    sampling: Sampling | None
    constraints: Constraints


class Translator:
    """Translates lines with one model; load it once and translate as often as needed.

    If the model parses, the text of each translation is a tree of the line's words.

    An option that is None gets its value from the model's settings; ``max_tokens_per_device`` gets
    one for the model and the device. Raises UserError if an option is wrong or does not suit the
    model.

    With ``sampling``, ``n_best`` translations are drawn, in this order, instead of searched.
    ``tag`` comes in front of every line, and of every part of a line that is split.

    ``constraints`` are rules for all outputs; a ``Request`` may add rules for its own.

    The model is set to evaluation mode. If its dtype is not ``precision``, the translator keeps a
    converted copy and ignores later changes of the model; otherwise it uses the model itself.

    Between calls it holds the model, the tokenizer and, on a GPU, what CUDA graphs need. During a
    call it also holds one window of lines, their translations, and the attention caches of the
    sentences in the search, which ``max_tokens_per_device`` limits. If memory is full, it searches
    fewer at a time from then on. On a GPU, searches of ``translate`` without rules repeat their
    steps as CUDA graphs, unless ``no_cuda_graphs``. Translators that share a model must then not
    translate at the same time.

    Threads may share it: windows of ``translate`` and the lines of ``submit`` use the model in the
    order in which they came. One thread may hold several iterators of ``translate`` open and
    advance them in any order. Where ``submit`` is used, ``close`` ends it, and so does a ``with``
    block.
    """

    def __init__(  # noqa: PLR0913 - the public interface names its options
        self,
        settings: ModelSettings,
        tokenizer: Tokenizer,
        model: Transformer,
        *,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        max_extra_length: int | None = None,
        n_best: int = 1,
        too_long: TooLong = "split",
        tokenize: Tokenize = "none",
        keep_pieces: bool = False,
        token_scores: bool = False,
        alignments: bool = False,
        replace_unknown: bool = False,
        tag: str | None = None,
        max_tokens_per_device: int | None = None,
        precision: str = AUTO,
        fp32_products: str = AUTO,
        no_cuda_graphs: bool = False,
        well_formed_trees: bool | None = None,
        sampling: Sampling | None = None,
        constraints: Constraints = Constraints(),  # noqa: B008 - it cannot be changed
        ensemble: Sequence[Member] = (),
    ) -> None:
        decoding, device = settings.decoding, model.output_weight.device
        form, words_of = settings.trees, splitter(tokenize, settings.trees)
        self._settings = SearchSettings(
            beam_size if beam_size is not None else decoding.beam_size,
            length_penalty if length_penalty is not None else decoding.length_penalty,
            n_best,
            start_id(settings.architecture, tokenizer),
            tokenizer.eos_id,
            token_scores,
        )
        self._sampling, most = sampling, self._settings.beam_size
        if sampling is not None:
            most = MOST_SAMPLES
            self._settings = sampling.search_settings(self._settings, n_best, beam_size)
        self._settings.refuse_wrong()
        constraints.refuse_wrong()
        if max_extra_length is None:
            max_extra_length = decoding.max_extra_length
        if max_tokens_per_device is None:
            max_tokens, least = default_max_tokens(model.config, device), LEAST_SENTENCES
        else:
            max_tokens, least = max_tokens_per_device, 1
        self._by_length = SearchByLength(max_tokens, least)
        in_front = tag_pieces(tag, tokenizer)
        limit, places = length_limits(settings, *(each.settings for each in ensemble))
        longest = constraints.max_length  # pieces of an output, without </s>
        if places is not None:
            longest = min(longest or places, places)
        if well_formed_trees is None:
            well_formed_trees = decoding.well_formed_trees
        rule = WellFormedTrees.of_model(tokenizer, form) if well_formed_trees else None
        end = source_end(settings.architecture, tokenizer)
        limits = OutputLimits(end, max_extra_length, longest, rule)
        self._outputs = WantedOutputs(
            tokenizer,
            limits,
            constraints,
            n_best,
            Bounds(longest, settings.max_length, most),
            is_parser=form is not None,
        )
        self._device = device
        chosen = choose_decoding_precision(precision, device)
        self._fp32_products = choose_fp32_products(fp32_products, device, chosen)
        # The model, and what "auto" became: for a record of how a text was translated.
        self.chosen = {
            "device": device.type,
            "precision": chosen,
            "fp32_products": self._fp32_products,
        }
        model = at_precision(model.eval(), chosen)
        others = (at_precision(each.model.eval(), chosen) for each in ensemble)
        self._search_starter = SearchStarter(
            [model, *others], self._settings, cuda_graphs=not no_cuda_graphs
        )
        answers = Answers(
            tokenizer,
            self._settings.length_penalty,
            keep_pieces=keep_pieces,
            trees=Trees(form, rule) if form is not None else None,
            aligner=WordAligner(settings) if alignments else None,
            unknown_words=UnknownWords(tokenizer, settings.text) if replace_unknown else None,
        )
        self._attention: AttentionToSource | None = None
        if alignments or replace_unknown:
            self._attention = AttentionToSource(model, tokenizer, settings.text, len(in_front))
        self._jobs = LineJobs(
            tokenizer,
            LongLines(limit - len(in_front), too_long),
            self._outputs,
            answers,
            sampling=sampling,
            words_of=words_of if form is not None else None,
            tag=in_front,
        )
        self._service = Service()

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        device: str = AUTO,
        ensemble: Sequence[Path | str] = (),
        **options: Unpack[TranslatorOptions],
    ) -> Translator:
        """Return a translator with the model of ``path``: a model, a checkpoint or a run.

        The models of ``ensemble`` search together with it. Raises UserError if there is no model,
        if the models do not fit together, or if ``device`` or an option is wrong, and DamagedError
        if a file of a model is damaged.
        """
        precision = options.get("precision", AUTO)
        loaded, members, options["precision"] = load_models(path, ensemble, device, precision)
        settings, tokenizer, model, *_ = loaded
        translator = cls(settings, tokenizer, model, ensemble=members, **options)
        models = [fingerprint(loaded.manifest), *(member.fingerprint for member in members)]
        translator.chosen["model"] = " ".join(models)
        if model.output_weight.device.type == "cpu" and translator.chosen["precision"] == "fp32":
            for each in (model, *(member.model for member in members)):
                each.output_weight.data = by_columns(each.output_weight)
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
        failure, requests = None, list(numbered(lines))
        while True:
            try:
                with self._service.paused():
                    finished = self._translate_together(requests)
                break
            except LinesFailedError as error:
                failure, requests = error, requests[: error.first]
        if failure is not None:
            raise LinesFailedError(failure.first, failure.last, finished) from failure.__cause__
        return finished

    def submit(
        self, line: str | Request, *, most_waiting: int | None = None, timeout: float | None = None
    ) -> Future[Translation]:
        """Return the future of the translation of ``line``, for services and notebooks.

        A thread of the translator translates the lines of all callers in one search, which a line
        joins as soon as there is room, and leaves when it is done. A line that cannot be translated
        gets a translation with an ``error``; a bug becomes the exception of the future. A line that
        waits for room may be cancelled, and after ``timeout`` seconds of waiting it gets an error.
        Lines are numbered in the order in which they are submitted, which decides what is sampled.
        Callbacks of futures run in that thread, so they should be short.

        Raises queue.Full if ``most_waiting`` lines wait, and RuntimeError after ``close``.
        """
        return self._service.submit(line, self._open_engine, most_waiting, timeout)

    def close(self, *, cancel_futures: bool = False) -> None:
        """End ``submit``: wait for the submitted lines, or cancel those that wait for room.

        At the end of a ``with`` block they are cancelled if it ends with an error.
        """
        self._service.close(cancel_futures=cancel_futures)

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(cancel_futures=kind is not None)

    def _translate_together(self, requests: Sequence[Request]) -> list[Translation]:
        jobs = self._jobs.prepare(requests)
        sentences_of = [self._jobs.sentences(job) for job in jobs]
        numbers = [request.line or 0 for request in requests]
        slow_lines = SlowLines(dict(zip(numbers, sentences_of, strict=True)))
        sentences = [(line, each) for line, own in enumerate(sentences_of) for each in own]
        order = sorted(
            range(len(sentences)), key=lambda i: len(sentences[i][1].tokens), reverse=True
        )
        with self._computing():
            found = self._by_length.run(
                partial(self._search, slow_lines),
                [sentences[number][1] for number in order],
                self._tokens_of_slot,
                [sentences[number][0] for number in order],
            )
        outcomes = dict(zip(order, found, strict=True))
        translations, start = [], 0
        for line, job in enumerate(jobs):
            end = start + len(sentences_of[line])
            try:
                answer = self._jobs.answer(job, [outcomes[n] for n in range(start, end)])
            except Exception as error:
                answer = Translation(error=own_failure_of(line, error).reason)
            translations.append(answer)
            start = end
        return translations

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Compute as the options ask for in this block; after it only CUDA graphs keep memory."""
        no_autocast = torch.autocast(self._device.type, enabled=False)
        products = use_fp32_products(self._fp32_products)
        try:
            # Caches of one call may serve the next, so they must not be inference tensors.
            with torch.inference_mode(False), torch.no_grad(), no_autocast, products:
                yield
        except BaseException:
            self._search_starter.end_after_failure()
            raise
        self._search_starter.end()

    def _tokens_of_slot(self, sentence: Sentence) -> int:
        return max(len(sentence.tokens), SHORTEST_COUNTED) * self._settings.beam_size

    def _search(
        self, slow_lines: SlowLines, sentences: Iterable[Sentence], num_slots: int
    ) -> Iterator[Found]:
        def search(sentences: Iterable[Sentence]) -> Iterator[Found]:
            starter = self._search_starter
            try:
                begun = starter.start(num_slots, self._outputs.rules, self._choice())
                yield from search_all(begun, sentences, slow_lines.look)
            except Exception:  # such as full memory, where fewer sentences may fit after this
                starter.end_after_failure()
                raise

        if self._attention is None:
            return search(sentences)
        return self._attention.attended(sentences, search)

    def _choice(self) -> SampledCandidates | None:
        return None if self._sampling is None else SampledCandidates(self._sampling)

    def _open_engine(self) -> LineEngine:
        """Return an engine for submitted lines. A line may bring phrases into a running search."""
        self._outputs.expect_phrases()

        def start(num_slots: int) -> Search:
            return self._search_starter.start_open(num_slots, self._outputs.rules, self._choice())

        return LineEngine(
            self._jobs,
            OpenSearch(start, self._by_length, self._tokens_of_slot),
            self._attention,
            self._translate_together,
            self._computing,
        )
