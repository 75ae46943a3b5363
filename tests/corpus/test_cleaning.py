import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.text import cleaning
from nmt_cli.corpus.text.cleaning import (
    COUNTED,
    KEPT,
    RULES,
    SCORED_RECORD,
    BitSet,
    DroppedLines,
    DuplicateFinder,
    HeldOut,
    PairLimits,
    hash_records,
    pair_hash,
    repeated_in,
    rules_broken,
)
from nmt_cli.corpus.text.parallel_text import LineChunk
from nmt_cli.files.lines import is_blank


def first_broken(source, target, limits):
    """The rules once more, for one pair, in the order of design."""
    if min(source, target) == 0:
        return "empty"
    if max(source, target) > limits.longest:
        return "too_long"
    if min(source, target) < limits.shortest:
        return "too_short"
    if limits.ratio is not None and max(source, target) / min(source, target) > limits.ratio:
        return "length_ratio"
    return None


@pytest.mark.parametrize(
    "limits", [PairLimits(9), PairLimits(9, 3), PairLimits(7, 1, 1.5), PairLimits(8, 2, 3)]
)
def test_each_pair_breaks_the_rule_that_it_should(limits):
    lengths = np.array([(s, t) for s in range(13) for t in range(13)])
    broken = rules_broken(lengths[:, 0], lengths[:, 1], limits)
    found = [None if rule == KEPT else RULES[rule] for rule in broken.tolist()]
    assert found == [first_broken(s, t, limits) for s, t in lengths.tolist()]
    assert found.count(None) > 10


def chunk_of(first, count):
    texts = [
        ("\n".join(f"{side}{n} " + 300 * side for n in range(first, first + count)))
        for side in "st"
    ]
    source, target = (text.encode() for text in texts)
    return LineChunk(first, count, source, target)


def test_all_dropped_lines_are_counted_and_the_first_thousand_listed():
    dropped, broken = DroppedLines(), np.full(2500, KEPT, dtype=np.int8)
    broken[::2], broken[1] = RULES.index("too_long"), RULES.index("empty")
    for first in range(0, 2500, 100):
        dropped.add(broken[first : first + 100], chunk_of(first, 100))
    facts = dropped.as_manifest()
    assert facts["too_long"] == {"count": 1250, "first_lines": list(range(1, 2001, 2))}
    assert facts["empty"] == {"count": 1, "first_lines": [2]}
    assert facts["duplicate"] == {"count": 0, "first_lines": []}
    assert list(facts) == ["empty", "too_long", "too_short", "length_ratio", "duplicate"]


def test_the_first_pairs_that_a_filter_dropped_are_shown():
    dropped, broken = DroppedLines(), np.full(300, KEPT, dtype=np.int8)
    broken[[98, 99, 100, 200]], broken[201:] = RULES.index("min_letters"), COUNTED
    broken[7:90:10] = RULES.index("remove_copies")
    for first in range(0, 300, 100):
        dropped.add(broken[first : first + 100], chunk_of(first, 100))
    facts = dropped.as_manifest()
    assert facts["min_letters"]["count"] == 4
    assert facts["min_letters"]["examples"] == [
        {"line": n + 1, "source": f"s{n} {300 * 's'}"[:200], "target": f"t{n} {300 * 't'}"[:200]}
        for n in (98, 99, 100, 200)
    ]
    assert facts["remove_copies"]["count"] == 9
    assert [pair["line"] for pair in facts["remove_copies"]["examples"]] == [8, 18, 28, 38, 48]
    assert "min_words" not in facts


@pytest.mark.parametrize("records_in_memory", [1, 7, 100, 10_000])
def test_repeated_pairs_are_found_whether_they_fit_in_memory_or_not(tmp_path, records_in_memory):
    generator = random.Random(records_in_memory)
    pairs = [(f"s{generator.randrange(40)}", f"t{generator.randrange(10)}") for _ in range(600)]
    finder = DuplicateFinder(tmp_path, records_in_memory)
    for first in range(0, len(pairs), 50):
        sources, targets = zip(*pairs[first : first + 50], strict=True)
        finder.add(hash_records("duplicate", sources, targets, np.arange(first, first + 50)))
    found = [repeated_in(part) for part in finder.parts()]
    best, others = map(np.concatenate, zip(*found, strict=True))
    seen, expected = dict[tuple[str, str], int](), set()
    for index, pair in enumerate(pairs):
        if seen.setdefault(pair, index) != index:
            expected.add(index)
    assert len(others) == len(expected) > 100
    assert set(others.tolist()) == expected
    assert sorted(best.tolist()) == sorted({seen[pairs[index]] for index in expected})
    assert list(tmp_path.iterdir()) == []


SIDES_COMPARED = {
    "duplicate": lambda pair: pair,
    "remove_duplicate_sources": lambda pair: pair[0],
    "remove_duplicate_targets": lambda pair: pair[1],
}


@pytest.mark.parametrize("records_in_memory", [7, 10_000])
@pytest.mark.parametrize("rule", SIDES_COMPARED)
def test_of_pairs_with_the_same_side_the_best_is_left(tmp_path, rule, records_in_memory):
    generator = random.Random(records_in_memory)
    pairs = [(f"s{generator.randrange(40)}", f"t{generator.randrange(10)}") for _ in range(600)]
    scores = [generator.choice([-1.5, 0, 0.25, 1e300, float("inf")]) for _ in pairs]
    finder = DuplicateFinder(tmp_path, records_in_memory, SCORED_RECORD)
    for first in range(0, len(pairs), 50):
        part = slice(first, first + 50)
        sources, targets = zip(*pairs[part], strict=True)
        indices, some = np.arange(first, first + 50), np.array(scores[part])
        finder.add(hash_records(rule, sources, targets, indices, some))
    found = [repeated_in(part, SCORED_RECORD) for part in finder.parts()]
    repeated = np.concatenate([each.others for each in found])
    best: dict[object, int] = {}
    for index, pair in enumerate(pairs):
        compared = SIDES_COMPARED[rule](pair)
        if compared not in best or scores[index] > scores[best[compared]]:
            best[compared] = index
    assert len(repeated) == len(set(repeated.tolist()))
    assert set(range(600)) - set(repeated.tolist()) == set(best.values())
    assert {index for each in found for index in each.best.tolist()} <= set(best.values())


