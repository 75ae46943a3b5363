"""Translates lines of text in order: the public Python interface to a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

import torch

from nmt_cli.corpus.lines import is_blank, why_not_unicode
from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.decoding.answers import Answers, Trees
from nmt_cli.decoding.attention_to_source import AttentionToSource
from nmt_cli.decoding.beams import Found, SearchSettings
from nmt_cli.decoding.by_length import SearchByLength
from nmt_cli.decoding.cached_model import CachedTransformer
from nmt_cli.decoding.constraints import Constraints
from nmt_cli.decoding.encoded_texts import encode_each
from nmt_cli.decoding.ensemble import Ensemble, Member, load_members
from nmt_cli.decoding.isolation import IMPOSSIBLE, Outcome, naming_lines, own_failure_of
from nmt_cli.decoding.length_limits import length_limits
from nmt_cli.decoding.output_limits import OutputLimits
from nmt_cli.decoding.over_long import Part, parts_within
from nmt_cli.decoding.request import Request, numbered
from nmt_cli.decoding.rules.well_formed_trees import WellFormedTrees
from nmt_cli.decoding.sampling import MOST_SAMPLES, SampledCandidates, Sampling, gathered
from nmt_cli.decoding.search import Sentence, StepModel, beam_search
from nmt_cli.decoding.translation import LinesFailedError, Translation
from nmt_cli.decoding.tree_output import Tokenize, splitter
from nmt_cli.decoding.unknown_words import UnknownWords
from nmt_cli.decoding.wanted_output import NO_PLACE, Bounds, Wanted, WantedOutputs
from nmt_cli.decoding.word_alignment import WordAligner
from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.device import choose_device
from nmt_cli.hardware.fp32_products import choose_fp32_products, use_fp32_products
from nmt_cli.hardware.precision import at_precision, choose_decoding_precision
from nmt_cli.model.transformer import Transformer
from nmt_cli.model_directory import fingerprint, load_model
from nmt_cli.model_settings import ModelSettings

if TYPE_CHECKING:
    from typing_extensions import Unpack

TooLong = Literal["split", "truncate", "error"]
WINDOW_LINES = 4096
WINDOW_CHARACTERS = 1 << 21
# Tokens of all hypotheses in the search: 512 rows of 32 pieces keep two CPU cores busy, 2,048 rows
# a GPU.
DEFAULT_MAX_TOKENS = {"cpu": 1 << 14, "cuda": 1 << 16}
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
    max_tokens_per_device: int | None
    precision: str
    fp32_products: str
    well_formed_trees: bool | None
    sampling: Sampling | None
    constraints: Constraints


class _Job(NamedTuple):
    """A line prepared for the search: its encoded parts, or why it cannot be translated."""

    parts: Sequence[Part] = ()
    truncated: bool = False
    error: str | None = None
    words: Sequence[str] = ()  # the leaves of the tree, if the model parses
    wanted: Wanted = Wanted()


class Translator:
    """Translates lines with one model; load it once and translate as often as needed.

    If the model parses, the text of each translation is a tree of the line's words.

    An option that is None gets its value from the model's settings; ``max_tokens_per_device`` gets
    a value for the device. Raises UserError if an option is wrong or does not suit the model.

    With ``sampling``, ``n_best`` translations are drawn, in this order, instead of searched.
    ``constraints`` are rules for all outputs; a ``Request`` may add rules for its own.

    The model is set to evaluation mode. If its dtype is not ``precision``, the translator keeps a
    converted copy and ignores later changes of the model; otherwise it uses the model itself.

    Between calls it holds the model and the tokenizer. During a call it also holds one window of
    lines, their translations, and the attention caches of the sentences in the search, which
    ``max_tokens_per_device`` limits. If memory is full, it searches fewer sentences at a time from
    then on.

    Not safe to use from several threads at once: calls share the attention caches, without a lock.
    Give each thread a translator from its own ``load``, or let the threads take turns. One thread
    may hold several iterators of ``translate`` open and advance them in any order.
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
        max_tokens_per_device: int | None = None,
        precision: str = AUTO,
        fp32_products: str = AUTO,
        well_formed_trees: bool | None = None,
        sampling: Sampling | None = None,
        constraints: Constraints = Constraints(),  # noqa: B008 - it cannot be changed
        ensemble: Sequence[Member] = (),
    ) -> None:
        decoding, device = settings.decoding, model.output_weight.device
        self._tokenizer, self._too_long = tokenizer, too_long
        self._form, self._words_of = settings.trees, splitter(tokenize, settings.trees)
        self._settings = SearchSettings(
            beam_size if beam_size is not None else decoding.beam_size,
            length_penalty if length_penalty is not None else decoding.length_penalty,
            n_best,
            tokenizer.bos_id,
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
        self._by_length = SearchByLength(max_tokens_per_device or DEFAULT_MAX_TOKENS[device.type])
        self._limit, places = length_limits(settings, *(each.settings for each in ensemble))
        longest = constraints.max_length  # pieces of an output, without </s>
        if places is not None:
            longest = min(longest or places, places)
        if well_formed_trees is None:
            well_formed_trees = decoding.well_formed_trees
        rule = WellFormedTrees.of_model(tokenizer, self._form) if well_formed_trees else None
        limits = OutputLimits(tokenizer.eos_id, max_extra_length, longest, rule)
        self._outputs = WantedOutputs(
            tokenizer,
            limits,
            constraints,
            n_best,
            Bounds(longest, settings.max_length, most),
            is_parser=self._form is not None,
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
        self._model: StepModel = CachedTransformer(model)
        if ensemble:
            others = (at_precision(each.model.eval(), chosen) for each in ensemble)
            self._model = Ensemble([self._model, *map(CachedTransformer, others)])
        self._answers = Answers(
            tokenizer,
            self._settings.length_penalty,
            keep_pieces=keep_pieces,
            trees=Trees(settings.trees, rule) if settings.trees is not None else None,
            aligner=WordAligner(settings) if alignments else None,
            unknown_words=UnknownWords(tokenizer, settings.text) if replace_unknown else None,
        )
        self._attention: AttentionToSource | None = None
        if alignments or replace_unknown:
            self._attention = AttentionToSource(model, tokenizer, settings.text)

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
        chosen = choose_device(device)
        loaded = load_model(Path(path), chosen)
        members = load_members(loaded, ensemble, chosen)
        settings, tokenizer, model, *_ = loaded
        translator = cls(settings, tokenizer, model, ensemble=members, **options)
        models = [fingerprint(loaded.manifest), *(member.fingerprint for member in members)]
        translator.chosen["model"] = " ".join(models)
        return translator

    def translate(self, lines: Iterable[str | Request]) -> Iterator[Translation]:
        """Yield the translation of each line, in order.

        Lines are read and translated in windows of at most ``WINDOW_LINES`` lines; a window also
        ends at the line with which it reaches ``WINDOW_CHARACTERS``. A line that cannot be
        translated gets a translation with an ``error``. Raises LinesFailedError for a bug, after
        yielding the translations of the lines before.
        """
        num_translated = 0
        for window in _windows(numbered(lines)):
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
        failure, requests = None, list(numbered(lines))
        while True:
            try:
                finished = self._translate_together(requests)
                break
            except LinesFailedError as error:
                failure, requests = error, requests[: error.first]
        if failure is not None:
            raise LinesFailedError(failure.first, failure.last, finished) from failure.__cause__
        return finished

    def _translate_together(self, requests: Sequence[Request]) -> list[Translation]:
        jobs = self._prepare(requests)
        sentences_of = [self._sentences(job) for job in jobs]
        sentences = [(line, each) for line, own in enumerate(sentences_of) for each in own]
        order = sorted(
            range(len(sentences)), key=lambda i: len(sentences[i][1].tokens), reverse=True
        )
        found = self._search_by_length(
            [sentences[number][1] for number in order], [sentences[number][0] for number in order]
        )
        outcomes = dict(zip(order, found, strict=True))
        translations, start = [], 0
        for line, job in enumerate(jobs):
            end = start + len(sentences_of[line])
            try:
                answer = self._answer(job, [outcomes[n] for n in range(start, end)])
            except Exception as error:
                answer = Translation(error=own_failure_of(line, error))
            translations.append(answer)
            start = end
        return translations

    def _prepare(self, requests: Sequence[Request]) -> list[_Job]:
        wanted = [self._outputs.wanted(request) for request in requests]
        jobs = [
            _Job(error=why_not_unicode(request.text) or each.error)
            for request, each in zip(requests, wanted, strict=True)
        ]
        texts = {
            number: request.text
            for number, request in enumerate(requests)
            if jobs[number].error is None and not is_blank(request.text)
        }
        words: dict[int, list[str]] = {}
        if self._form is not None:
            cut = {number: self._words_of(line) for number, line in texts.items()}
            words = {number: leaves for number, leaves in cut.items() if leaves}
            texts = {number: " ".join(leaves) for number, leaves in words.items()}
        with naming_lines(list(texts)):
            encoded = encode_each(self._tokenizer, list(texts.values()))
        for (number, text), tokens in zip(texts.items(), encoded, strict=True):
            if isinstance(tokens, str):
                jobs[number] = _Job(error=tokens)
                continue
            try:
                job = self._job(text, tokens)
                own = words.get(number, ())
                jobs[number] = job._replace(words=own, wanted=wanted[number])
                if len(job.parts) > 1 and wanted[number].required:
                    jobs[number] = _Job(error=NO_PLACE)
            except Exception as error:
                jobs[number] = _Job(error=own_failure_of(number, error))
        return jobs

    def _job(self, text: str, tokens: Sequence[int]) -> _Job:
        if len(tokens) <= self._limit:
            is_nothing = not tokens and self._form is None  # a parse needs no pieces
            return _Job([] if is_nothing else [Part(tokens, "", text)])
        if self._too_long == "error":
            return _Job(
                error=f"it has {len(tokens):,} pieces, the model takes {self._limit:,}; "
                "--too-long split translates it in parts"
            )
        if self._too_long == "truncate":
            return _Job([Part(tokens[: self._limit], "", text)], truncated=True)
        return _Job(parts_within(text, tokens, self._limit, self._tokenizer.encode))

    def _sentences(self, job: _Job) -> list[Sentence]:
        """Return what is searched for a line: its parts, or samples of the first, the second ..."""
        is_whole = len(job.parts) == 1 and not job.truncated
        words = job.words if is_whole else ()
        parts = [part.tokens for part in job.parts]
        sentences = self._outputs.sentences(parts, words, job.wanted)
        if self._sampling is None:
            return sentences
        return self._sampling.samples_of(sentences, job.wanted.line, job.wanted.n_best)

    def _search_by_length(
        self, sentences: Sequence[Sentence], lines: Sequence[int]
    ) -> list[Outcome]:
        """Return the outcomes of ``sentences``, which come longest first.

        Shorter sentences are searched in more slots. ``lines`` are the line numbers of the
        sentences, for LinesFailedError.
        """
        no_autocast = torch.autocast(self._device.type, enabled=False)
        with torch.no_grad(), no_autocast, use_fp32_products(self._fp32_products):
            outcomes = self._by_length.run(self._search, sentences, self._tokens_of_slot, lines)
        self._model.reset(0, 1)
        return outcomes

    def _tokens_of_slot(self, sentence: Sentence) -> int:
        return max(len(sentence.tokens), SHORTEST_COUNTED) * self._settings.beam_size

    def _search(self, sentences: Iterable[Sentence], num_slots: int) -> Iterator[Found]:
        settings, rules = self._settings, self._outputs.rules
        choice = None if self._sampling is None else SampledCandidates(self._sampling)

        def search(sentences: Iterable[Sentence]) -> Iterator[Found]:
            return beam_search(self._model, sentences, num_slots, settings, rules, choice)

        if self._attention is None:
            return search(sentences)
        return self._attention.attended(sentences, search)

    def _answer(self, job: _Job, outcomes: Sequence[Outcome]) -> Translation:
        if self._sampling is not None:
            outcomes = gathered(outcomes, job.wanted.n_best)
        found = [outcome for outcome in outcomes if not isinstance(outcome, str)]
        error = next((outcome for outcome in outcomes if isinstance(outcome, str)), job.error)
        if error == IMPOSSIBLE:
            error = self._outputs.explained(error, job.wanted)
        if error is not None or not found:
            return Translation(error=error)
        return self._answers.joined(job.parts, job.words, found, truncated=job.truncated)


def _windows(requests: Iterable[Request]) -> Iterator[list[Request]]:
    window: list[Request] = []
    num_characters = 0
    for request in requests:
        window.append(request)
        num_characters += len(request.text)
        if len(window) >= WINDOW_LINES or num_characters >= WINDOW_CHARACTERS:
            yield window
            window, num_characters = [], 0
    yield window
