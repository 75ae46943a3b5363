"""The search of well-formed trees, against all well-formed trees that enumeration finds."""

import math
import random
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.parsing.labels import Labels
from nmt_cli.parsing.linearization import Tag
from nmt_cli.parsing.tree import Close, Open
from nmt_cli.parsing.tree_output import known_tags, tree_of
from nmt_cli.search.rules.rule import SlotStates
from nmt_cli.search.rules.tree_pieces import TreePieces, TreeWords
from nmt_cli.search.rules.well_formed_trees import WellFormedTrees
from nmt_cli.search.search import Search
from nmt_cli.search.sentences import Sentence
from nmt_cli.search.torch_logits import TorchLogits
from tests.fake_models import EOS, TableModel
from tests.random_trees import linearization
from tests.table_search import log_probability, random_table, search, settings

SPACE = 3
WORDS = ["rain", ",", "%", "falls"]
KNOWN = Labels(frozenset("AB"), frozenset("tu"))
MARKS = Labels(frozenset("A"), frozenset({"t", ",", "."}))
FORMS = {
    "typed": (linearization(KNOWN), ["(A", ")A", "(B", ")B", "<t>"]),
    "plain": (
        linearization(notation="brackets", tags="XX", closing="plain"),
        ["XX", "(A", ")", "(B"],
    ),
    "deep": (linearization(KNOWN), ["<t>", ")A", "(A"]),
    "tags": (linearization(KNOWN), ["(A", "<u>", ")A", "<t>"]),
    "marks": (linearization(MARKS), ["<t>", "(A", "<.>", ")A", "<,>"]),
}
# With words, which are spelt in one piece, two, none, and as an unknown word.
FORMS["words"] = (linearization(KNOWN, words="kept"), ["(A", ")A", "<t>", "(B", ")B"])
FORMS["unlabelled"] = (
    linearization(notation="brackets", tags="XX", closing="plain", words="kept"),
    ["(A", ")", "XX"],
)
SPELLED = {"rain": (4,), ",": (7, 4), "%": (), "falls": (0,)}
SPACINGS = {"none": (None, 1), "first": (SPACE, 1), "each": (SPACE, 2)}


class Toy:
    """A notation, and a vocabulary with other pieces before, between and behind its symbols."""

    def __init__(self, name, spacing="none"):
        self.form, symbols = FORMS[name]
        self.tokens = ["<unk>", "<s>", "</s>", "\u2581", "no", *symbols[:2], "tree", *symbols[2:]]
        self.ids = [self.tokens.index(symbol) for symbol in symbols]
        read: dict[int, Any] = {token: self.form.read(self.tokens[token]) for token in self.ids}
        self.pieces = TreePieces(read, *SPACINGS[spacing])
        self.spacing = spacing
        tags = known_tags(self.form)
        self.has_words = self.form.words == "kept"
        speller: Any = Speller(read)
        words = TreeWords(speller, read) if self.has_words else None
        self.rule = WellFormedTrees(self.pieces, len(self.tokens), EOS, tags, words)

    def sentence(self, number, num_words, longest):
        leaves = self.rule.leaves(words_of(num_words))
        return Sentence((number, EOS), longest, {WellFormedTrees.name: leaves})

    def search(self, logits, sentences, settings, num_slots=3):
        """Return the hypotheses of each sentence, in order."""
        return search(logits, sentences, settings, num_slots, [self.rule])

    def spaced(self, symbols, num_words):
        """Return the pieces of a text of these symbols."""
        if self.has_words:
            return self.with_words(symbols, [SPELLED[word] for word in words_of(num_words)])
        if self.spacing == "each":
            return tuple(piece for symbol in symbols for piece in (SPACE, symbol))
        return (SPACE, *symbols) if self.spacing == "first" and symbols else tuple(symbols)

    def with_words(self, symbols, words):
        """Return the pieces with those of a word behind each tag, as far as there are words."""
        left = iter(words)
        is_tag = {piece: isinstance(self.pieces.symbols[piece], Tag) for piece in self.ids}
        return tuple(p for s in symbols for p in (s, *(next(left, ()) if is_tag[s] else ())))

    def is_tree(self, pieces, num_words):
        """Return whether these pieces are a text of a tree that needs no repair."""
        symbols = [piece for piece in pieces if piece in self.ids]
        if tuple(pieces) != self.spaced(symbols, num_words):
            return False
        tokens = [self.tokens[symbol] for symbol in symbols]
        if self.has_words:
            words = [(word,) for word in words_of(num_words)]
            tokens = [
                self.tokens[p] if p in self.ids else p for p in self.with_words(symbols, words)
            ]
        _, repairs = tree_of([self.form.join(tokens)], words_of(num_words), self.form)
        return not repairs.total()


class Speller:
    """The part of a tokenizer that spells words; one looks like a bracket."""

    unk_id = 0

    def __init__(self, symbols):
        self.bracket = next(iter(symbols))

    def encode_batch(self, words, side):
        spelled = {**SPELLED, "falls": (4, self.bracket)}
        return [list(spelled[word]) for word in words]


