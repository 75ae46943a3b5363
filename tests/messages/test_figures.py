import math
import sys

import pytest

from nmt_cli.messages.figures import counted, perplexity_of, short_number, with_prefix


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
