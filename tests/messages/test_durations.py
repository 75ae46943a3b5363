import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.messages.figures import duration_text, parse_duration


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
