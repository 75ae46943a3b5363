"""Which pairs of a batch are changed: by the seed, the corpus, the place there and the epoch."""

import random
from collections import Counter

import numpy as np
import pytest

from nmt_cli.commands import preprocess
from nmt_cli.corpus.augmenter import changes_of, random_bits, read_glossaries
from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.loader import PlannedBatch, SentencePairs, load_batches
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError
from nmt_cli.recipe.reading.reader import read_recipe
from tests.conftest import RECIPE, WORDS

SIZES = 400, 300
PAIRS = np.arange(sum(SIZES))


class Corpora:
    """Two prepared corpora, and the texts of their pairs; the last one is the longest."""

    def __init__(self, folder, tokenizer, *, has_links=False, tag=None):
        self.path, self.prepared = folder / "toy.yaml", folder / "prepared"
        draw = random.Random(1)
        self.texts: dict[str, list[str]] = {"en": [], "de": []}
        for name, size in zip(("train", "more", "validation"), (*SIZES, 5), strict=True):
            for side, lines in self.texts.items():
                words = [draw.choices(WORDS, k=draw.randint(2, 7)) for _ in range(size)]
                words[-1] *= 10 if name == "more" else 1
                some = [f"{' '.join(each)}." for each in words]
                (folder / f"{name}.{side}").write_text("\n".join(some) + "\n")
                lines.extend(some)
            if has_links:
                text = (folder / f"{name}.en").read_text()
                (folder / f"{name}.de").write_text(text)
                sizes = (range(len(line.split())) for line in text.splitlines())
                links = [" ".join(f"{n}-{n}" for n in words) for words in sizes]
                (folder / f"{name}.links").write_text("\n".join(links) + "\n")
        text = RECIPE.replace("max_length: 30", "max_length: 300").replace("120", "400")
        # Only then the folder, in which such numbers may be.
        text = text.format(folder=folder).replace("type: whitespace", tokenizer)
        more = f"{{source: {folder}/more.en, target: {folder}/more.de}}"
        text = text.replace("}]", "}, " + more + "]")
        if has_links:
            more = f"alignments: {folder}/train.links, tag: {tag or 'null'}"
            text = text.replace("train.de}", f"train.de, {more}}}")
        self.path.write_text(text)
        logs.configure(quiet=True)
        preprocess.run(recipe=str(self.path), output=self.prepared, workers=1)

    def recipe(self, *augments, seed=1):
        keys = [f"training.seed={seed}"]
        for number, augment in enumerate(augments):
            keys += [f"data.train.{number}.augment={augment}"]
        return read_recipe(str(self.path), keys).recipe

    def opened(self, recipe):
        return open_prepared(self.prepared, recipe, "nmt-cli preprocess toy")

    def changed(self, *augments, pairs=PAIRS, epoch=0, seed=1, copy=0):
        """Return the texts of both sides of ``pairs``, as training sees this copy in ``epoch``."""
        recipe = self.recipe(*augments, seed=seed)
        corpus = self.opened(recipe)
        gathered = SentencePairs(corpus.source.gather(pairs), corpus.target.gather(pairs))
        change = changes_of(recipe, corpus, read_glossaries(recipe))
        assert change is not None
        batch = change(gathered, PlannedBatch(9, epoch, pairs, np.full_like(pairs, copy)))
        return [texts_of(side, corpus.tokenizer) for side in (batch.source, batch.target)]

    def plain(self, pairs=PAIRS):
        return [[self.texts[side][pair] for pair in pairs] for side in ("en", "de")]


def texts_of(side, tokenizer):
    parts = np.split(side.tokens, np.cumsum(side.lengths)[:-1])
    assert all(part[-1] == tokenizer.eos_id for part in parts)
    is_in_pieces = isinstance(tokenizer, WhitespaceTokenizer)
    return [tokenizer.decode(part[:-1].tolist(), keep_pieces=is_in_pieces) for part in parts]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    symbols = "user_defined_symbols: [<sep>, <t>, </t>]"
    return Corpora(tmp_path_factory.mktemp("pieces"), f"vocabulary_size: 300, {symbols}")


