"""Labelled bracket precision and recall of trees (PARSEVAL), counted as EVALB counts.

Black et al., 1991; EVALB is the program of Sekine and Collins, whose figures the literature quotes.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from typing import NamedTuple

from nmt_cli.messages.figures import counted
from nmt_cli.parsing.parseval_parameters import Parameters, default_parameters
from nmt_cli.parsing.tree import CLOSING_BRACKETS, bracket_tokens

FUNCTION = re.compile("[-=].*")  # EVALB keeps the second choice of a label, such as ADVP|PRT


class Bracket(NamedTuple):
    """A constituent: its label and the words from ``start`` to before ``end``."""

    label: str
    start: int
    end: int


@dataclass
class Brackets:
    """What counts of the tree of a line."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)  # of each word
    constituents: list[Bracket] = field(default_factory=list)
    length: int = 0  # words, also of those that do not count


class UnreadableTreeError(ValueError):
    """The text is not a sequence of trees. The message states why."""


@dataclass
class _Begun:
    """A bracket that is open."""

    start: int  # number of words before it
    texts: list[str] = field(default_factory=list)  # label, or tag and word
    has_brackets: bool = False


def read_brackets(text: str, parameters: Parameters) -> Brackets:
    """Return the words and constituents of one sentence that count.

    The text may be empty or several trees, and brackets may be empty. Words with a deleted tag do
    not count, nor do constituents with a deleted label, without label or without words that count.
    Functions are cut from the labels of constituents, not from tags.

    Raises UnreadableTreeError if brackets are not balanced or words are not (TAG word).
    """
    found = Brackets()
    open_brackets: list[_Begun] = []
    for token in bracket_tokens(text):
        if token == "(":
            if open_brackets:
                _take_bracket(open_brackets[-1])
            open_brackets.append(_Begun(len(found.words)))
        elif not open_brackets:
            problem = "a closing bracket too many" if token == ")" else f"{token} has no brackets"
            raise UnreadableTreeError(problem)
        elif token == ")":
            _close(open_brackets.pop(), found, parameters)
        else:
            _take_text(open_brackets[-1], token)
    if open_brackets:
        raise UnreadableTreeError(f"{counted(len(open_brackets), *CLOSING_BRACKETS)} missing")
    return found


def _take_bracket(parent: _Begun) -> None:
    if len(parent.texts) > 1:
        raise UnreadableTreeError(f"a label has a space: ({' '.join(parent.texts)} (")
    parent.has_brackets = True


def _take_text(begun: _Begun, text: str) -> None:
    if begun.has_brackets or len(begun.texts) == 2:
        raise UnreadableTreeError(f"{text} has no brackets of its own; a word is (TAG word)")
    begun.texts.append(text)


def _close(begun: _Begun, found: Brackets, parameters: Parameters) -> None:
    if len(begun.texts) == 2:
        tag, word = begun.texts
        found.length += tag not in parameters.deleted_labels_for_length
        if tag not in parameters.deleted_labels:
            found.words.append(word)
            found.tags.append(tag)
    elif begun.texts and begun.start < len(found.words):
        label = FUNCTION.sub("", begun.texts[0])
        if label not in parameters.deleted_constituents:
            found.constituents.append(Bracket(label, begun.start, len(found.words)))


class Status(IntEnum):
    """Whether a sentence counts, as in EVALB's column ``Stat.``."""

    VALID = 0
    ERROR = 1  # the two trees have different words, or the predicted one cannot be read
    SKIPPED = 2  # the predicted tree has no word that counts


class SentenceScore(NamedTuple):
    """The counts of one sentence; all but ``length`` are 0 if the sentence is not valid."""

    length: int  # words of the gold tree
    status: Status
    problem: str = ""  # why the sentence is not valid
    matched: int = 0  # constituents that both trees have
    gold: int = 0  # constituents of the gold tree
    predicted: int = 0
    crossing: int = 0  # predicted constituents that cross one of the gold tree
    words: int = 0
    correct_tags: int = 0

    @property
    def recall(self) -> float:
        """Percent of the gold tree's constituents."""
        return percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """Percent of the predicted tree's constituents."""
        return percent(self.matched, self.predicted)

    @property
    def tagging_accuracy(self) -> float:
        """Percent of the words."""
        return percent(self.correct_tags, self.words)


SUMMED = ("matched", "gold", "predicted", "crossing", "words", "correct_tags")


class CorpusScore(NamedTuple):
    """The score of many sentences. Counts and percentages are those of the valid sentences."""

    sentences: int
    errors: int
    skipped: int
    valid: int
    recall: float  # percent, like the others
    precision: float
    f1: float
    complete_match: float
    average_crossing: float  # crossing constituents per sentence
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float
    matched: int
    gold: int
    predicted: int
    crossing: int
    words: int
    correct_tags: int


