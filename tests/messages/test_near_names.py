"""Which names are near: slips of the keyboard and parts; nothing else."""

import pytest

from nmt_cli.messages.proposals import nearest

OPTIONS = ["--beam-size", "--length-penalty", "--n-best", "--max-time", "--max-tokens-per-device"]
KEYS = ["relu_dropout", "attention_dropout", "dropout", "d_k", "d_v", "max_steps", "seed"]


@pytest.mark.parametrize(
    ("written", "known", "meant"),
    [
        ("--beam-sise", OPTIONS, ["--beam-size"]),  # a wrong letter
        ("--baem-size", OPTIONS, ["--beam-size"]),  # two swapped ones
        ("--n_bst", OPTIONS, ["--n-best"]),  # a missing one
        ("--beam", OPTIONS, ["--beam-size"]),  # words left out
        ("--tokens-per-device", OPTIONS, ["--max-tokens-per-device"]),
        ("--len", OPTIONS, ["--length-penalty"]),  # the rest left out
        ("d_x", KEYS, ["d_k", "d_v"]),
        ("attention", KEYS, ["attention_dropout"]),
    ],
)
def test_a_slip_or_a_part_of_a_name_is_near(written, known, meant):
    assert nearest(written, known) == meant


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("--min-length", OPTIONS),
        ("--max-steps", OPTIONS),
        ("bpe_dropout", KEYS),
        ("emb_dropout", KEYS),
        ("dk", KEYS),
        ("", KEYS),
        ("--", OPTIONS),
        ("x" * 1000, KEYS),
    ],
)
def test_another_name_is_not_near(written, known):
    assert nearest(written, known) == []


def test_many_names_are_no_proposal():
    assert nearest("max", ["max_steps", "max_epochs", "max_length"]) == []
