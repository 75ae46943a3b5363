import itertools
import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus import batching
from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.epoch_pairs import EpochPairs
from nmt_cli.corpus.loader import cut_into_micro_batches
from nmt_cli.messages.errors import UserError

PAIRS = 997


@pytest.fixture(scope="module")
def lengths():
    rng = np.random.default_rng(5)
    source = rng.integers(1, 60, PAIRS).astype(np.uint16)
    target = np.clip(source + rng.integers(-5, 6, PAIRS), 1, 60).astype(np.uint16)
    return source, target


def epoch_of(plan, number):
    batches, index = [], 0
    while plan.locate(index)[0] < number:
        index += 1
    while plan.locate(index)[0] == number:
        batches.append(plan.batch(index))
        index += 1
    return batches


def test_batches_are_nearly_full_and_of_similar_lengths(lengths):
    source, target = lengths
    batches = epoch_of(BatchPlan(source, target, tokens_per_step=300, seed=1), 0)
    fill = sum(max(source[b].sum(), target[b].sum()) for b in batches) / (300 * len(batches))
    assert fill > 0.9
    spread = [np.ptp(np.maximum(source[b], target[b])) for b in batches]
    assert np.median(spread) <= 6


def epoch_said_plainly(source, target, tokens_per_step, seed, number, corpora=None):
    """Return the batches of an epoch: by bucket, shuffled in each, cut greedily, shuffled.

    Of ``corpora`` whose weights are whole numbers, the pairs of each are shuffled first, for a
    share that none has, and are there as often as the weight says.
    """
    rng = np.random.Generator(np.random.PCG64([seed, number]))
    longer, listed, first = np.maximum(source, target), list[int](), 0
    for size, weight in corpora or [(len(source), 1)]:
        if corpora:
            rng.shuffle(np.arange(size, dtype=np.uint32))
        listed += [*range(first, first + size)] * int(weight)
        first += size
    every = np.array(listed, dtype=np.uint32)
    batches: list[list[int]] = [[]]
    shortest, longest = 0, 8
    while shortest < longer.max():
        members = every[(longer[every] > shortest) & (longer[every] <= longest)]
        rng.shuffle(members)
        for pair in members.tolist():
            batch = [*batches[-1], pair]
            if max(source[batch].sum(), target[batch].sum()) > tokens_per_step:
                batches.append([pair])
            else:
                batches[-1] = batch
        shortest, longest = longest, max(longest + 1, int(1.1 * longest))
    return [batches[index] for index in rng.permutation(len(batches))]


@pytest.mark.parametrize("pairs_at_once", [50, 1 << 20])
@pytest.mark.parametrize("corpora", [None, [(600, 2.0), (390, 1.0), (0, 1.0), (7, 0.0)]])
def test_an_epoch_is_the_one_of_a_plain_definition(lengths, corpora, pairs_at_once, monkeypatch):
    """Also of whole weights: version 0.2.0 drew the same."""
    monkeypatch.setattr(batching, "PAIRS_AT_ONCE", pairs_at_once)
    source, target = lengths
    plan = BatchPlan(source, target, 300, 7, corpora)
    for number in range(2):
        expected = epoch_said_plainly(source, target, 300, 7, number, corpora)
        assert [batch.tolist() for batch in epoch_of(plan, number)] == expected


def test_a_batch_depends_on_seed_and_index_alone(lengths):
    source, target = lengths
    forward = BatchPlan(source, target, 300, seed=1)
    backward = BatchPlan(source, target, 300, seed=1)
    last = 3 * len(epoch_of(forward, 0))
    expected = [forward.batch(index).tolist() for index in range(last)]
    assert [backward.batch(index).tolist() for index in reversed(range(last))] == expected[::-1]
    other = BatchPlan(source, target, 300, seed=2)
    assert [other.batch(index).tolist() for index in range(last)] != expected


def test_locate_finds_the_ends_of_epochs(lengths):
    source, target = lengths
    plan = BatchPlan(source, target, 300, seed=1)
    count = len(epoch_of(plan, 0))
    assert [i for i in range(count + 3) if plan.locate(i + 1)[1] == 0] == [count - 1]


@pytest.fixture
def planned(monkeypatch):
    """Return a list that receives the number of each epoch that is planned."""
    numbers: list[int] = []
    plan_epoch = BatchPlan._plan_epoch

    def noted(plan, number):
        numbers.append(number)
        return plan_epoch(plan, number)

    monkeypatch.setattr(BatchPlan, "_plan_epoch", noted)
    return numbers


