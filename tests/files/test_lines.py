import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.files import lines
from nmt_cli.files.lines import LineTexts, is_blank, one_line, read_lines
from nmt_cli.files.text_files import encoding_of
from nmt_cli.messages.errors import UserError

BOM = b"\xef\xbb\xbf"
SEPARATORS = {
    "CR": "\r",
    "VT": "\v",
    "FF": "\f",
    "FS": "\x1c",
    "GS": "\x1d",
    "RS": "\x1e",
    "US": "\x1f",
    "NEL": "\x85",
    "LS": "\u2028",
    "PS": "\u2029",
    "NUL": "\x00",
}
NASTY = [
    *(b"\n", b"\r\n", BOM, b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xe2\x80", b"\xf0\x9f\x98"),
    *(text.encode() for text in (*SEPARATORS.values(), "\ufffd", "\u200b", "é", "😀", "▁", "<s>")),
]
CHUNKS = st.one_of(
    st.sampled_from(NASTY),
    st.sampled_from([b"word", b" ", b"two words", b""]),
    st.binary(max_size=6),
)


def is_utf_8(data):
    """Whether ``data`` is not taken for UTF-16 or UTF-32, by its first line or as a whole."""
    return not any(map(encoding_of, (data, data.partition(b"\n")[0] + b"\n")))


TEXTS = st.lists(CHUNKS, max_size=30).map(b"".join).filter(is_utf_8)


def read(data):
    return list(read_lines(io.BytesIO(data)))


def split(data):
    """The lines by the one rule there is, each with whether a line feed ended it."""
    parts = data.split(b"\n")
    ended = [(part, True) for part in parts[:-1]]
    return ended + ([(parts[-1], False)] if parts[-1] else [])


@given(TEXTS)
def test_lines_are_the_bytes_between_line_feeds(data):
    found, expected = read(data), split(data)
    assert len(found) == len(expected)
    for number, (line, (raw, newline)) in enumerate(zip(found, expected, strict=True)):
        assert line.byte_order_mark == (number == 0 and raw.startswith(BOM))
        rest = raw.removeprefix(BOM) if number == 0 else raw
        assert line.newline == newline
        assert line.carriage_return == rest.endswith(b"\r")
        rest = rest.removesuffix(b"\r")
        assert line.text == rest.decode(errors="replace")
        assert (line.replaced == 0) == (line.text.encode() == rest)
        assert "\n" not in line.text


@given(TEXTS, st.integers(1, 12))
def test_texts_read_in_blocks_are_those_of_the_lines(data, block_size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_AT_ONCE", block_size)
        texts = LineTexts(io.BytesIO(data))
        assert list(texts) == [line.text for line in read(data)]
    assert texts.num_invalid == sum(line.replaced > 0 for line in read(data))


@pytest.mark.parametrize("name", SEPARATORS)
def test_only_a_line_feed_separates(name):
    character = SEPARATORS[name]
    texts = [character, f"{character}a", f"a{character}b", f"a{character}", "plain", character * 3]
    data = "".join(f"{text}\n" for text in texts).encode()
    found = read(data)
    assert len(found) == data.count(b"\n") == len(texts)
    back = [f"{line.text}\r" if line.carriage_return else line.text for line in found]
    assert back == texts


def test_one_carriage_return_is_cut_and_one_byte_order_mark():
    first, second, third = read(BOM + BOM + b"a\r\r\n" + BOM + b"b\r\n\r")
    assert first == ("\ufeffa\r", True, True, 0, True)
    assert second == ("\ufeffb", True, True, 0, False)
    assert third == ("", True, False, 0, False)


def test_bad_bytes_are_counted_and_honest_replacement_characters_are_not():
    honest = "a\ufffdb".encode()
    assert [line.replaced for line in read(honest + b"\n\xff" + honest + b"\xfe\n\xe2\x80")] == [
        0,
        2,
        1,
    ]


def test_utf_16_is_refused_before_its_first_line():
    data = "line\nline\n".encode("utf-16-le")
    for lines_of in (read_lines, LineTexts):
        with pytest.raises(UserError, match=r"the input is UTF-16LE text\. Convert it"):
            list(lines_of(io.BytesIO(data)))


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 1 << 20)
    just_fits = b"a" * ((1 << 20) - 1) + b"\n"
    assert len(read(just_fits)[0].text) == (1 << 20) - 1
    with pytest.raises(UserError, match=r"^line 2 of the input is longer than 1 MB; is this text"):
        read(b"a\n" + b"\0" * (1 << 21))


def test_a_line_without_end_is_refused_in_blocks_too(monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(lines, "READ_AT_ONCE", 1 << 16)
    longest = b"a" * ((1 << 20) - 1)
    assert list(map(len, LineTexts(io.BytesIO(longest + b"\n" + longest)))) == 2 * [(1 << 20) - 1]
    for too_long in (longest + b"a", longest + b"a\n", b"\0" * (1 << 21)):
        texts = LineTexts(io.BytesIO(b"a\nb\n" + too_long))
        with pytest.raises(UserError, match=r"^line 3 of the input is longer than 1 MB; is this"):
            list(texts)


def test_a_line_is_there_as_soon_as_it_was_sent():
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as stream, os.fdopen(write_end, "wb", buffering=0) as sender:
        found = read_lines(stream)
        for text in ("one", "two"):
            sender.write(f"{text}\n".encode())
            assert next(found).text == text


@pytest.mark.parametrize(
    "text", ["", " ", "\t", "\u3000", "\u200b", " \u200d\ufeff ", "\x85", "\r"]
)
def test_blank(text):
    assert is_blank(text)


@given(
    st.text(alphabet=st.sampled_from(" \t\r\x1c\x85\u00a0\u2028\u3000\u200b\ufeffa.\0"), max_size=4)
)
def test_blank_is_white_space_once_zero_width_characters_are_gone(text):
    rest = text.replace("\u200b", "").replace("\ufeff", "").replace("\0", "")
    assert is_blank(text) == (not rest or rest.isspace())


@pytest.mark.parametrize("text", ["a", " . ", "\u200ba", "\ufffd", "▁", "\u0301"])
def test_not_blank(text):
    assert not is_blank(text)


@given(st.text())
def test_one_line_is_one_for_every_reader(text):
    sanitized = one_line(text)
    assert len(sanitized.splitlines()) <= 1
    assert "\0" not in sanitized
    assert len(sanitized) == len(text)
    assert sanitized.split() == text.replace("\0", " ").split()