def test_random_bits_are_those_of_splitmix64():
    """The witness is the published sequence of the seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert random_bits(1234567, np.arange(4)).tolist() == expected
    assert random_bits(1234567, np.array([2])).tolist() == expected[2:3]


def are_equal(some, others):
    return [one == other for one, other in zip(some, others, strict=True)]


def test_as_many_pairs_are_changed_as_asked_for_and_only_those_of_the_corpus(corpora):
    source, target = corpora.changed("{upper_case: 0.3}")
    plain_source, plain_target = corpora.plain()
    upper = are_equal(source, map(str.upper, plain_source))
    assert upper == are_equal(target, map(str.upper, plain_target))
    plain = [not is_upper for is_upper in upper]
    assert plain == are_equal(source, plain_source) == are_equal(target, plain_target)
    assert not any(upper[SIZES[0] :])
    expected, deviation = 0.3 * SIZES[0], (0.3 * 0.7 * SIZES[0]) ** 0.5
    assert abs(sum(upper) - expected) < 3 * deviation
    every = corpora.changed("{upper_case: 1}", "{upper_case: 1}")
    assert every[0][:-1] == [text.upper() for text in plain_source[:-1]]


def test_corpora_kinds_epochs_seeds_and_copies_draw_independently(corpora):
    def chosen(key="title_case", first=0, **how):
        augment = f"{{{key}: 0.5}}"
        (source, _), (plain, _) = corpora.changed(augment, augment, **how), corpora.plain()
        part = slice(first, first + SIZES[1])
        return [a != b for a, b in zip(source[part], plain[part], strict=True)]

    draws = [
        chosen(),
        chosen(first=SIZES[0]),
        chosen("upper_case"),
        chosen(epoch=1),
        chosen(seed=2),
        chosen(copy=1),
        chosen(first=SIZES[0], copy=1),
        chosen(copy=2),
    ]
    assert draws[0] == chosen()
    for number, one in enumerate(draws):
        for other in draws[:number]:
            assert 0.4 * SIZES[1] < sum(are_equal(one, other)) < 0.6 * SIZES[1]


def test_the_copies_of_an_upsampled_pair_are_changed_each_on_its_own(corpora):
    """As training reads them: by the plan of a recipe with weights."""
    augment = "{typos: 1}"
    recipe = corpora.recipe(augment, augment)
    corpus, found = corpora.opened(recipe), dict[int, list[str]]()
    change = changes_of(recipe, corpus, {})
    sides = [corpus.source, corpus.target]
    weights = [(SIZES[0], 10.0), (SIZES[1], 1.0)]
    plan = BatchPlan(sides[0].lengths, sides[1].lengths, 2000, 1, weights)
    for batch in load_batches(plan, sides, plan.batches_of(0), change):
        (pairs,) = batch.micro_batches
        texts = texts_of(pairs.source, corpus.tokenizer)
        for pair, text in zip(plan.batch(batch.number).tolist(), texts, strict=True):
            found.setdefault(pair, []).append(text)
    assert {pair: len(texts) for pair, texts in found.items()} == {
        pair: 10 if pair < SIZES[0] else 1 for pair in PAIRS
    }
    assert np.mean([len(set(found[pair])) for pair in range(SIZES[0])]) > 8
    first, _ = corpora.changed(augment, augment)
    assert [texts[0] for pair, texts in found.items() if pair >= SIZES[0]] == [
        first[pair] for pair in found if pair >= SIZES[0]
    ]


ALL = (
    "{upper_case: 0.2, title_case: 0.2, typos: 0.3, noise: 0.05, remove_end_punctuation: 0.3, "
    "merge: 0.2, merge_separator: <sep>, terms: 0.3, glossary: GLOSSARY}"
)


def test_a_pair_becomes_the_same_in_each_batch_that_has_it(corpora, tmp_path):
    (tmp_path / "terms.tsv").write_text("ant\tjay ||| bee\ncat\tfox\n")
    augment = ALL.replace("GLOSSARY", str(tmp_path / "terms.tsv"))
    whole = corpora.changed(augment, augment, epoch=3)
    order = np.random.default_rng(1).permutation(PAIRS)
    for pairs in (order[:500], order[500:], order[[7, 7]], PAIRS[-1:]):
        found = corpora.changed(augment, augment, pairs=pairs, epoch=3)
        assert found == [[side[pair] for pair in pairs] for side in whole]
    assert whole != corpora.changed(augment, augment, epoch=4)
    plain = corpora.plain()
    assert 0.1 < np.mean(are_equal(whole[0], plain[0])) < 0.5
    assert sum("<t>" in text for text in whole[0]) > 20


def test_the_pairs_that_follow_in_the_same_corpus_are_merged(corpora):
    source, target = corpora.changed("{merge: 1, merge_separator: <sep>}", "{merge: 1}")
    plain_source, plain_target = corpora.plain()
    numbers = Counter[int]()
    for pair in PAIRS:
        end = SIZES[0] if pair < SIZES[0] else sum(SIZES)
        between = " <sep> " if pair < SIZES[0] else " "
        number = source[pair].count(".")
        assert pair + number <= end
        assert source[pair] == between.join(plain_source[pair : pair + number])
        assert target[pair] == between.join(plain_target[pair : pair + number])
        numbers[number] += 1
    assert all(numbers[number] > 0.25 * len(PAIRS) for number in (2, 3, 4))
    assert numbers[1] < 10  # the last pairs, and those that would be too long


def test_a_pair_with_a_side_that_would_be_too_long_or_empty_stays_as_it_is(corpora):
    recipe = corpora.recipe("{upper_case: 1}")
    corpus = corpora.opened(recipe)
    pairs = PAIRS[: SIZES[0]]
    plain = SentencePairs(corpus.source.gather(pairs), corpus.target.gather(pairs))
    upper = [
        [corpus.tokenizer.encode(text.upper()) for text in side] for side in corpora.plain(pairs)
    ]
    lengths = [max(len(ids) for ids in both) + 1 for both in zip(*upper, strict=True)]
    limit = sorted(lengths)[len(lengths) // 2]
    corpus.source.longest = corpus.target.longest = limit
    change = changes_of(recipe, corpus, {})
    assert change is not None
    batch = change(plain, PlannedBatch(0, 0, pairs, np.zeros_like(pairs)))
    texts = texts_of(batch.source, corpus.tokenizer), texts_of(batch.target, corpus.tokenizer)
    for place, both in enumerate(zip(*texts, strict=True)):
        changes = lengths[place] <= limit
        expected = [self[place] for self in corpora.plain(pairs)]
        assert [*both] == [text.upper() if changes else text for text in expected]
    assert sum(length > limit for length in lengths) > 0


def test_a_pair_with_pieces_without_text_stays_as_it_is(corpora):
    recipe = corpora.recipe("{upper_case: 1}")
    corpus, pairs = corpora.opened(recipe), PAIRS[: SIZES[0]]
    tokenizer, plain = corpus.tokenizer, corpora.plain(pairs)
    before, after = tokenizer.encode("cat")[-1], tokenizer.encode("FOX")[-1]
    for unknown in (before, after):
        tokenizer.unk_id = unknown
        change = changes_of(recipe, corpus, {})
        assert change is not None
        gathered = SentencePairs(corpus.source.gather(pairs), corpus.target.gather(pairs))
        batch = change(gathered, PlannedBatch(0, 0, pairs, np.zeros_like(pairs)))
        both = zip(*plain, texts_of(batch.source, tokenizer), strict=True)
        stay = {source: source == found for source, _, found in both}
        texts = [(s, f"{s} {t}", f"{s} {t}".upper()) for s, t in zip(*plain, strict=True)]
        expected = {
            source: any(unknown in tokenizer.encode(text) for text in (text, upper))
            for source, text, upper in texts
        }
        assert stay == expected
        assert 20 < sum(stay.values()) < len(stay) - 20


def test_text_that_is_in_pieces_can_be_merged(tmp_path):
    corpora = Corpora(tmp_path, 'type: whitespace, joiner: "t", user_defined_symbols: [<sep>]')
    source, _ = corpora.changed("{merge: 1, merge_separator: <sep>}", pairs=PAIRS[:50])
    plain, _ = corpora.plain()
    assert all(text.startswith(own) for text, own in zip(source, plain, strict=False))
    assert sum(are_equal(source, plain[:50])) < 25
    assert source == [
        " <sep> ".join(plain[n : n + 1 + text.count("<sep>")]) for n, text in enumerate(source)
    ]
    with pytest.raises(
        RecipeError, match="needs type sentencepiece, which has pieces for any word"
    ):
        corpora.recipe("{merge: 0, typos: 0.1}")


SYMBOLS = "in tokenizer.user_defined_symbols; add it there"


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        ("{terms: 0.1}", "glossary: is missing beside terms; give the file of the terms, or"),
        ("{terms: 0.1, glossary: g, term_tags: [<x>, </t>]}", f"term_tags: needs <x> {SYMBOLS}"),
        ("{merge: 0.1, merge_separator: <y>}", f"merge_separator: needs <y> {SYMBOLS}"),
        ("{typos: 1.5}", "typos: must be at most 1"),
        ("{upper: 0.5}", "upper_case"),
    ],
)
def test_recipes_that_cannot_be(corpora, augment, message):
    with pytest.raises(RecipeError) as error:
        corpora.recipe(augment)
    assert message in str(error.value)
    assert "data.train.0.augment" in str(error.value)


@pytest.mark.parametrize("tag", [None, "<bt>"])
def test_links_stay_those_of_the_words_they_link(tmp_path, tag):
    """Both sides have the same words, each is linked to itself, and a tag comes first."""
    pieces = "vocabulary_size: 300, user_defined_symbols: [<sep>, <t>, </t>]"
    corpora = Corpora(tmp_path, pieces, has_links=True, tag=tag)
    augment = "{upper_case: 0.2, noise: 0.1, remove_end_punctuation: 0.3, merge: 0.5, terms: 0.5}"
    recipe = corpora.recipe(augment)
    corpus, pairs = corpora.opened(recipe), PAIRS[: SIZES[0]]
    columns = (text.gather(pairs) for text in (corpus.source, corpus.target, corpus.links))
    change = changes_of(recipe, corpus, {})
    assert change is not None
    batch = change(SentencePairs(*columns), PlannedBatch(0, 0, pairs, np.zeros_like(pairs)))
    assert batch.links is not None
    num_terms, ends = 0, np.cumsum(batch.links.lengths)
    sides = (texts_of(side, corpus.tokenizer) for side in (batch.source, batch.target))
    links = np.split(batch.links.tokens, ends[:-1])
    for source, target, of_pair in zip(*sides, links, strict=True):
        words, linked = source.split(), of_pair.reshape(-1, 2).tolist()
        assert [words[i] for i, _ in linked] == [target.split()[j] for _, j in linked]
        assert [j for _, j in linked] == list(range(len(target.split())))
        assert len(words) - len(linked) == 3 * source.count("<t>") + (tag is not None)
        assert words.count("<bt>") == (words[0] == "<bt>") == (tag is not None)
        num_terms += source.count("<t>")
        for place in np.flatnonzero(np.array(words) == "<t>"):
            assert words[place - 1] == words[place + 1]
            assert words[place + 2] == "</t>"
    assert num_terms > len(pairs) / 3