def test_a_plan_begins_in_a_later_epoch_without_the_earlier_ones(lengths, planned):
    whole = BatchPlan(lengths[0], lengths[1], 300, seed=1)
    expected = {index: whole.batch(index).tolist() for index in range(whole.batches_of(3).stop)}
    third = whole.batches_of(2)
    assert {whole.epoch_of(index) for index in third} == {(2, third.start)}
    planned.clear()
    later = BatchPlan(lengths[0], lengths[1], 300, seed=1)
    later.begin_at(2, third.start)
    for index in range(third.start, len(expected)):
        assert later.batch(index).tolist() == expected[index]
        assert later.locate(index) == whole.locate(index)
    assert [later.batches_of(number) for number in (2, 3)] == [third, whole.batches_of(3)]
    assert sorted(set(planned)) == [2, 3]


def test_no_epoch_is_planned_before_a_batch_of_it_is_needed(lengths, planned):
    plan = BatchPlan(lengths[0], lengths[1], 300, seed=1)
    assert plan.locate(0) == plan.epoch_of(0) == (0, 0)
    assert planned == []
    end = plan.batches_of(0).stop
    assert plan.epoch_of(end) == (1, end)  # of a checkpoint at the end of an epoch
    assert planned == [0]
    plan.locate(end + 1)
    assert planned == [0, 1]


