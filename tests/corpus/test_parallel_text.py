import gzip
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.corpora import ParallelFiles

CHUNKS = st.one_of(
    st.sampled_from([b"\r", b"\r\n", b"\x85", "\u2028".encode(), b"\v", b"\xff", b"", b" "]),
    st.binary(max_size=4),
)


@pytest.fixture
def files(tmp_path):
    return ParallelFiles(source=tmp_path / "text.en", target=tmp_path / "text.de")


def write(files, source, target):
    files.source.write_bytes(source)
    files.target.write_bytes(target)


def refusal(files):
    with pytest.raises(UserError) as caught:
        list(ParallelText(files))
    return str(caught.value)


def test_pairs_stay_beside_each_other(files):
    write(files, b"\xef\xbb\xbfone\r\ntwo\x85\n\nfour", "eins\nzwei\u2028\r\r\n\n\n".encode())
    text = ParallelText(files)
    assert list(text) == [("one", "eins"), ("two\ufffd", "zwei\u2028\r"), ("", ""), ("four", "")]
    assert text.num_invalid == {"source": 1, "target": 0}


@given(st.lists(st.tuples(CHUNKS, CHUNKS), min_size=1, max_size=20))
def test_nothing_within_lines_moves_them(tmp_path_factory, chunks):
    folder = tmp_path_factory.mktemp("pairs")
    files = ParallelFiles(source=folder / "en", target=folder / "de")
    sources = [b"%d " % i + source.replace(b"\n", b"") for i, (source, _) in enumerate(chunks)]
    targets = [b"%d " % i + target.replace(b"\n", b"") for i, (_, target) in enumerate(chunks)]
    write(files, b"\n".join(sources) + b"\n", b"\n".join(targets))
    pairs = list(ParallelText(files))
    assert len(pairs) == len(chunks)
    for i, (source, target) in enumerate(pairs):
        assert source.split()[0] == target.split()[0] == str(i)


@pytest.mark.parametrize(
    ("source", "target", "num_sources", "num_targets"),
    [
        (b"a\n" * 1001, b"b\n" * 1000, "1,001 lines", "1,000"),
        (b"a\nb\n", b"a\nb\nc\nd\ne", "2 lines", "5"),
        (b"a\n", b"a\n\n", "1 line", "2"),
        (b"a\x85b\n", b"a\nb\n", "1 line", "2"),
    ],
)
def test_unequal_files_are_refused_with_both_counts(
    files, source, target, num_sources, num_targets
):
    write(files, source, target)
    assert refusal(files) == (
        f"{files.source} has {num_sources} but {files.target} has {num_targets}; "
        "line n of one must translate line n of the other."
    )


def test_an_empty_file_is_refused(files):
    for source, target, empty in [
        (b"", b"", files.source),
        (b"", b"a\n", files.source),
        (b"a\n", b"", files.target),
    ]:
        write(files, source, target)
        assert refusal(files) == f"{empty} is empty; it must hold one sentence per line."


def test_a_damaged_file_is_named_even_behind_the_other(tmp_path):
    files = ParallelFiles(source=tmp_path / "text.en.gz", target=tmp_path / "text.de.gz")
    whole = gzip.compress(b"\n".join(os.urandom(50).hex().encode() for _ in range(2000)))
    write(files, whole[:-20], whole)
    assert refusal(files).startswith(f"{files.source} is damaged or not a .gz file: ")
    write(files, whole, whole[:-20])
    assert refusal(files).startswith(f"{files.target} is damaged or not a .gz file: ")


def test_what_is_not_text_is_refused(files):
    write(files, b"a\n", gzip.compress(b"b\n"))
    assert refusal(files) == f"{files.target} is compressed; its name must end in .gz."
    files.target.unlink()
    os.mkfifo(files.target)
    assert refusal(files).startswith(f"{files.target} is not a plain file, but preprocess reads ")


def test_stdin_is_no_text_that_is_read_more_than_once(files, monkeypatch):
    """Not even a file as stdin, which is read from where it stands."""
    write(files, b"one\n", b"eins\n")
    once = ParallelFiles(source=STANDARD_INPUT, target=files.target)
    with files.source.open("rb") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert refusal(once).startswith("/dev/stdin is not a plain file, but preprocess reads text")
        assert list(ParallelText(once, is_read_once=True)) == [("one", "eins")]
