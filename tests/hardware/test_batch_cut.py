import pytest

from nmt_cli.hardware.batch_cut import BatchCut, cut_as_before


def facts(max_tokens=100, multiple_of=1):
    return {"max_tokens_per_device": max_tokens, "micro_batches_multiple_of": multiple_of}


@pytest.mark.parametrize(
    ("before", "ranks", "expected"),
    [
        (facts(), 1, (100, 1)),
        (facts(max_tokens=60), 1, (60, 1)),
        (facts(max_tokens=200), 1, (100, 1)),  # this machine holds less
        (facts(multiple_of=4), 2, (100, 4)),  # the same pieces, two for each rank
        (facts(multiple_of=4), 1, (100, 4)),
        (facts(multiple_of=4), 3, (100, 3)),
        (facts(multiple_of=2), 4, (100, 4)),
        ({"max_tokens_per_device": 60}, 2, (60, 2)),  # an older checkpoint
    ],
)
def test_batches_are_cut_as_before_where_that_is_possible(before, ranks, expected):
    found = cut_as_before(BatchCut(100), before, ranks)
    assert (found.max_tokens, found.multiple_of) == expected


def test_a_limit_that_the_user_chose_stays():
    chosen = BatchCut(100, is_limit_chosen=True)
    assert cut_as_before(chosen, facts(max_tokens=60), 1) == chosen
    assert cut_as_before(BatchCut(30, is_limit_chosen=True), facts(), 1).max_tokens == 30


def test_a_checkpoint_keeps_what_the_next_session_needs():
    cut = BatchCut(30, multiple_of=4)
    assert cut_as_before(BatchCut(100), cut.facts(), 2) == cut
