import bz2
import gzip
import io
import lzma
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.corpus import lines
from nmt_cli.corpus.lines import LineTexts, TextSize, is_blank, one_line, open_text, read_lines
from nmt_cli.errors import UserError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BOM = b"\xef\xbb\xbf"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}
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


def read(data):
    return list(read_lines(io.BytesIO(data)))


def split(data):
    """The lines by the one rule there is, each with whether a line feed ended it."""
    parts = data.split(b"\n")
    ended = [(part, True) for part in parts[:-1]]
    return ended + ([(parts[-1], False)] if parts[-1] else [])


@settings(max_examples=400, deadline=None)
@given(st.lists(CHUNKS, max_size=30).map(b"".join))
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


@settings(max_examples=400, deadline=None)
@given(st.lists(CHUNKS, max_size=30).map(b"".join), st.integers(1, 12))
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
    rest = text.replace("\u200b", "").replace("\ufeff", "")
    assert is_blank(text) == (not rest or rest.isspace())


@pytest.mark.parametrize("text", ["a", " . ", "\u200ba", "\x00", "\ufffd", "▁"])
def test_not_blank(text):
    assert not is_blank(text)


@given(st.text())
def test_one_line_is_one_for_every_reader(text):
    sanitized = one_line(text)
    assert len(sanitized.splitlines()) <= 1
    assert "\0" not in sanitized
    assert len(sanitized) == len(text)
    assert sanitized.split() == text.replace("\0", " ").split()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_text_reads_as_the_plain_one(tmp_path, suffix):
    parts = ["ä\n".encode() * 1000, b"second part\n" * 5000]
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"".join(COMPRESS[suffix](part) for part in parts))
    with open_text(path) as stream:
        assert stream.read() == b"".join(parts)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_every_cut_of_a_compressed_file_is_noticed(tmp_path, suffix):
    whole = COMPRESS[suffix](os.urandom(3000).hex().encode() + b"\nthe end\n")
    path = tmp_path / f"text{suffix}"
    cuts = {0, 1, 2, 5, 10, *range(17, len(whole), len(whole) // 40)}
    cuts |= {len(whole) - back for back in (1, 2, 4, 8, 12)}
    assert len(cuts) > 45
    for cut in cuts:
        path.write_bytes(whole[:cut])
        if cut == 0 and suffix == ".gz":
            continue  # gzip takes nothing for nothing; callers refuse empty text
        assert_refused(path, f"{path} is damaged or not a {suffix} file: ")


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("garbage", [b"garbage", b"\x1f\x8b", b"one line\n" * 1000])
def test_garbage_behind_compressed_text_is_noticed(tmp_path, suffix, garbage):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESS[suffix](b"text\n") + garbage)
    assert_refused(path, f"{path} is damaged or not a {suffix} file: ")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_plain_text_under_a_compressed_name_is_refused(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"plain text\n")
    assert_refused(path, f"{path} is damaged or not a {suffix} file: ")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_text_under_another_name_is_refused(tmp_path, suffix):
    path = tmp_path / "text.en"
    path.write_bytes(COMPRESS[suffix](b"text\n"))
    assert_refused(path, f"{path} is compressed; its name must end in {suffix}.")


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_the_bytes_of_a_text_are_known_or_estimated_while_it_is_read(tmp_path, suffix):
    text = b"".join(os.urandom(20).hex().encode() + b"\n" for _ in range(30_000))
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESS[suffix](text) if suffix else text)
    with open_text(path) as stream:
        size = TextSize(stream)
        stream.read(len(text) // 3)
        assert size.expected() == pytest.approx(len(text), rel=0.05 if suffix else 0)
        assert lines.bytes_read(stream) == pytest.approx(path.stat().st_size / 3, rel=0.5)
        stream.read()
        assert size.expected() == len(text)
        assert lines.bytes_read(stream) == path.stat().st_size
    assert TextSize(io.BytesIO(text)).expected() is None


def test_what_cannot_be_opened_is_named(tmp_path):
    missing = tmp_path / "missing.en"
    assert_refused(missing, f"{missing} not found.")
    assert_refused(tmp_path, f"{tmp_path} is a directory, not a text file.")
    assert_refused(Path("a\0b"), "a\0b cannot be read: embedded null byte.")
    long = tmp_path / ("x" * 300)
    assert_refused(long, f"{long} cannot be read: File name too long.")


def assert_refused(path, message):
    with pytest.raises(UserError) as caught, open_text(path) as stream:
        stream.read()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def proposed_by_refusal(path):
    with pytest.raises(UserError, match="unpack it: ") as caught, open_text(path):
        pass
    return shlex.split(str(caught.value).partition("unpack it: ")[2])


@pytest.mark.parametrize("suffix", [".bz2", ".zip"])
def test_the_proposed_unpacking_overwrites_nothing(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    path = Path(f"-keep{suffix}")
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("text", "ein Satz\n")
    else:
        path.write_bytes(bz2.compress(b"ein Satz\n"))
    assert proposed_by_refusal(path)[2:] == [f"./{path}", ">", "./-keep"]
    Path("-keep").write_text("precious")
    assert proposed_by_refusal(path)[2:] == [f"./{path}", ">", "./-keep-2"]
    path = path.rename("-other")
    Path("unpacked--other").symlink_to("nowhere")
    assert proposed_by_refusal(path)[2:] == ["./-other", ">", "unpacked--other-2"]


def test_an_archive_of_several_files_is_unpacked_into_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("pair.zip", "w") as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/a.en", "one\n")
    assert proposed_by_refusal(Path("pair.zip"))[:2] == ["unzip", "-p"]
    with zipfile.ZipFile("pair.zip", "a") as archive:
        archive.writestr("folder/a.de", "eins\n")
    assert proposed_by_refusal(Path("pair.zip")) == ["unzip", "-d", "pair", "pair.zip"]
    Path("pair").mkdir()
    command = proposed_by_refusal(Path("pair.zip"))
    assert command == ["unzip", "-d", "pair-2", "pair.zip"]
    if shutil.which("unzip"):
        subprocess.run(command, check=True)
        assert Path("pair-2/folder/a.de").read_text() == "eins\n"
    Path("pair.zip").write_bytes(Path("pair.zip").read_bytes()[:-9])  # its list cannot be read
    assert proposed_by_refusal(Path("pair.zip"))[:2] == ["unzip", "-p"]