def test_a_corpus_of_weight_0_is_left_out(lengths):
    source, target = lengths
    size = len(source)
    plan = BatchPlan(source, target, 500, 1, [(size // 2, 0.0), (size - size // 2, 1.0)])
    pairs = np.concatenate([plan.batch(index) for index in plan.batches_of(0)])
    assert sorted(pairs.tolist()) == list(range(size // 2, size))
    message = r"^the weights of data\.train leave an epoch without a pair; raise one of them\.$"
    for corpora in ([(size, 0.0)], [(0, 1.0), (1, 0.9)]):
        with pytest.raises(UserError, match=message):
            BatchPlan(source, target, 500, 1, corpora)


def test_weights_by_which_an_epoch_has_too_many_pairs_are_refused(lengths):
    message = r"^by the weights of data\.train an epoch would have 4,985,000,000 pairs; lower them"
    with pytest.raises(UserError, match=message):
        BatchPlan(lengths[0], lengths[1], 500, 1, [(PAIRS, 5_000_000.0)])


def test_weights_repeat_whole_corpora_and_a_share(lengths):
    source, target = lengths
    corpora = [(600, 2.25), (PAIRS - 600, 0.5)]
    plan = BatchPlan(source, target, 300, seed=1, corpora=corpora)
    shares = []
    for number in range(2):
        counts = np.bincount(np.concatenate(epoch_of(plan, number)), minlength=PAIRS)
        assert sorted(set(counts[:600])) == [2, 3]
        assert (counts[:600] == 3).sum() == 150
        assert sorted(set(counts[600:])) == [0, 1]
        assert counts[600:].sum() in (198, 199)
        shares.append(counts)
    assert (shares[0] != shares[1]).any()  # another share each epoch


def whole_list(corpora, seed, epoch):
    pairs = EpochPairs(corpora, seed, epoch)
    return pairs.at(np.arange(len(pairs)))


# Of 1.3 the fraction is a little more than 0.3, of 1 / 3 a little less.
@pytest.mark.parametrize("weight", [0.1, 0.01, 1 / 3, 0.5, 0.7, 1.3, 2.2, 1 + 1 / 7])
@pytest.mark.parametrize("size", [1, 5, 64, 397, 1004])
def test_as_many_epochs_as_shares_make_a_corpus_show_each_pair(size, weight):
    fraction = weight % 1
    once = math.ceil(round(1 / fraction, 6))
    for first in (0, 7 * once, 10**12):
        counts, sizes = np.zeros(size, np.int64), []
        for epoch in range(first, first + once):
            pairs, copies = whole_list([(100, 1.0), (size, weight)], 3, epoch)
            own = pairs >= 100
            assert sorted(pairs[~own]) == list(range(100))
            in_share = pairs[own & (copies == int(weight))] - 100
            assert len(set(in_share)) == len(in_share)
            assert own.sum() == int(weight) * size + len(in_share)
            counts[in_share] += 1
            sizes.append(len(in_share))
        assert set(sizes) <= {math.floor(fraction * size), math.ceil(fraction * size)}
        assert first == 10**12 or counts.min() >= 1
        assert (counts == 0).sum() <= 1
        assert counts.max() <= 2


def test_a_share_is_drawn_from_the_whole_corpus_by_the_seed():
    """Of 12 shares of a tenth, the pairs in each of 50 parts, and neighbours, are as by chance."""
    size, found = 50_000, []
    for seed in range(4):
        for epoch in (0, 4, 9):
            found.append(whole_list([(size, 0.1)], seed, epoch).pairs)
    for share in found:
        of_parts = np.bincount(share * 50 // size, minlength=50)
        chi_square = ((of_parts - 100) ** 2 / (100 * 0.9)).sum()
        assert 20 < chi_square < 95  # of 49 degrees of freedom
        for distance in (1, 2, 16):
            neighbours = len(np.intersect1d(share, share + distance))
            assert abs(neighbours - 500) < 5 * math.sqrt(500)
        assert abs(np.corrcoef(share[1:], share[:-1])[0, 1]) < 0.07
    common = [len(np.intersect1d(one, other)) for one, other in itertools.pairwise(found[::3])]
    assert all(abs(number - 500) < 5 * math.sqrt(500) for number in common)


def test_a_small_share_is_planned_without_the_rest_of_its_corpus():
    """Counted are the lengths that are read, which are all that planning looks at."""

    class CountedLengths(np.ndarray):
        reads = 0

        def __getitem__(self, places):
            if isinstance(places, np.ndarray):
                CountedLengths.reads += len(places)
            return np.asarray(self)[places]

    size = 2_000_000
    lengths = np.random.default_rng(1).integers(4, 90, size).astype(np.uint16)
    counted = lengths.view(CountedLengths)
    plan = BatchPlan(counted, counted, 25_000, 1, [(size, 0.01)])
    tracemalloc.start()
    assert sum(len(plan.batch(index)) for index in plan.batches_of(0)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * size  # an order of the corpus would take 4 bytes a pair
    assert CountedLengths.reads == 3 * 2 * 20_000


def test_each_pair_of_a_batch_has_the_number_of_its_copy(lengths):
    plan = BatchPlan(lengths[0], lengths[1], 500, 1, [(300, 3.5), (PAIRS - 300, 1.0)])
    for epoch in range(2):
        parts = [plan.listed(index) for index in plan.batches_of(epoch)]
        pairs, copies = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = [sorted(copies[pairs == pair].tolist()) for pair in range(PAIRS)]
        assert found == [list(range(len(of_pair))) for of_pair in found]
        assert sum(len(of_pair) == 4 for of_pair in found[:300]) == 150
        assert {len(of_pair) for of_pair in found[300:]} == {1}


class CountedReads(Sequence[int]):
    """A sequence that counts how many of its items are read."""

    def __init__(self, items):
        self.items, self.reads = items, 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.reads += 1
        return self.items[index]


def test_a_batch_is_found_without_reading_of_every_epoch_before(lengths, monkeypatch):
    plan = BatchPlan(lengths[0], lengths[1], tokens_per_step=500, seed=1)
    of_epochs = CountedReads(range(0, 7 * 4096 + 1, 7))
    monkeypatch.setattr(plan, "_first_batches", of_epochs)
    assert plan.locate(7 * 3000 + 5) == (3000, 5)
    assert of_epochs.reads <= 20


def test_a_batch_is_before_an_epoch_that_is_not_planned(lengths, monkeypatch):
    plan = BatchPlan(lengths[0], lengths[1], tokens_per_step=500, seed=1)
    firsts = [0, *(plan.batches_of(epoch).stop for epoch in range(2))]
    plan_epoch, planned = BatchPlan._plan_epoch, set()

    def noted(plan, number, *new_order):
        planned.add(number)
        return plan_epoch(plan, number, *new_order)

    monkeypatch.setattr(BatchPlan, "_plan_epoch", noted)
    for first_epoch, epoch in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2)):
        first = firsts[first_epoch]
        near = {each + by for each in firsts for by in (-1, 0, 1)}
        for index in (each for each in near if each >= first):
            plan = BatchPlan(lengths[0], lengths[1], tokens_per_step=500, seed=1)
            plan.begin_at(first_epoch, first)
            planned.clear()
            assert plan.is_before(index, epoch) == (index < firsts[epoch])
            assert all(number < epoch and firsts[number] <= index for number in planned)


@pytest.mark.parametrize(
    ("corpora", "most"),
    [(None, 4 + 4 / 11), ([(1 / 2, 1.0), (1 / 4, 0.5), (1 / 4, 2.5)], 4 + 4 / 11)],
)
def test_planning_takes_few_bytes_for_each_pair_of_an_epoch(corpora, most, monkeypatch):
    """4 bytes, and 4 for each pair of the largest bucket, which has an eleventh.

    They are counted as growth, without the parts. Other threads of the test process may allocate a
    little at the same time.
    """
    monkeypatch.setattr(batching, "PAIRS_AT_ONCE", 1 << 14)
    peaks, sizes = [], []
    for size in (200_000, 600_000):
        lengths = np.random.default_rng(1).integers(4, 90, size).astype(np.uint16)
        parts = [(int(part * size), weight) for part, weight in corpora or [(1, 1.0)]]
        tracemalloc.start()
        plan = BatchPlan(lengths, lengths, 25_000, seed=1, corpora=parts)
        plan.batch(plan.batches_of(0).stop)  # of epoch 1; epoch 0 is given up before
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(sum(len(plan.batch(index)) for index in plan.batches_of(1)))
    bytes_a_pair = (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])
    assert abs(bytes_a_pair - most) < 0.5  # the bounds of batches take a little


def test_a_pair_longer_than_a_step_is_refused():
    lengths = np.array([3, 30], dtype=np.uint16)
    with pytest.raises(UserError, match=r"has 30 tokens, more than training\.tokens_per_step 20;"):
        BatchPlan(lengths, lengths, tokens_per_step=20, seed=1)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=25),
    st.integers(40, 90),
    st.integers(1, 3),
)
def test_micro_batches_hold_every_pair_and_are_as_few_and_as_cheap_as_possible(
    pairs, max_tokens, multiple_of
):
    source, target = np.array(pairs, dtype=np.int64).T
    pieces = cut_into_micro_batches(source, target, max_tokens, multiple_of)
    assert [n for piece in pieces for n in range(len(pairs))[piece]] == list(range(len(pairs)))
    assert all(source[p].sum() <= max_tokens and target[p].sum() <= max_tokens for p in pieces)
    costs = [(source[piece] + target[piece]).sum() for piece in pieces]
    least = least_costs_of_the_dearest(source, target, max_tokens)
    assert len(pieces) == next(
        number
        for number in range(multiple_of, multiple_of * len(pairs) + 1, multiple_of)
        if min(least[: number + 1]) < math.inf
    )
    equal = (source + target).sum() / len(pieces)
    best = min(least[: len(pieces) + 1])
    # Pieces of equal cost, where they fit, end within the pair that is on their border.
    assert max(costs) == best or max(costs) <= equal + (source + target).max()


def least_costs_of_the_dearest(source, target, max_tokens):
    """Try every cut into n pieces; return the least cost of the dearest piece for each n."""
    num_pairs = len(source)
    least = [[math.inf] * (num_pairs + 1) for _ in range(num_pairs + 1)]  # [pieces][pairs]
    least[0][0] = 0
    for number in range(1, num_pairs + 1):
        for end in range(1, num_pairs + 1):
            for start in range(end):
                sums = source[start:end].sum(), target[start:end].sum()
                if max(sums) <= max_tokens:
                    dearest = max(least[number - 1][start], sum(sums))
                    least[number][end] = min(least[number][end], dearest)
    return [of_pieces[num_pairs] for of_pieces in least]


def test_no_sentence_can_be_longer_than_a_micro_batch_and_many_fill_it():
    """At the limit of the longest sentence, pieces of equal cost would be half as many again."""
    rng = np.random.default_rng(1)
    source, target = (np.clip(rng.gamma(6.0, 2.2, 1_900).round(), 2, 40).astype(int) for _ in "st")
    longest = int(max(source.max(), target.max()))
    greedy, filled = 1, [0, 0]
    for pair in zip(source.tolist(), target.tolist(), strict=True):
        filled = [before + more for before, more in zip(filled, pair, strict=True)]
        if max(filled) > longest:
            greedy, filled = greedy + 1, list(pair)
    assert len(cut_into_micro_batches(source, target, longest)) == greedy
