"""Parts of a text: how users name them; each line is in exactly one, and cat joins them."""

import gzip
import io
import lzma
import os
import random
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from nmt_cli.corpus.text.shard_text import Shard, ShardText, open_shard, parse_shard
from nmt_cli.files.lines import read_lines
from nmt_cli.messages.errors import UserError

MARK = b"\xef\xbb\xbf"


def lines_of(part):
    return iter(lambda: part.readline(1 << 20), b"")


def parts_of(data, count):
    """Return the lines of each part, and how many lines the text has before it."""
    parts = []
    for number in range(1, count + 1):
        part = ShardText(io.BytesIO(data), len(data), Shard(number, count))
        parts.append((part.num_lines_before, list(lines_of(part))))
    return parts


@pytest.mark.parametrize("seed", range(5))
def test_parts_follow_each_other(seed):
    chance = random.Random(seed)
    lines = [b"x" * chance.choice([0, 0, 1, 3, 40, 200]) + b"\n" for _ in range(60)]
    lines[-1] = chance.choice([b"end", b"end\n"])
    data = b"".join(lines)
    for count in (1, 2, 3, 7, 59, 60, 200):
        parts = parts_of(data, count)
        assert [line for _, part in parts for line in part] == lines
        before = 0
        for number, (found, part) in enumerate(parts, start=1):
            assert found == before or not part
            before += len(part)
            start = len(b"".join(lines[: before - len(part)]))
            if part:  # the first byte of each line decides
                assert len(data) * (number - 1) // count <= start < len(data) * number // count


def test_texts_of_few_bytes_have_empty_parts():
    assert [part for _, part in parts_of(b"", 3)] == [[], [], []]
    assert [part for _, part in parts_of(b"a", 4) if part] == [[b"a"]]


def test_only_the_first_line_of_the_text_loses_its_mark():
    data = MARK + b"one\n" + MARK + b"two\n"
    read = []
    for number in (1, 2):
        part = ShardText(io.BytesIO(data), len(data), Shard(number, 2))
        read += list(read_lines(cast(BinaryIO, part), part.num_lines_before))
    assert [line.text for line in read] == ["one", "\ufefftwo"]


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_files_may_be_compressed(tmp_path, suffix, pack):
    path = tmp_path / f"text{suffix}"
    data = b"".join(b"%d\n" % number for number in range(1000))
    path.write_bytes(pack(data))
    read = b""
    for number in range(1, 5):
        with open_shard(path, Shard(number, 4)) as part:
            assert part.num_lines_before == read.count(b"\n")
            mine = b"".join(iter(lambda: part.readline(99), b""))
            assert 0.24 * len(data) < len(mine) < 0.26 * len(data)
            assert abs(part.expected() - len(mine)) < 5
            read += mine
    assert read == data


def test_a_pipe_has_no_parts(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(UserError, match=r"--shard needs a file, and .*pipe is none"),
        open_shard(tmp_path / "pipe", Shard(1, 2)),
    ):
        pass
    with pytest.raises(UserError, match="none not found"), open_shard(Path("none"), Shard(1, 2)):
        pass


def test_a_part_is_read():
    assert parse_shard("3/16") == Shard(3, 16)
    assert str(parse_shard("16/16")) == "16/16"


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "0/0", "-1/4", "1/4/2", "a/b", "٣/٤"])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a part such as 3/16, from 1/16 to 16/16\."):
        parse_shard(text)
