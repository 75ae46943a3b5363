import pytest

from nmt_cli.messages.figures import first_outside, parse_number_list


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


@pytest.mark.parametrize(
    ("text", "found"), [("1,3-5", None), ("1,6", 6), ("0-2", 0), ("2-999999999", 999_999_999)]
)
def test_numbers_outside_are_found_without_counting_them_all(text, found):
    assert first_outside(parse_number_list(text), 5) == found
