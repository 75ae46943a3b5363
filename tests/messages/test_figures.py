"""Figures as text, and durations and lists of numbers that are read from text."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.messages.figures import (
    counted,
    duration_text,
    parse_duration,
    parse_number_list,
    perplexity_of,
    short_number,
    with_prefix,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (7.8512, "7.851"),
        (12_345.678, "12,345.678"),
        (999_999.0, "999,999.000"),
        (1e30, "1e+30"),
        (sys.float_info.max, "2e+308"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (-2e6, "-2e+06"),
    ],
)
def test_huge_numbers_are_printed_in_a_few_letters(number, text):
    assert short_number(number, 3) == text


def test_one_thing_is_counted_in_the_singular():
    assert [counted(n, "line") for n in (0, 1, 2_000)] == ["0 lines", "1 line", "2,000 lines"]
    assert [counted(n, "leaf", "leaves") for n in (1, 2)] == ["1 leaf", "2 leaves"]


def test_the_perplexity_of_guessing_is_the_number_of_choices():
    assert perplexity_of(math.log(8000)) == pytest.approx(8000)


@pytest.mark.parametrize(
    ("nll", "perplexity"), [(709.0, math.exp(709)), (17_918.0, math.inf), (math.inf, math.inf)]
)
def test_a_perplexity_beyond_all_floats_is_infinite(nll, perplexity):
    assert perplexity_of(nll) == perplexity


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (252_329_984, "252 MB"),
        (9.53e12, "9.53 TB"),
        (999_600_000, "1 GB"),
        (3.3e18, "3.3 EB"),
        (3.3e21, "3.3e+03 EB"),
    ],
)
def test_a_unit_gets_a_prefix(number, text):
    assert with_prefix(number, "B") == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1.5s", 1.5), ("1.5m", 90), ("1.5h", 5_400), ("1d3h30m", 99_000)],
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "3x", "h", "3h-1m", "30m3h", "nan", "1e3s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=f"^'{text}' is not a time such as 3h30m, 45m or 90s.$"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["3", "90", "3.5"])
def test_a_duration_needs_a_unit(text):
    with pytest.raises(ValueError, match=f"^{text} needs a unit; write {text}h, {text}m or"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (1.5, "1.5s"), (90, "1m30s"), (2_700, "45m"), (12_600, "3h30m"), (86_400, "24h")],
)
def test_a_duration_is_written_in_few_letters(seconds, text):
    assert duration_text(seconds) == text


@given(st.integers(0, 10**9))
def test_a_written_duration_reads_back_equal(milliseconds):
    seconds = milliseconds / 1000
    assert parse_duration(duration_text(seconds)) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("3", [3]), ("1,3-5", [1, 3, 4, 5]), (" 2 , 1-1", [2, 1]), ("0", [0]), ("5,5", [5, 5])],
)
def test_a_list_of_numbers(text, numbers):
    assert [number for part in parse_number_list(text) for number in part] == numbers


@pytest.mark.parametrize("text", ["", ",", "1,", "a", "-1", "1-", "1--2", "1.5", "٣", "9" * 10])
def test_what_is_no_list_is_named(text):
    with pytest.raises(ValueError, match="list of numbers such as 1,3-5"):
        parse_number_list(text)


def test_a_range_must_count_up():
    with pytest.raises(ValueError, match="5-3 counts backwards; write 3-5"):
        parse_number_list("1,5-3")
