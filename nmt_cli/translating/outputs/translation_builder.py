"""The translation of a line, which is made of the outputs of its sentences."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from nmt_cli.corpus.text.glossary import is_border
from nmt_cli.corpus.text.links import Links
from nmt_cli.corpus.tokenizers.piece_words import words_of_pieces
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer, joined_pieces
from nmt_cli.files.lines import is_blank, one_line
from nmt_cli.messages.errors import UserError
from nmt_cli.metrics.chrf import by_agreement
from nmt_cli.recipe.model_settings import ModelSettings
from nmt_cli.search.beams import length_penalty
from nmt_cli.search.sentences import Hypothesis
from nmt_cli.translating.encoding.copies import Part, ProtectedText
from nmt_cli.translating.encoding.known_text import KnownText
from nmt_cli.translating.encoding.sentence_builder import Wanted
from nmt_cli.translating.encoding.target_phrases import TargetPhrase
from nmt_cli.translating.encoding.unseen import UnseenRun
from nmt_cli.translating.interface.options import TranslatorOptions
from nmt_cli.translating.interface.translation import (
    Alternative,
    Item,
    Translation,
    in_groups,
    kth_of_each,
)
from nmt_cli.translating.outputs import attended_words
from nmt_cli.translating.outputs.line_job import LineJob
from nmt_cli.translating.outputs.unseen_placement import place_runs
from nmt_cli.translating.segmentation.list_marks import has_letters
from nmt_cli.translating.segmentation.segments import Output, Span
from nmt_cli.translating.segmentation.too_long import lacks_sentences

if TYPE_CHECKING:
    from nmt_cli.parsing.linearization import Linearization
    from nmt_cli.parsing.tree_output import TreeText
    from nmt_cli.search.rules.well_formed_trees import WellFormedTrees

Choice = Sequence[Sequence[Hypothesis]]  # an output for each part of each segment


class TranslationBuilder:
    """Joins the outputs for the parts of a line, and reads trees from them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: ModelSettings,
        length_penalty: float,
        options: TranslatorOptions,
        trees: WellFormedTrees | None = None,
    ) -> None:
        """``trees`` is the rule of the search if it allows only trees.

        Raises UserError if an option does not suit the model.
        """
        self._tokenizer, self.keep_pieces = tokenizer, options.keep_pieces
        self.known_text = KnownText(
            tokenizer, folds=settings.text.normalization.fold, characters=settings.characters
        )
        self._length_penalty, self._settings = length_penalty, settings.text
        self._banned: tuple[Sequence[TargetPhrase], list[str]] = (), []  # phrases and their texts
        self._form, self._trees = settings.trees, trees
        if options.alignments and settings.trees is not None:
            raise UserError(
                "--alignments are between the words of a line and those of its translation; this "
                "model writes trees."
            )
        if options.choose == "mbr" and settings.trees is not None:
            raise UserError("--choose mbr compares texts, but this model writes trees.")
        self._alignments, self._choose = options.alignments, options.choose
        self._are_samples = options.sampling is not None
        self._replaces_unknown = options.replace_unknown
        if options.replace_unknown and not isinstance(tokenizer, WhitespaceTokenizer):
            raise UserError(
                "--replace-unknown is for models of text in pieces (tokenizer.type whitespace); "
                "this one can write any word."
            )

    def build(self, job: LineJob, found: Sequence[tuple[Hypothesis, ...]]) -> Translation:
        """Return the translation of a line whose parts have the hypotheses ``found``.

        The n best are the choices of an output for each segment whose scores have the greatest
        sums. The k-th best output of a segment joins the k-th best of each of its parts, or the
        part's last; so do the k-th samples of a line. If they are chosen by their agreement, the
        k-th best outputs of all segments are joined.
        """
        layout, wanted = job.layout, job.wanted
        sizes = list(map(len, job.parts_of_each))
        noted: dict[str, Any] = {
            "drops_invisible": any(self.known_text.drops_from(part.text) for part in job.parts),
            "copies_unseen": any(map(_is_unseen, job.sources)),
            "memory": tuple(job.matches),
            "is_joined": layout.is_cut,
            "splits_by_default": layout.is_by_default,
        }
        if not found:  # all segments are kept
            nothing: list[tuple[()]] = [()] * len(sizes)
            outputs = self._outputs(job, nothing)
            links = self._links(job, nothing, outputs)
            return Translation(layout.filled(outputs), alignment=links, **noted)
        rankings = [list(kth_of_each(each)) for each in in_groups(found, sizes)]
        is_by_agreement = (wanted.request.choose or self._choose) == "mbr"
        if is_by_agreement:
            both = zip(rankings, job.parts_of_each, strict=True)
            rankings = [self._by_agreement(*each) for each in both]
        are_chosen = layout.is_cut and not self._are_samples and not is_by_agreement
        alternatives, are_few = list[Alternative](), False
        score = partial(self._score, alpha=wanted.request.length_penalty)
        choices = best_sums(rankings, wanted.n_best, score) if are_chosen else kth_of_each(rankings)
        for choice in choices:
            outputs = self._outputs(job, choice)
            if not alternatives and self._form is None:  # the best
                texts = zip(job.sources, outputs, strict=True)
                are_few = any(lacks_sentences(source.text, out.text) for source, out in texts)
            alternatives.append(self._alternative(job, choice, outputs))
        best, *others = alternatives
        return Translation(
            **vars(best),
            alternatives=tuple(others),
            num_parts=1 + sum(max(0, size - 1) for size in sizes),
            truncated=job.truncated,
            lacks_sentences=are_few,
            **noted,
        )

    def _links(self, job: LineJob, choice: Choice, outputs: Sequence[Output]) -> Links:
        """Return the links of the words of a line, if they are asked for."""
        if not (self._alignments or job.wanted.request.alignments):
            return ()
        every = attended_words.links_of_segments(job, choice, self._have_pieces)
        joiner = self._settings.joiner
        with_runs = (
            attended_words.with_links_of_runs(of_segment, source, output, joiner)
            if output.insertions
            else of_segment
            for of_segment, source, output in zip(every, job.sources, outputs, strict=True)
        )
        return attended_words.joined_links(with_runs).links

    def _have_pieces(self, text: str) -> list[bool]:
        """Return for each word of ``text`` whether it has pieces; an invisible one may not."""
        return [
            not is_blank(word) or bool(self._tokenizer.encode(self.known_text(word)))
            for word in joined_pieces(text, self._settings.joiner).split()
        ]

    def _score(self, hypotheses: Sequence[Hypothesis], alpha: float | None) -> float:
        """Return the score of outputs for the parts of a segment together."""
        length = sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses)
        alpha = self._length_penalty if alpha is None else alpha
        return _log_probability(hypotheses) / length_penalty(length, alpha)

    def _by_agreement(
        self, ranking: Sequence[list[Hypothesis]], parts: Sequence[Part]
    ) -> list[list[Hypothesis]]:
        """Return the outputs for a segment, the one that agrees most with all of them first.

        Each sample counts once, and other outputs as much as the model finds them probable.
        """
        texts = [self._joined(map(self._part, hypotheses, parts), parts) for hypotheses in ranking]
        logs = list(map(_log_probability, ranking))
        weights = [1.0 if self._are_samples else math.exp(each - max(logs)) for each in logs]
        return [ranking[place] for place in by_agreement(texts, weights)]

    def _outputs(self, job: LineJob, choice: Choice) -> list[Output]:
        """Return the translation of each segment with the runs that the model does not get."""
        outputs = list[Output]()
        of_segments = zip(choice, job.sources, job.layout.need_spans, strict=True)
        for place, (hypotheses, source, has_spans) in enumerate(of_segments):
            output = self._output(job, place, hypotheses, has_spans)
            if source.runs and not source.is_kept:
                runs, least = self._runs(source, output.text, job.wanted, is_first=not outputs)
                output = place_runs(source.source, runs, output, least)
            outputs.append(output)
        return outputs

    def _runs(
        self, source: ProtectedText, output: str, wanted: Wanted, *, is_first: bool
    ) -> tuple[list[UnseenRun], int]:
        """Return the runs of ``source`` that ``output`` shall have, and where they may begin.

        The prefix comes before them, and those that it has, or that are required or banned, are
        not put into the output.
        """
        prefix = self._tokenizer.decode(wanted.prefix[0].ids) if wanted.prefix and is_first else ""
        is_forced = bool(wanted.prefix or wanted.required or wanted.glossary)
        there, runs = Counter[str](), list[UnseenRun]()
        for run in source.runs:
            text = run.text_in(source.source)
            there[text] += 1
            has_one = is_forced and output.count(text) >= there[text]
            if not has_one and not self.has_banned(text, wanted):
                runs.append(run)
        return runs, len(prefix) if output.startswith(prefix) else 0

    def has_banned(self, text: str, wanted: Wanted) -> bool:
        """Return whether a phrase that a line bans is in ``text``."""
        phrases, banned = self._banned
        if wanted.banned is not phrases:  # lines that follow each other often ban the same
            texts = (self._tokenizer.decode(phrase.ids).strip() for phrase in wanted.banned)
            banned = [each for each in texts if each]
            self._banned = wanted.banned, banned
        return any(_has_phrase(text, each) for each in banned)

    def _output(
        self, job: LineJob, place: int, hypotheses: Sequence[Hypothesis], has_spans: bool
    ) -> Output:
        """Return the translation of the segment at ``place``; ``has_spans`` if asked for."""
        source, parts = job.sources[place], job.parts_of_each[place]
        if source.known is not None:
            return Output(one_line(source.known))
        if source.is_kept:
            return self._kept(source.source)
        texts = [self._part(*each) for each in zip(hypotheses, parts, strict=True)]
        if self._form is not None and not self.keep_pieces:
            from nmt_cli.parsing.tree_output import tree_of

            exact = self._exact_tree(self._form, hypotheses, job.words)
            tree, repairs = exact or tree_of(texts, job.words, self._form)
            return Output(one_line(tree), repairs=repairs)
        whole = one_line(self._joined(texts, parts))
        if not (has_spans or source.needs_attention):
            return Output(whole)
        spans, written, read = list[Span](), 0, 0
        for hypothesis, part, text in zip(hypotheses, parts, texts, strict=True):
            written += len(part.separator) if written else 0
            read = max(read, source.text.find(part.text, read))
            of_part = attended_words.unit_spans(
                hypothesis,
                self._tokenizer.pieces(hypothesis.tokens),
                self._tokenizer.pieces(part.tokens, "source"),
                self._settings,
                part.text,
                partial(self._part, part=part),
            )
            places = source.source_place, source.source_end
            spans += [span.moved(written, read, *places) for span in of_part]
            written, read = written + len(text), read + len(part.text)
        return Output(whole, spans)

    def _kept(self, source: str) -> Output:
        """Return a segment as its own translation."""
        text = one_line(joined_pieces(source, self._settings.joiner))
        if len(text) != len(source):  # pieces of words were joined
            return Output(text)
        # Each character has a span, because a tag may be within a word, as in 10<sup>3</sup>.
        places = (place for place, each in enumerate(text) if not each.isspace())
        return Output(text, [Span(place, place + 1, place, place + 1) for place in places])

    def _alternative(self, job: LineJob, choice: Choice, outputs: Sequence[Output]) -> Alternative:
        hypotheses = list(chain.from_iterable(choice))
        return Alternative(
            job.layout.filled(outputs),
            sum(self._score(each, job.wanted.request.length_penalty) for each in choice),
            tuple(chain.from_iterable(self._tokenizer.pieces(each.tokens) for each in hypotheses)),
            outputs[0].repairs,
            _log_probability(hypotheses),
            tuple(chain.from_iterable(each.token_scores for each in hypotheses)),
            self._links(job, choice, outputs),
            _not_copied(job.sources, outputs),
        )

    def _joined(self, texts: Iterable[str], parts: Sequence[Part]) -> str:
        """Return the texts of all parts with what separates the parts."""
        whole = ""
        for text, part in zip(texts, parts, strict=True):
            if whole:
                whole += " " if self.keep_pieces else part.separator
            whole += text
        return whole

    def _part(self, hypothesis: Hypothesis, part: Part) -> str:
        text_of = partial(self._without_copies, part=part)
        if not part.copies:
            return text_of(hypothesis)
        return attended_words.with_copies(self._tokenizer, hypothesis, part, text_of)

    def _without_copies(self, hypothesis: Hypothesis, part: Part) -> str:
        """Return the text of an output, with source words for each ``<unk>`` if that is asked for.

        Each of these is replaced by the word that it attends to most.
        """
        tokenizer, keep_pieces = self._tokenizer, self.keep_pieces
        if not self._replaces_unknown or tokenizer.unk_id not in hypothesis.tokens:
            return tokenizer.decode(hypothesis.tokens, keep_pieces=keep_pieces)
        assert hypothesis.attended is not None, "the search was not asked for attention"
        pieces, words = tokenizer.pieces(hypothesis.tokens), self._words(part)
        for place, token in enumerate(hypothesis.tokens):
            if token == tokenizer.unk_id:
                pieces[place] = words[hypothesis.attended.tokens[place]]
        text = " ".join(pieces)
        return text if keep_pieces else joined_pieces(text, self._settings.joiner)

    def _words(self, part: Part) -> list[str]:
        """Return for each piece of the source the word that it is part of."""
        assert isinstance(self._tokenizer, WhitespaceTokenizer)
        pieces = self._tokenizer.split(self.known_text(part.text))[: len(part.tokens)]
        joiner = self._settings.joiner
        numbers = [number for (number,) in words_of_pieces(pieces, self._settings)]
        words = [""] * (1 + max(numbers, default=-1))
        for piece, number in zip(pieces, numbers, strict=True):
            words[number] += piece if joiner is None else piece.removesuffix(joiner)
        return [words[number] for number in numbers]

    def _exact_tree(
        self, form: Linearization, hypotheses: Sequence[Hypothesis], words: Sequence[str]
    ) -> TreeText | None:
        """Return the tree of an output with exactly the pieces of ``words``, read without them."""
        if self._trees is None or len(hypotheses) > 1:
            return None
        symbols = self._trees.brackets_and_tags(hypotheses[0].tokens, words)
        if symbols is None:
            return None
        from nmt_cli.parsing.tree_output import tree_of

        return tree_of([self._tokenizer.decode(symbols)], words, replace(form, words="dropped"))


