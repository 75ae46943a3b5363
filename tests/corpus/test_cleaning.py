import random

import numpy as np
import pytest

from nmt_cli.corpus.text.cleaning import (
    KEPT,
    RULES,
    DroppedLines,
    DuplicateFinder,
    HeldOut,
    LengthLimits,
    Marks,
    hash_records,
    pair_hash,
    repeated_in,
    rules_broken,
)


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
    "limits", [LengthLimits(9), LengthLimits(9, 3), LengthLimits(7, 1, 1.5), LengthLimits(8, 2, 3)]
)
def test_each_pair_breaks_the_rule_that_it_should(limits):
    lengths = np.array([(s, t) for s in range(13) for t in range(13)])
    broken = rules_broken(lengths[:, 0], lengths[:, 1], limits)
    found = [None if rule == KEPT else RULES[rule] for rule in broken.tolist()]
    assert found == [first_broken(s, t, limits) for s, t in lengths.tolist()]
    assert found.count(None) > 10


def test_all_dropped_lines_are_counted_and_the_first_thousand_listed():
    dropped, broken = DroppedLines(), np.full(2500, KEPT, dtype=np.int8)
    broken[::2], broken[1] = RULES.index("too_long"), RULES.index("empty")
    for first in range(0, 2500, 100):
        dropped.add(broken[first : first + 100], first + 1)
    facts = dropped.facts()
    assert facts["too_long"] == {"count": 1250, "first_lines": list(range(1, 2001, 2))}
    assert facts["empty"] == {"count": 1, "first_lines": [2]}
    assert facts["duplicate"] == {"count": 0, "first_lines": []}


@pytest.mark.parametrize("records_in_memory", [1, 7, 100, 10_000])
def test_repeated_pairs_are_found_whether_they_fit_in_memory_or_not(tmp_path, records_in_memory):
    generator = random.Random(records_in_memory)
    pairs = [(f"s{generator.randrange(40)}", f"t{generator.randrange(10)}") for _ in range(600)]
    finder = DuplicateFinder(tmp_path, records_in_memory)
    for first in range(0, len(pairs), 50):
        sources, targets = zip(*pairs[first : first + 50], strict=True)
        finder.add(hash_records(sources, targets, np.arange(first, first + 50)))
    repeated = np.concatenate([repeated_in(part) for part in finder.parts()])
    seen, expected = set(), set()
    for index, pair in enumerate(pairs):
        if pair in seen:
            expected.add(index)
        seen.add(pair)
    assert len(repeated) == len(expected) > 100
    assert set(repeated.tolist()) == expected
    assert list(tmp_path.iterdir()) == []


def test_the_hash_sees_where_the_source_ends():
    pairs = [("a", "b c"), ("a b", "c"), ("a b c", ""), ("", "a b c"), ("A", "b c")]
    assert len({pair_hash(*pair) for pair in pairs}) == len(pairs)


def test_marks_hold_what_was_added():
    marks, chosen = Marks(100), np.array([0, 7, 8, 63, 99, 7])
    marks.add(chosen)
    marks.add(np.array([], dtype=np.int64))
    assert np.flatnonzero(marks[0:100]).tolist() == [0, 7, 8, 63, 99]
    for start, stop in ((7, 9), (1, 7), (8, 64), (63, 63), (5, 100)):
        assert np.array_equal(marks[start:stop], marks[0:100][start:stop])


def test_held_out_pairs_are_found_by_both_sides():
    held_out = HeldOut([("a", "b"), ("c", "d"), (" ", "e")])
    found = held_out.found(["a", "a", "c", "x", "a", " "], ["b", "d", "b", "d", "b", "e"])
    assert found == [pair_hash("a", "b")] * 2
    held_out.count(found)
    assert not held_out.is_all_met
    held_out.count(held_out.found(["c"], ["d"]))
    assert held_out.is_all_met
    assert not HeldOut().is_all_met