def test_the_hash_sees_where_the_source_ends():
    pairs = [("a", "b c"), ("a b", "c"), ("a b c", ""), ("", "a b c"), ("A", "b c")]
    assert len({pair_hash(*pair) for pair in pairs}) == len(pairs)


def test_a_bit_set_holds_what_was_added():
    bits, chosen = BitSet(100), np.array([0, 7, 8, 63, 99, 7])
    bits.add(chosen)
    bits.add(np.array([], dtype=np.int64))
    assert np.flatnonzero(bits.have(np.arange(100))).tolist() == [0, 7, 8, 63, 99]
    assert bits.have(np.array([99, 7, 9, 7])).tolist() == [True, True, False, True]
    assert bits.have(np.arange(0)).tolist() == []


def test_a_bit_set_grows_with_what_is_added():
    bits, generator, added = BitSet(), random.Random(1), set()
    for last in (5, 8, 1000, 100_000):
        chosen = np.array([generator.randrange(last) for _ in range(20)])
        bits.add(chosen)
        added |= set(chosen.tolist())
        asked = np.arange(2 * last)
        assert np.array_equal(bits.have(asked), np.isin(asked, list(added)))


def found_by(held_out, sources, targets):
    return held_out.found(sources, targets, np.arange(len(sources)))


def test_held_out_pairs_are_found_by_both_sides():
    held_out = HeldOut([("a", "b"), ("c", "d"), (" ", "e")])
    found = found_by(held_out, ["a", "a", "c", "x", "a", " "], ["b", "d", "b", "d", "b", "e"])
    assert found.equal == [pair_hash("a", "b")] * 2
    held_out.count(found)
    assert not held_out.is_all_met
    assert held_out.met_sentences == [(2, 2), (2, 2)]
    held_out.count(found_by(held_out, ["c"], ["d"]))
    assert held_out.is_all_met
    assert not HeldOut().is_all_met
    assert found_by(HeldOut(), ["a"], ["b"]).similar.tolist() == []


def letters(text):
    """Lower case without digits, punctuation, symbols and spaces, if anything is left."""
    kept = [c for c in text.lower() if unicodedata.category(c)[0] not in "NPSZC"]
    return "".join(kept) or text


def test_held_out_pairs_are_found_by_their_letters():
    held_out = HeldOut([("Is it 5?", "Ist's 5?"), ("12", "12"), ("\u212aİ", "ΟΔΟΣ")])
    pairs = [
        ("is it 6", "ISTS - 7."),
        ("is it", "ist es"),
        ("12", "12"),
        ("12", "13"),
        ("ki\u0307", "οδος!"),
        ("ki", "οδος"),
    ]
    sources, targets = zip(*pairs, strict=True)
    found = held_out.found(sources, targets, np.arange(10, 16))
    assert found.similar.tolist() == [10, 12, 14]
    assert found.equal == [pair_hash("12", "12")]


TEXTS = st.text(
    st.sampled_from("aAbkKiIİ\u212a\u0307ßẞΣσς9²!\u0301 \u200bж中"), min_size=1, max_size=5
)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=8), st.lists(st.tuples(TEXTS, TEXTS), max_size=8))
def test_any_text_is_held_out_by_its_letters(held, training):
    training += [(source.upper() + "3.", target.title()) for source, target in held]
    sources, targets = ([pair[side] for pair in training] for side in (0, 1))
    visible = [pair for pair in held if not any(map(is_blank, pair))]
    known = {(letters(source), letters(target)) for source, target in visible}
    found = found_by(HeldOut(held), sources, targets)
    expected = [(letters(source), letters(target)) in known for source, target in training]
    assert found.similar.tolist() == [place for place, is_known in enumerate(expected) if is_known]
    assert found.equal == [pair_hash(*pair) for pair in training if pair in visible]


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=8), st.lists(st.tuples(TEXTS, TEXTS), max_size=8))
def test_any_sentence_is_held_out_by_its_letters(held, training):
    training += [(source.upper() + "3.", "other") for source, _ in held[::2]]
    training += [("other", target.title()) for _, target in held[1::2]]
    visible = [pair for pair in held if not any(map(is_blank, pair))]
    known = [{letters(pair[side]) for pair in visible} for side in (0, 1)]
    met = [{letters(pair[side]) for pair in training} & known[side] for side in (0, 1)]
    sources, targets = ([pair[side] for pair in training] for side in (0, 1))
    held_out = HeldOut(held)
    found = found_by(held_out, sources, targets)
    held_out.count(found)
    assert held_out.met_sentences == [(len(met[side]), len(known[side])) for side in (0, 1)]
    assert found.sharing.tolist() == [
        place
        for place, pair in enumerate(training)
        if letters(pair[0]) in known[0] or letters(pair[1]) in known[1]
    ]


def test_more_held_out_pairs_than_are_compared_are_noticed(monkeypatch):
    monkeypatch.setattr(cleaning, "MOST_PAIRS", 2)
    assert HeldOut([("a", "b"), ("c", "d")]).is_whole
    assert not HeldOut([("a", "b"), ("c", "d"), ("e", "f")]).is_whole