def words_of(num_words):
    return (WORDS * num_words)[:num_words]


@cache
def all_trees(name, spacing, num_words, longest):
    """Return the pieces of every tree of so many words and at most ``longest`` pieces."""
    toy = Toy(name, spacing)
    most = longest // 2 if spacing == "each" else longest
    if toy.has_words:
        most -= sum(len(SPELLED[word]) for word in words_of(num_words))
    texts = (
        toy.spaced(symbols, num_words)
        for length in range(most + 1)
        for symbols in product(toy.ids, repeat=length)
    )
    return [text for text in texts if len(text) <= longest and toy.is_tree(text, num_words)]


CASES = [
    ("typed", "none", 1, 5),
    ("typed", "none", 2, 6),
    ("typed", "first", 1, 6),
    ("plain", "none", 3, 6),
    ("plain", "each", 1, 10),
    ("deep", "none", 2, 8),
    ("tags", "none", 3, 6),
    ("tags", "first", 1, 5),
    ("marks", "none", 3, 6),
    ("tags", "each", 2, 11),
    ("words", "none", 1, 6),
    ("words", "none", 2, 8),
    ("unlabelled", "none", 3, 10),
]


@pytest.mark.parametrize(("name", "spacing", "num_words", "longest"), CASES)
def test_exactly_the_beginnings_of_trees_are_allowed(name, spacing, num_words, longest):
    toy = Toy(name, spacing)
    trees = all_trees(name, spacing, num_words, longest)
    texts = {(*tree, EOS) for tree in trees}
    assert len(trees) > 1
    followers: dict[tuple[int, ...], set[int]] = {}
    for text in texts:
        for length in range(len(text)):
            followers.setdefault(text[:length], set()).add(text[length])
    beginnings = sorted(followers, key=len)
    prefixes = np.full((len(beginnings), 1, longest), toy.ids[0])  # behind the lengths: anything
    for row, beginning in enumerate(beginnings):
        prefixes[row, 0, : len(beginning)] = beginning
    logits = torch.zeros(len(beginnings), len(toy.tokens))
    everywhere = np.ones(len(beginnings), np.int64)
    states = SlotStates(
        prefixes,
        np.array([len(beginning) for beginning in beginnings]),
        everywhere * longest,
        dict.fromkeys(range(len(beginnings)), toy.rule.leaves(words_of(num_words))),
    )
    restriction = toy.rule.restriction(states)
    assert restriction is not None
    TorchLogits(logits).restrict(restriction)
    for row, beginning in enumerate(beginnings):
        allowed = set(logits[row].isfinite().nonzero().flatten().tolist())
        assert allowed == followers[beginning], beginning


@pytest.mark.usefixtures("searched_by")
@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize(("name", "spacing", "num_words", "longest"), CASES)
def test_a_wide_beam_finds_the_best_of_all_trees(name, spacing, num_words, longest, alpha):
    toy = Toy(name, spacing)
    logits = random_table(len(toy.tokens))
    ranked = []
    for tree in all_trees(name, spacing, num_words, longest):
        total = log_probability(logits, (7, EOS), tree)
        ranked.append((total / ((5 + len(tree) + 1) / 6) ** alpha, tree))
    ranked.sort(reverse=True)
    sentence = toy.sentence(7, num_words, longest)
    n_best = min(4, len(ranked))
    (hypotheses,) = toy.search(logits, [sentence], settings(200, alpha, n_best))
    assert [hypothesis.tokens for hypothesis in hypotheses] == [tree for _, tree in ranked[:n_best]]
    assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
        [score for score, _ in ranked[:n_best]], abs=1e-4
    )


@pytest.mark.usefixtures("searched_by")
def test_beam_one_is_greedy_among_the_beginnings_of_trees():
    toy = Toy("typed")
    logits = random_table(len(toy.tokens))
    for number in range(20):
        texts = [(*tree, EOS) for tree in all_trees("typed", "none", 2, 6)]
        prefix: tuple[int, ...] = ()
        while prefix[-1:] != (EOS,):
            values = logits((number, EOS), prefix).tolist()
            texts = [text for text in texts if text[: len(prefix)] == prefix]
            prefix = (*prefix, max({text[len(prefix)] for text in texts}, key=values.__getitem__))
        ((hypothesis,),) = toy.search(logits, [toy.sentence(number, 2, 6)], settings(1))
        assert (*hypothesis.tokens, EOS) == prefix


def random_sentences(toy, rng, count):
    sentences = []
    for number in range(count):
        num_words = rng.randrange(1, 9)
        shortest = toy.rule.shortest_output(toy.rule.leaves(words_of(num_words)))
        longest = shortest + rng.choice([0, 1, 2, 12])
        sentences.append(toy.sentence(number, num_words, longest))
    return sentences


