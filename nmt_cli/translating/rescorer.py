"""Scores given translations with a model: the public Python interface of ``rescore``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.lines import is_blank, one_line, why_not_unicode
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.parsing.tree import words_of
from nmt_cli.parsing.tree_output import linearized
from nmt_cli.recipe.model_settings import ModelSettings, common_characters, length_limits
from nmt_cli.recipe.translation_options import RESCORING_PENALTY, refuse_outside
from nmt_cli.search import sentences
from nmt_cli.search.beams import length_penalty
from nmt_cli.search.loading import EnsembleMember, load_models
from nmt_cli.search.search_size import SearchSize
from nmt_cli.search.sentences import Cause, Failure, SentencePair
from nmt_cli.search.teacher_forcing import mean_of_models, teacher_forcing
from nmt_cli.translating.encoding.known_text import KnownText
from nmt_cli.translating.encoding.language_tags import LanguageTags, for_pair
from nmt_cli.translating.interface.request import LineError

if TYPE_CHECKING:
    from nmt_cli.model.compiled.packed_model import PackedModel
    from nmt_cli.model.transformer import Transformer

WINDOW_PAIRS = 4096
# Tokens of the longer side of all pairs of a pass: enough to keep the device busy.
DEFAULT_MAX_TOKENS = {"cpu": 1 << 10, "cuda": 1 << 15}


class Rescored(NamedTuple):
    """The score of a translation; without one if its source is blank, or for the ``error``."""

    score: float | None = None  # log-probability of all pieces and </s> over the length penalty
    tokens: tuple[str, ...] = ()  # pieces of the translation
    token_scores: tuple[float, ...] = ()  # log-probability of each piece, then of </s>
    error: str | None = None  # why the translation could not be scored


Outcome = tuple[int, Rescored | Failure]  # with the number of the pair


class Rescorer:
    """Scores translations that are given, with one model or, as the search does, with an ensemble.

    With a ``length_penalty`` above 0, scores are those of a search with this penalty. If the model
    parses, translations are trees in brackets. ``tag`` and the languages are those of all sources.
    Options are as with ``Translator``; ``precision`` is
    for a Transformer, since a packed model has its own. Not to be shared between threads.
    """

    def __init__(  # noqa: PLR0913 - the options of the command are its keywords
        self,
        settings: ModelSettings,
        tokenizer: Tokenizer,
        model: Transformer | PackedModel,
        *,
        length_penalty: float = RESCORING_PENALTY,
        max_tokens_per_device: int | None = None,
        precision: str = AUTO,
        ensemble: Sequence[EnsembleMember] = (),
        tag: str | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> None:
        settings, tag = for_pair(settings, tag, source_language, target_language)
        self._tags = LanguageTags(settings, tokenizer, tag)
        self._settings, self._tokenizer = settings, tokenizer
        all_settings = settings, *(each.settings for each in ensemble)
        self._known_text = KnownText(
            tokenizer,
            folds=settings.text.normalization.fold,
            characters=common_characters(*all_settings),
        )
        self._alpha = length_penalty
        refuse_outside(length_penalty=length_penalty)
        limits = length_limits(*all_settings)
        # The longest output that the search may give a sentence of the longest length.
        longest = limits.source + settings.decoding.max_extra_length
        self._limits: dict[Side, int] = {
            "source": limits.source,
            "target": min(longest, limits.target or longest),
        }
        models = [model, *(each.model for each in ensemble)]
        self._models = [teacher_forcing(each, tokenizer, precision) for each in models]
        self._size = SearchSize(max_tokens_per_device or DEFAULT_MAX_TOKENS[self._models[0].device])

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        device: str = AUTO,
        ensemble: Sequence[Path | str] = (),
        precision: str = AUTO,
        **options: Any,
    ) -> Rescorer:
        """Return a rescorer with the model of ``path``, and those of ``ensemble``.

        The ``options`` are the other keywords of ``Rescorer``.

        Raises UserError if there is no model, if the models do not fit together, or if ``device``
        or an option is wrong, and DamagedError if a file of a model is damaged.
        """
        models = load_models(path, ensemble, device, precision)
        first, *others = models.members
        return cls(
            first.settings,
            models.tokenizer,
            first.model,
            precision=models.precision,
            ensemble=others,
            **options,
        )

    def rescore(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Rescored]:
        """Yield the score of each pair of a source and its translation, in order.

        Raises LinesFailedError for a bug.
        """
        waiting, num_before = iter(pairs), 0
        while window := list(islice(waiting, WINDOW_PAIRS)):
            yield from self.rescore_window(window, num_before)
            num_before += len(window)

    def rescore_window(
        self, pairs: Sequence[tuple[str, str]], num_before: int = 0
    ) -> list[Rescored]:
        """Return the score of each pair; they are computed together, longest first.

        Raises LinesFailedError for a bug; its line numbers count ``num_before`` lines more.
        """
        results, encoded = dict[int, Rescored](), dict[int, SentencePair]()
        for number, pair in enumerate(pairs, num_before):
            read = self._read(number, *pair)
            if isinstance(read, SentencePair):
                encoded[number] = read
            else:
                results[number] = read
        for number, outcome in sorted(self._outcomes(encoded), key=itemgetter(0)):
            if isinstance(outcome, Rescored):
                results[number] = outcome
            elif outcome.bug is not None:
                raise LinesFailedError(number, number) from outcome.bug
            else:
                results[number] = Rescored(error=outcome.reason)
        return [results[number] for number in sorted(results)]

    def _read(self, number: int, source: str, target: str) -> SentencePair | Rescored:
        """Return the tokens of a pair, or its result if the model reads nothing."""
        try:
            return self._encoded(source, target)
        except LineError as error:
            return Rescored(error=str(error))
        except Exception as error:
            if (failure := sentences.failure_of(error)) is not None:
                return Rescored(error=failure.reason)
            if isinstance(error, UserError):
                return Rescored(error=str(error).rstrip("."))
            raise LinesFailedError(number, number) from error

    def _encoded(self, source: str, target: str) -> SentencePair | Rescored:
        for line in (source, target):
            if (reason := why_not_unicode(line)) is not None:
                raise LineError(reason)
        if is_blank(source):
            return Rescored()
        form, source = self._settings.trees, self._known_text(source)
        if form is not None:
            words, spaced = words_of(one_line(source)), self._settings.text.type == "whitespace"
            source, target = " ".join(words), linearized(target, len(words), form, spaced=spaced)
        tag = self._tags.pieces(source)
        pair = SentencePair(
            [*tag, *self._tokenizer.encode(source, "source")],
            self._tokenizer.encode(target, "target"),
        )
        for side, tokens in zip(SIDES, (pair.source, pair.target), strict=True):
            if len(tokens) > self._limits[side]:
                most = f"the model takes {self._limits[side]:,}"
                raise LineError(f"its {side} has {len(tokens):,} pieces, {most}")
        # Translating takes a text without pieces for blank.
        return pair if len(pair.source) > len(tag) or form is not None else Rescored()

    def _outcomes(self, pairs: Mapping[int, SentencePair]) -> Iterator[Outcome]:
        """Yield the number of each pair and its score, or why it has none; longest first."""
        left = sorted(pairs.items(), key=lambda each: _tokens_of(each[1]), reverse=True)
        while left:
            most = self._size.num_slots(_tokens_of(left[0][1]))
            yield from self._scored(left[:most])
            left = left[most:]

    def _scored(self, pairs: Sequence[tuple[int, SentencePair]]) -> list[Outcome]:
        """Return the outcomes of pairs in one pass; if it fails, in one of each half.

        If memory was full and the halves fitted, later passes are as small.
        """
        together = [pair for _, pair in pairs]
        try:
            scores = mean_of_models([model.token_scores(together) for model in self._models])
        except Exception as error:
            if sentences.ends_the_device(error):
                raise  # other passes would fail too
            failure = sentences.failure_of(error) or Failure(Cause.BUG, str(error), error)
        else:
            self._size.note_searched(len(pairs))
            return [
                (number, self._rescored(pair, of_pair))
                for (number, pair), of_pair in zip(pairs, scores, strict=True)
            ]
        if len(pairs) == 1:
            return [(pairs[0][0], failure)]
        half = (len(pairs) + 1) // 2
        outcomes = [*self._scored(pairs[:half]), *self._scored(pairs[half:])]
        if all(isinstance(outcome, Rescored) for _, outcome in outcomes):
            if failure.bug is not None:
                sentences.warn_of_passed(failure.bug)
            elif failure.cause is Cause.NO_MEMORY:
                self._size.lower_to(half * _tokens_of(pairs[0][1]))
        return outcomes

    def _rescored(self, pair: SentencePair, scores: Sequence[float]) -> Rescored:
        total = sum(scores)
        if math.isnan(total):
            return Rescored(error=sentences.NOT_A_NUMBER.reason)
        score = total / length_penalty(len(scores), self._alpha)
        return Rescored(score, tuple(self._tokenizer.pieces(pair.target)), tuple(scores))


def _tokens_of(pair: SentencePair) -> int:
    return 1 + max(len(pair.source), len(pair.target))
