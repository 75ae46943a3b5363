from itertools import chain

import numpy as np
import pytest
import torch

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.binarized import BinarizedText
from tests.benchmarks.data import (
    CAPTIONS,
    padding_share,
    random_corpus,
    random_lengths,
    sorted_batches,
    write_batches,
)
from tests.benchmarks.padded import BOS_ID, IGNORED, PAD_ID, PaddedBatches
from tests.benchmarks.padding import measure_padding
from tests.benchmarks.shapes import SHAPES, Setup

TOKENS = 200


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    corpus = random_corpus(tmp_path_factory.mktemp("random"), 300, 50, CAPTIONS)
    write_batches(corpus, TOKENS)
    return corpus


def test_sorted_batches_hold_the_limit_and_repeat_nothing():
    source, target = random_lengths(np.random.default_rng(5), 500, CAPTIONS)
    batches = sorted_batches(source, target, TOKENS)
    for pairs in batches:
        assert max(source[pairs].sum(), target[pairs].sum()) <= TOKENS
    longer = sorted(np.maximum(source, target)[pairs].tolist() for pairs in batches)
    assert list(chain(*longer)) == sorted(chain(*longer))
    used = np.concatenate(batches)
    assert len(np.unique(used)) == len(used)
    # Only the longest pairs, which do not fill a batch, are left out.
    left_out = np.setdiff1d(np.arange(500), used)
    assert max(source[left_out].sum(), target[left_out].sum()) <= TOKENS
    assert np.maximum(source, target)[left_out].min() >= np.maximum(source, target)[used].max()


def test_sorting_leaves_less_padding_than_the_order_of_the_corpus():
    source, target = random_lengths(np.random.default_rng(5), 500, CAPTIONS)
    ours = padding_share(sorted_batches(source, target, TOKENS), source, target)
    assert ours < padding_share(list(np.arange(500).reshape(-1, 10)), source, target) / 3


def test_padding_share_by_hand():
    source, target = np.array([2, 3, 9]), np.array([4, 4, 9])
    batches = [np.array([0, 1]), np.array([2])]
    assert padding_share(batches, source, target) == pytest.approx(1 / 32)


def test_padded_batches_are_the_sentences_of_the_corpus(corpus):
    sides = [BinarizedText.open(corpus.folder, f"train.{side}") for side in ("source", "target")]
    batches = np.load(corpus.folder / "batches.npz")
    pairs = batches["pairs"][: batches["bounds"][1]]
    batch = PaddedBatches(str(corpus.folder)).batch(0)
    for row, pair in enumerate(pairs):
        source, target = (side.gather(np.array([pair])).tokens.tolist() for side in sides)
        assert batch.source[row][batch.keep[row]].tolist() == source
        assert batch.target_output[row][batch.target_output[row] != IGNORED].tolist() == target
        target_input = [BOS_ID, *target[:-1]]
        assert batch.target_input[row, : len(target)].tolist() == target_input
        assert (batch.target_input[row, len(target) :] == PAD_ID).all()
    assert batch.num_target_tokens == int((batch.target_output != IGNORED).sum())


def test_padded_batches_begin_again_behind_the_last(corpus):
    batches = PaddedBatches(str(corpus.folder))
    number = len(np.load(corpus.folder / "batches.npz")["bounds"]) - 1
    assert torch.equal(batches.batch(1).source, batches.batch(number + 1).source)


def test_sentences_of_one_length_need_no_padding_in_attention():
    lengths = np.full(64, 8, dtype=np.uint16)  # 512 rows: a step of the rounded numbers
    padding = measure_padding(BatchPlan(lengths, lengths, 512, 1), lengths, lengths)
    assert padding == (0.0, 0.0, 0.0)
    mixed = np.array([8, 9] * 32, dtype=np.uint16)
    padding = measure_padding(BatchPlan(mixed, mixed, 512, 1), mixed, mixed)
    # Each batch is one group: 32 sentences or so of 9 places, half of them with one hole.
    assert padding.attention_places == pytest.approx(0.5 / 9, abs=0.02)
    assert padding.attention_pairs == pytest.approx(1 - (64 + 81) / (2 * 81), abs=0.03)
    assert 0.0 < padding.spare_rows < 1 / 32


def test_setup_survives_the_command_line():
    setup = Setup(SHAPES["S"], "some/folder", threads=3, memory_limit=5)
    assert Setup.from_json(setup.as_json()) == setup
