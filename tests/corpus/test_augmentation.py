"""What each kind of augmentation makes of the words of a pair, and of their links."""

import random

import pytest

from nmt_cli.corpus.text.augmentation import Augmenting, TextPair
from nmt_cli.corpus.text.glossary import Glossary, Term
from nmt_cli.recipe.sections.corpora import KINDS, Augmentation

SYMBOLS = ["<bt>", "<t>", "</t>", "<sep>"]
TERMS = Glossary([Term("New York", ("Neu York",)), Term("cat", ("Katze", "Katzen"))])


def changed(
    kind, source, target, *, following=(), links=(), seed=1, terms=TERMS, tag=None, **config
):
    settings = Augmentation(**config)
    pair = TextPair(source.split(), target.split(), links)
    others = [TextPair(s.split(), t.split(), own) for s, t, own in following]
    augmenting = Augmenting(settings, SYMBOLS, terms, tag)
    return augmenting.changed(pair, kind.split(), others, random.Random(seed))


def texts(pair):
    return " ".join(pair.source), " ".join(pair.target)


def test_letters_change_on_both_sides_but_not_in_symbols():
    pair = ">>deu<< <bt> a naïve <t>x ß", "der Straße ǆ"
    assert texts(changed("upper_case", *pair)) == (">>deu<< <bt> A NAÏVE <t>x SS", "DER STRASSE Ǆ")
    assert texts(changed("title_case", *pair)) == (">>deu<< <bt> A Naïve <t>x Ss", "Der Straße ǅ")
    assert texts(changed("upper_case title_case", *pair)) == texts(changed("upper_case", *pair))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("I see.", "Ich sehe.", ("I see", "Ich sehe")),
        ("I see .", "Ich sehe.", ("I see", "Ich sehe")),
        ("Really?!", "Echt?!", ("Really?", "Echt?")),
        ("Wait...", "他走了。", ("Wait", "他走了")),
        ("Why?", "لماذا؟", ("Why", "لماذا")),
        ("I see.", "Ich sehe!", ("I see.", "Ich sehe!")),
        ("I see.", "Ich sehe", ("I see.", "Ich sehe")),
        ("a.b", "c.d", ("a.b", "c.d")),
    ],
)
def test_end_punctuation_goes_if_both_sides_have_the_same_kind(source, target, expected):
    assert texts(changed("remove_end_punctuation", source, target)) == expected


def test_pairs_that_follow_are_merged():
    following = [("c d", "C", ()), ("e", "E F", ())]
    assert texts(changed("merge", "a b", "A", following=following)) == ("a b c d e", "A C E F")
    found = changed("merge", "a b", "A", following=following, merge_separator="<sep>")
    assert texts(found) == ("a b <sep> c d <sep> e", "A <sep> C <sep> E F")


@pytest.mark.parametrize(
    ("target", "other", "expected"),
    [
        ("他走了。", "她来了！", "他走了。她来了！"),
        ("他 说：“好。”", "她用 Mac。", "他 说：“好。”她用 Mac。"),
        ("彼は行った。", "コーヒーだ。", "彼は行った。コーヒーだ。"),
        ("用 Linux", "他走了", "用 Linux他走了"),
        ("เขาไปแล้ว", "เธอมา", "เขาไปแล้ว เธอมา"),  # Thai writes blanks between sentences
        ("그는 갔다.", "그녀가 왔다.", "그는 갔다. 그녀가 왔다."),
        ("ذهب.", "جاءت.", "ذهب. جاءت."),
    ],
)
def test_chinese_and_japanese_sentences_are_merged_without_a_blank(target, other, expected):
    last = len(other.split()) - 1
    found = changed("merge", "He left.", target, following=[("She came.", other, [(1, last)])])
    assert texts(found) == ("He left. She came.", expected)
    assert list(found.links) == [(3, len(expected.split()) - 1)]
    separated = changed("merge", "a", target, following=[("b", other, ())], merge_separator="<sep>")
    assert texts(separated) == ("a <sep> b", f"{target} <sep> {other}")


def test_words_in_pieces_are_not_joined_by_a_merge():
    augmenting = Augmenting(Augmentation(), (), None, is_in_pieces=True)
    pair, other = TextPair(["他", "走了"], ["a"]), TextPair(["她", "来了"], ["b"])
    found = augmenting.changed(pair, ["merge"], [other], random.Random(1))
    assert found.source == ["他", "走了", "她", "来了"]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("cat, New  York.", "Katzen Neu York", "cat <t> Katzen </t>, New York <t> Neu York </t>."),
        ("CAT cat concat", "eine Katze", "CAT <t> Katze </t> cat <t> Katze </t> concat"),
        ("the cat", "der Hund", "the cat"),
        ("the cat", "die Katzenklappe", "the cat"),
    ],
)  # fmt: skip
def test_a_term_gets_the_translation_that_the_target_has(source, target, expected):
    found = changed("terms", source, target, term_tags=("<t>", "</t>"))
    assert texts(found) == (expected, target)


def test_terms_without_spaces_between_them_are_separated():
    terms = Glossary([Term("猫", ("cat",)), Term("狗", ("dog",))])
    found = changed("terms", "我爱猫狗吗", "cat dog", terms=terms)
    assert texts(found)[0] == "我爱猫 <t> cat </t>狗 <t> dog </t>吗"


