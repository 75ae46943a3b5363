from pathlib import Path

import pytest

from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.parseval_parameters import (
    DEFAULT_FILE,
    Parameters,
    default_parameters,
    read_parameters,
)
from tests.real_text import real_lines

FILE = """\
# a comment
  ## another
DEBUG 1
MAX_ERROR 3
CUTOFF_LEN 20
LABELED 0

DELETE_LABEL TOP
DELETE_LABEL #
DELETE_LABEL_FOR_LENGTH -NONE-
EQ_LABEL ADVP PRT
EQ_LABEL NP\tNX
EQ_WORD The the
"""


def read(text):
    return read_parameters(text.split("\n"), "rules.prm")


def test_every_key():
    assert read(FILE) == Parameters(
        max_errors=3,
        cutoff_length=20,
        is_labeled=False,
        deleted_labels=frozenset({"TOP", "#"}),
        deleted_labels_for_length=frozenset({"-NONE-"}),
        equal_labels=frozenset({("ADVP", "PRT"), ("NP", "NX")}),
        equal_words=frozenset({("The", "the")}),
    )


def test_keys_that_are_missing_or_repeated():
    assert read("") == Parameters(10, 40, True)
    assert read("CUTOFF_LEN 20\nCUTOFF_LEN 30").cutoff_length == 30


def test_pairs_match_in_both_directions_and_no_further():
    rules = read("EQ_LABEL A B\nEQ_LABEL B C\nEQ_WORD x y")
    assert rules.are_equal_labels("A", "B")
    assert rules.are_equal_labels("B", "A")
    assert rules.are_equal_labels("D", "D")
    assert not rules.are_equal_labels("A", "C")
    assert not rules.are_equal_labels("x", "y")
    assert rules.are_equal_words("y", "x")
    assert not rules.are_equal_words("A", "B")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nDELETE_LABELS TOP", "rules.prm:2: DELETE_LABELS is not a parameter; did you mean "
         "DELETE_LABEL?"),
        ("QUUX 1", "rules.prm:1: QUUX is not a parameter; did you mean DEBUG, MAX_ERROR, "
         "CUTOFF_LEN, LABELED, DELETE_LABEL, DELETE_LABEL_FOR_LENGTH, EQ_LABEL or EQ_WORD?"),
        ("EQ_LABEL ADVP", "rules.prm:1: EQ_LABEL takes 2 values, not 1."),
        ("DELETE_LABEL A B", "rules.prm:1: DELETE_LABEL takes 1 value, not 2."),
        ("CUTOFF_LEN forty", "rules.prm:1: CUTOFF_LEN takes a whole number from 0 to "
         "999,999,999, not forty."),
        ("CUTOFF_LEN " + 5000 * "1", "rules.prm:1: CUTOFF_LEN takes a whole number from 0 to "
         f"999,999,999, not {50 * '1'}."),
        ("MAX_ERROR -1", "rules.prm:1: MAX_ERROR takes a whole number from 0 to 999,999,999, "
         "not -1."),
        ("DEBUG -", "rules.prm:1: DEBUG takes a whole number from -1 to 999,999,999, not -."),
    ],
)  # fmt: skip
def test_wrong_lines_are_refused(text, message):
    with pytest.raises(UserError) as caught:
        read(text)
    assert str(caught.value) == message


def test_the_default_file():
    rules = default_parameters()
    assert rules.deleted_labels == {"TOP", "ROOT", "-NONE-", ",", ".", ":", "``", "''"}
    assert rules.deleted_labels_for_length == {"-NONE-"}
    assert rules.are_equal_labels("PRT", "ADVP")
    assert rules.is_labeled
    assert rules.cutoff_length == 40
    assert rules.equal_words == frozenset()


def test_the_default_file_is_installed():
    setup = (Path(__file__).parents[2] / "setup.py").read_text(encoding="utf-8")
    assert f'"parsing/{DEFAULT_FILE.name}"' in setup


def test_the_defaults_count_as_collins_does_but_for_another_root():
    collins = read_parameters(real_lines("evalb", "COLLINS.prm"), "COLLINS.prm")
    ours = default_parameters()
    assert ours.deleted_labels - collins.deleted_labels == {"ROOT"}
    assert collins.deleted_labels <= ours.deleted_labels
    assert (ours.equal_labels, ours.equal_words) == (collins.equal_labels, collins.equal_words)
    assert ours.cutoff_length == collins.cutoff_length
    assert collins.max_errors == 10
