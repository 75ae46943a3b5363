"""Turns the outputs of the search into the translation of a line."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from nmt_cli.corpus.lines import one_line
from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.decoding.beams import Hypothesis, length_penalty
from nmt_cli.decoding.over_long import Part
from nmt_cli.decoding.rules.well_formed_trees import WellFormedTrees
from nmt_cli.decoding.translation import Alternative, Translation
from nmt_cli.decoding.tree_output import TreeText, tree_of
from nmt_cli.decoding.unknown_words import UnknownWords
from nmt_cli.decoding.word_alignment import WordAligner
from nmt_cli.trees.linearization import Linearization
from nmt_cli.trees.repair import Repairs


class Trees(NamedTuple):
    """How a model that parses writes trees, and the rule of the search if it allows only trees."""

    form: Linearization
    rule: WellFormedTrees | None


class Answers:
    """Joins the outputs for the parts of a line, and reads trees from them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        length_penalty: float,
        *,
        keep_pieces: bool,
        trees: Trees | None,
        aligner: WordAligner | None,
        unknown_words: UnknownWords | None,
    ) -> None:
        self._tokenizer, self._alpha, self._keep_pieces = tokenizer, length_penalty, keep_pieces
        self._trees, self._aligner, self._unknown_words = trees, aligner, unknown_words

    def joined(
        self,
        parts: Sequence[Part],
        words: Sequence[str],
        found: Sequence[tuple[Hypothesis, ...]],
        *,
        truncated: bool,
    ) -> Translation:
        """Return the translation of a line whose ``parts`` have the hypotheses ``found``.

        Its k-th best joins the k-th best of each part, or the part's last. ``words`` are the leaves
        of its tree. ``truncated`` is whether the line was cut.
        """
        num_ranks = max(map(len, found))
        ranking = [
            self._alternative([each[min(k, len(each) - 1)] for each in found], parts, words)
            for k in range(num_ranks)
        ]
        return Translation.of(ranking, num_parts=len(found), truncated=truncated)

    def _alternative(
        self, hypotheses: Sequence[Hypothesis], parts: Sequence[Part], words: Sequence[str]
    ) -> Alternative:
        text, repairs = self._text(hypotheses, parts, words)
        log_probability = sum(hypothesis.log_probability for hypothesis in hypotheses)
        length = sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses)
        return Alternative(
            one_line(text),
            log_probability / length_penalty(length, self._alpha),
            tuple(chain.from_iterable(self._tokenizer.pieces(each.tokens) for each in hypotheses)),
            repairs,
            log_probability,
            tuple(chain.from_iterable(hypothesis.token_scores for hypothesis in hypotheses)),
            self._aligner.align(hypotheses, parts) if self._aligner is not None else (),
        )

    def _text(
        self, hypotheses: Sequence[Hypothesis], parts: Sequence[Part], words: Sequence[str]
    ) -> tuple[str, Repairs | None]:
        texts = [self._part(*each) for each in zip(hypotheses, parts, strict=True)]
        if self._trees is not None and not self._keep_pieces:
            return self._exact_tree(self._trees, hypotheses, words) or tree_of(
                texts, words, self._trees.form
            )
        whole = ""
        for text, part in zip(texts, parts, strict=True):
            if whole:
                whole += " " if self._keep_pieces else part.separator
            whole += text
        return whole, None

    def _part(self, hypothesis: Hypothesis, part: Part) -> str:
        if self._unknown_words is not None:
            return self._unknown_words.replaced(hypothesis, part, keep_pieces=self._keep_pieces)
        return self._tokenizer.decode(hypothesis.tokens, keep_pieces=self._keep_pieces)

    def _exact_tree(
        self, trees: Trees, hypotheses: Sequence[Hypothesis], words: Sequence[str]
    ) -> TreeText | None:
        """Return the tree of an output with exactly the pieces of ``words``, read without them."""
        if trees.rule is None or len(hypotheses) > 1:
            return None
        symbols = trees.rule.brackets_and_tags(hypotheses[0].tokens, words)
        if symbols is None:
            return None
        form = replace(trees.form, words="dropped")
        return tree_of([self._tokenizer.decode(symbols)], words, form)