@pytest.mark.parametrize("seed", range(4))
def test_terms_of_alignments_are_words_of_one_link(seed):
    links = [(0, 0), (0, 1), (1, 2), (2, 2), (3, 3), (4, 4)]
    pair = {"source": "der die das haus x7", "target": "a b c Haus y7", "links": links}
    found = changed("terms", **pair, terms=None, seed=seed)
    assert texts(found) == ("der die das haus <t> Haus </t> x7", "a b c Haus y7")
    assert found.links == [*links[:5], (7, 4)]


def test_letters_of_translations_in_tags_change_with_the_target():
    found = changed("terms upper_case", "a cat", "eine Katze")
    assert texts(found) == ("A CAT <t> KATZE </t>", "EINE KATZE")


def test_the_tag_of_a_corpus_stays_in_front():
    pair = {"source": "de new york.", "target": "Neu York.", "tag": "de"}
    following = [("de x y", "X Y", [(2, 0)])]
    assert texts(changed("upper_case", **pair)) == ("de NEW YORK.", "NEU YORK.")
    found = changed("merge title_case", **pair, following=following, links=[(1, 0), (2, 1)])
    assert texts(found) == ("de New York. X Y", "Neu York. X Y")
    assert found.links == [(1, 0), (2, 1), (4, 2)]
    assert changed("noise", **pair).source[1:] == changed("noise", **pair).target


@pytest.mark.parametrize(("source", "target", "tag"), [("de .", "a.", "de"), ("a.", ".", None)])
def test_a_pair_whose_side_would_be_empty_stays_as_it_is(source, target, tag):
    assert texts(changed("remove_end_punctuation", source, target, tag=tag)) == (source, target)


def edits(one, other):
    """Return the fewest edits between two words: swaps of neighbours, and single letters."""
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, start=1):
        row = [i]
        for j, b in enumerate(other, start=1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def test_a_typing_error_is_one_edit_of_a_word_and_as_frequent_as_asked_for():
    assert [edits("abc", other) for other in ("acb", "ab", "abxc", "axc", "cab")] == [1] * 4 + [2]
    source, kinds, num_hits = "she bought apples, pears and 12kg oo I <bt> x7", set(), 0
    words = source.split()
    for seed in range(1000):
        found = changed("typos", source, "Ziel", seed=seed, typos_per_word=0.5)
        assert found.target == ["Ziel"]
        assert len(found.source) == len(words)
        hit = [(a, b) for a, b in zip(words, found.source, strict=True) if a != b]
        assert all(edits(a, b) == 1 for a, b in hit)
        assert {a for a, _ in hit} <= {"she", "bought", "apples,", "pears", "and", "oo"}
        assert set("".join(b for _, b in hit)) <= set("".join(words))
        kinds |= {len(b) - len(a) if sorted(a) != sorted(b) else "swap" for a, b in hit}
        num_hits += len(hit)
        every = changed("typos", source, "Ziel", seed=seed, typos_per_word=1.0).source
        assert {b for a, b in zip(words, every, strict=True) if a == b} == {
            "12kg",
            "I",
            "<bt>",
            "x7",
        }
        assert every[2].endswith(",")
    assert kinds == {-1, 0, 1, "swap"}
    assert num_hits == pytest.approx(3 * 1000, rel=0.06)  # half of 6 words


def test_one_word_at_least_is_misspelt():
    words = ["some", "words", "here"]
    for seed in range(9):
        found = changed("typos", " ".join(words), "x", seed=seed, typos_per_word=0.001).source
        assert sum(a != b for a, b in zip(found, words, strict=True)) == 1
    assert texts(changed("typos", "7 x !", "x")) == ("7 x !", "x")


def test_noise_is_the_same_on_both_sides_and_nothing_of_the_pair():
    found = [changed("noise upper_case", "one two", "eins", seed=seed) for seed in range(300)]
    assert all(pair.source == pair.target for pair in found)
    assert {len(pair.source) for pair in found} == {1, 2, 3, 4, 5, 6}
    assert {len(word) for pair in found for word in pair.source} == {2, 3, 4, 5}
    characters = "".join("".join(pair.source) for pair in found)
    assert len(set(characters)) > 500
    assert " ".join(characters).split() == list(characters)


@pytest.mark.parametrize("kind", [*KINDS, " ".join(KINDS[1:])])
def test_linked_words_stay_linked(kind):
    """Words that translate each other have the same number, and all are linked."""
    source, target = "a0 cat1, b2 New4 York4 c5.", "A0 D4 B2 Katze1 C5."
    links = [(0, 0), (1, 3), (2, 2), (3, 1), (4, 1), (5, 4)]
    following = [("d6 e7", "E7 D6", [(0, 1), (1, 0)]), ("f8 .", "F8 .", [(0, 0), (1, 1)])]
    terms = Glossary([Term("cat1", ("Katze1",)), Term("New4 York4", ("D4",))])
    texts = {"following": following, "links": links, "terms": terms}
    found = changed(kind, source, target, **texts, typos_per_word=1.0, merge_separator="<sep>")
    linked = [(found.source[i], found.target[j]) for i, j in found.links]
    if kind == "noise":
        assert linked == [(word, word) for word in found.source]
        return
    digits = [{*filter(str.isdigit, a)} for a, b in linked]
    assert digits == [{*filter(str.isdigit, b)} for a, b in linked]
    assert set().union(*digits) == {*filter(str.isdigit, "".join(found.source))}