def _is_unseen(source: ProtectedText) -> bool:
    """Return whether a segment is kept, and has letters that the model never saw."""
    runs = (source.source[run.begin : run.end] for run in source.runs if run.text is None)
    return source.is_kept and any(map(has_letters, runs))


def _not_copied(sources: Sequence[ProtectedText], outputs: Sequence[Output]) -> tuple[str, ...]:
    """Return the texts that some output has more or less often than its source."""
    each = zip(sources, outputs, strict=True)
    texts = (text for source, output in each for text in source.not_copied(output.text))
    return tuple(dict.fromkeys(texts))


def _log_probability(hypotheses: Sequence[Hypothesis]) -> float:
    return sum(hypothesis.log_probability for hypothesis in hypotheses)


def best_sums(
    rankings: Sequence[Sequence[Item]], most: int, score_of: Callable[[Item], float]
) -> Iterator[list[Item]]:
    """Yield the ``most`` choices of one of each ranking with the greatest sums of scores.

    Every ranking has its best first, and so have the choices.
    """
    best: list[tuple[float, Any]] = [(0.0, None)]  # the sum, and a list linked from its end
    for ranking in rankings:
        scored = [(score_of(each), each) for each in ranking]
        sums = [
            (before + score, (chosen, each))
            for place, (before, chosen) in enumerate(best, 1)
            for score, each in scored[: most // place]  # later ones have as many better ones before
        ]
        best = sorted(sums, key=lambda found: found[0], reverse=True)[:most]
    for _, chosen in best:
        choice = []
        while chosen is not None:
            chosen, each = chosen
            choice.append(each)
        yield choice[::-1]


def _has_phrase(text: str, phrase: str) -> bool:
    """Return whether ``phrase`` is in ``text``, and not a part of its words alone."""
    places = (match.span() for match in re.finditer(re.escape(phrase), text))
    return any(is_border(text, begin) and is_border(text, end) for begin, end in places)