def score_sentence(
    predicted: Brackets | str, gold: Brackets, parameters: Parameters
) -> SentenceScore:
    """Compare two trees; ``predicted`` is a message if the predicted tree cannot be read.

    EVALB counts such a sentence as an error. This is right as long as each line is one sentence,
    so that the error cannot move other sentences.
    """
    status, problem = _status(predicted, gold, parameters)
    if isinstance(predicted, str) or status != Status.VALID:
        return SentenceScore(gold.length, status, problem)
    return SentenceScore(
        gold.length,
        status,
        matched=_count_matches(predicted.constituents, gold.constituents, parameters),
        gold=len(gold.constituents),
        predicted=len(predicted.constituents),
        crossing=count_crossing(predicted.constituents, gold.constituents, len(gold.words)),
        words=len(gold.words),
        correct_tags=sum(map(parameters.are_equal_labels, gold.tags, predicted.tags)),
    )


def score_corpus(sentences: Iterable[SentenceScore]) -> CorpusScore:
    """Return the sums and averages over ``sentences``; what would be 0 / 0 is 0."""
    every = list(sentences)
    valid = [sentence for sentence in every if sentence.status == Status.VALID]
    num_errors = sum(sentence.status == Status.ERROR for sentence in every)
    matched, gold, predicted, crossing, words, correct_tags = sums = [
        sum(getattr(sentence, name) for sentence in valid) for name in SUMMED
    ]
    complete = sum(sentence.matched == sentence.gold == sentence.predicted for sentence in valid)
    return CorpusScore(
        sentences=len(every),
        errors=num_errors,
        skipped=len(every) - num_errors - len(valid),
        valid=len(valid),
        recall=percent(matched, gold),
        precision=percent(matched, predicted),
        f1=percent(2 * matched, gold + predicted),
        complete_match=percent(complete, len(valid)),
        average_crossing=crossing / len(valid) if valid else 0.0,
        no_crossing=percent(sum(s.crossing == 0 for s in valid), len(valid)),
        two_or_less_crossing=percent(sum(s.crossing <= 2 for s in valid), len(valid)),
        tagging_accuracy=percent(correct_tags, words),
        **dict(zip(SUMMED, sums, strict=True)),
    )


def percent(part: int, whole: int) -> float:
    """Return 100 * part / whole; 0 if ``whole`` is 0."""
    return 100 * part / whole if whole else 0.0


def count_crossing(predicted: Iterable[Bracket], gold: Iterable[Bracket], num_words: int) -> int:
    """Return how many ``predicted`` constituents overlap one of ``gold`` without nesting.

    The gold constituents around a boundary between two words are nested, so the innermost one
    decides for each end of a predicted constituent.
    """
    innermost: list[Bracket | None] = [None] * (num_words + 1)  # around each boundary
    waiting = sorted(gold, key=lambda bracket: (-bracket.start, bracket.end))
    around: list[Bracket] = []
    for boundary in range(1, num_words):
        while waiting and waiting[-1].start < boundary:
            around.append(waiting.pop())
        while around and around[-1].end <= boundary:
            around.pop()
        innermost[boundary] = around[-1] if around else None
    num_crossing = 0
    for _, start, end in predicted:
        at_start, at_end = innermost[start], innermost[end]
        num_crossing += (at_start is not None and at_start.end < end) or (
            at_end is not None and at_end.start > start
        )
    return num_crossing


def _status(
    predicted: Brackets | str, gold: Brackets, parameters: Parameters
) -> tuple[Status, str]:
    if isinstance(predicted, str):
        return Status.ERROR, predicted
    if not predicted.words:
        return Status.SKIPPED, "the predicted tree has no word that counts"
    if len(gold.words) != len(predicted.words):
        return Status.ERROR, (
            f"words whose tags are not deleted: {len(predicted.words):,} in the predicted tree, "
            f"{len(gold.words):,} in the gold tree"
        )
    for ours, theirs in zip(predicted.words, gold.words, strict=True):
        if not parameters.are_equal_words(theirs, ours):
            return Status.ERROR, f"the predicted tree has {ours!r}, the gold tree {theirs!r}"
    return Status.VALID, ""


def _count_matches(
    predicted: Sequence[Bracket], gold: Sequence[Bracket], parameters: Parameters
) -> int:
    """Return the number of pairs; each constituent is in one pair at most.

    A gold constituent matches the first predicted one that is equal, as in EVALB.
    """
    if not parameters.is_labeled:
        predicted, gold = (
            [bracket._replace(label="") for bracket in each] for each in (predicted, gold)
        )
    unmatched: dict[Bracket, deque[int]] = defaultdict(deque)  # places among the predicted ones
    for place, bracket in enumerate(predicted):
        unmatched[bracket].append(place)
    equal = {label: parameters.labels_equal_to(label) for label in {each.label for each in gold}}
    num_matches = 0
    for bracket in gold:
        fitting = [bracket._replace(label=label) for label in equal[bracket.label]]
        places = [unmatched[each] for each in fitting if unmatched.get(each)]
        if places:
            min(places, key=itemgetter(0)).popleft()
            num_matches += 1
    return num_matches


def score_trees(predicted: Sequence[str], golds: Sequence[str]) -> CorpusScore:
    """Return the score of ``predicted`` trees against gold trees; line n of both is sentence n.

    Raises UnreadableTreeError if a line of either is not a tree.
    """
    rules = default_parameters()
    return score_corpus(
        score_sentence(read_brackets(ours, rules), read_brackets(theirs, rules), rules)
        for ours, theirs in zip(predicted, golds, strict=True)
    )