@pytest.mark.usefixtures("searched_by")
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    ("name", "spacing"), [*product(FORMS, ["none"]), *product(["typed"], SPACINGS)]
)
def test_every_output_of_random_logits_is_a_tree(name, spacing, beam_size):
    toy = Toy(name, spacing)
    rng = random.Random(beam_size)
    sentences = random_sentences(toy, rng, 6)
    logits = random_table(len(toy.tokens))
    chosen = settings(beam_size, n_best=beam_size)
    together = toy.search(logits, sentences, chosen, num_slots=4)
    for sentence, hypotheses in zip(sentences, together, strict=True):
        assert hypotheses
        assert [hypotheses] == toy.search(logits, [sentence], chosen)
        for hypothesis in hypotheses:
            num_words = len(sentence.rule_data[WellFormedTrees.name].kinds)
            assert toy.is_tree(hypothesis.tokens, num_words)
            assert len(hypothesis.tokens) <= sentence.longest_output
            source = tuple(sentence.tokens)
            total = log_probability(logits, source, hypothesis.tokens)
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-3)


def test_brackets_that_open_forever_are_closed_in_time():
    toy = Toy("typed")

    def opens(source, prefix):
        row = torch.zeros(len(toy.tokens))
        row[toy.tokens.index("(B")] = 30.0
        return row

    ((hypothesis,),) = toy.search(opens, [toy.sentence(1, 3, 20)], settings(1))
    assert toy.is_tree(hypothesis.tokens, 3)
    assert hypothesis.tokens.count(toy.tokens.index("(B")) == 8  # (20 - 3 words) / 2 brackets


def test_a_word_that_no_tag_fits_may_have_every_tag():
    toy = Toy("tags")
    logits = random_table(len(toy.tokens))
    only_marks = WellFormedTrees(
        TreePieces({5: Open("A"), 6: Close("A"), 7: Tag(",")}), len(toy.tokens), EOS, {",", "t"}
    )
    sentence = Sentence((1, EOS), 5, {WellFormedTrees.name: only_marks.leaves([",", "rain"])})
    ((hypothesis,),) = search(logits, [sentence], settings(1), rules=[only_marks])
    assert [token for token in hypothesis.tokens if token == 7] == [7, 7]


@pytest.mark.parametrize("spacing", SPACINGS)
def test_the_shortest_output_is_that_of_the_flattest_tree(spacing):
    toy = Toy("tags", spacing)
    logits = random_table(len(toy.tokens))
    for num_words in (1, 2, 5):
        shortest = toy.rule.shortest_output(toy.rule.leaves(words_of(num_words)))
        enough = toy.sentence(1, num_words, shortest)
        ((hypothesis,),) = toy.search(logits, [enough], settings(2))
        assert len(hypothesis.tokens) == shortest
        assert toy.search(logits, [enough._replace(longest_output=shortest - 1)], settings(2)) == [
            ()
        ]


@pytest.mark.usefixtures("searched_by")
def test_sentences_without_data_for_the_rule_are_searched_as_without_it():
    toy = Toy("typed")
    logits = random_table(len(toy.tokens))
    trees = random_sentences(toy, random.Random(1), 9)
    sentences = [
        sentence if number % 2 else sentence._replace(rule_data={})
        for number, sentence in enumerate(trees)
    ]
    free = search(logits, trees, settings(3))
    bound = toy.search(logits, trees, settings(3))
    mixed = toy.search(logits, sentences, settings(3))
    assert mixed == [(bound if number % 2 else free)[number] for number in range(len(trees))]
    assert free != bound


@pytest.mark.usefixtures("searched_by")
def test_slots_may_be_refilled_and_dropped_at_any_time():
    toy = Toy("typed", "each")
    logits = random_table(len(toy.tokens))
    sentences = random_sentences(toy, random.Random(2), 12)
    expected = toy.search(logits, sentences, settings(2))
    ongoing = Search(TableModel(logits), 4, settings(2), [toy.rule])
    waiting, found = list(sentences), []
    while waiting or ongoing.is_busy:
        num_free = ongoing.num_slots - ongoing._beams.num_busy
        newcomers, waiting = waiting[:num_free], waiting[num_free:]
        ongoing.admit(ongoing.prepare(newcomers[:1]))
        waiting = newcomers[1:] + waiting
        found += ongoing.step()
        if not waiting and ongoing.is_busy:
            ongoing.drop_free_slots()
    assert [hypotheses for _, hypotheses in sorted(found)] == expected


def test_forbidding_leaves_the_logits_of_the_allowed_as_they_are():
    toy = Toy("typed")
    logits = torch.randn(2, len(toy.tokens))
    before = logits.clone()
    one = np.ones(2, np.int64)
    states = SlotStates(
        np.zeros((2, 1, 0), np.int32), 0 * one, 9 * one, {1: toy.rule.leaves(words_of(3))}
    )
    restriction = toy.rule.restriction(states)
    assert restriction is not None
    TorchLogits(logits).restrict(restriction)
    assert torch.equal(logits[0], before[0])
    opening = [toy.tokens.index("(A"), toy.tokens.index("(B")]
    assert torch.equal(logits[1, opening], before[1, opening])
    assert (logits[1] > -math.inf).sum() == 2
